"""An evaluation suite: tasks with what is expected of their results, and the scores. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from jobs.routing.reading import (
    Reader,
    RoutingError,
    check_plain,
    each_once,
    fields,
    items,
    name,
    need,
    number,
    one_of,
    title,
)
from jobs.routing.terms import ExecutionCheck, Risk, Validator
from jobs.routing.validators import read_validator
from jobs.routing.yamltext import plain_of

MOST_CASES = 1000
MOST_CHARACTERS = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One task. What its job must come to: success, unless `fails` names the reason."""

    name: str
    params: Mapping[str, Any]
    risk: Risk = Risk.LOW
    weight: float = 1.0
    rubric: str = "accepted"
    expect: tuple[Validator, ...] = ()
    # The largest tier that it should need; empty is any.
    tier_at_most: str = ""
    fails: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    name: str
    cases: tuple[Case, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a case came to. `scores` are those that its validator attempts gave."""

    rubric: str
    weight: float
    passed: bool
    scores: Mapping[str, float]


def parse_suite(written: str) -> Suite:
    """Raises RoutingError, which says where what is wrong."""
    document = plain_of(written, MOST_CHARACTERS)
    check_plain("", document)
    told = fields("", document, {"name": name, "cases": _cases})
    need("", told, "name", "cases")
    return Suite(**told)


def _cases(place: str, value: Any) -> tuple[Case, ...]:
    found: tuple[Case, ...] = items(place, value, _case, most=MOST_CASES)
    if not found:
        raise RoutingError(place, "give at least one case.")
    each_once(place, [case.name for case in found])
    return found


def _params(place: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise RoutingError(place, "give an object.")
    return value


def _expect(place: str, value: Any) -> tuple[Validator, ...]:
    found: tuple[Validator, ...] = items(place, value, read_validator)
    if any(isinstance(each, ExecutionCheck) for each in found):
        raise RoutingError(place, "a container is the policy's to run: put it there.")
    return found


_CASE: dict[str, Reader] = {
    "name": title,
    "params": _params,
    "risk": one_of(Risk),
    "weight": number(0, 1e6),
    "rubric": title,
    "expect": _expect,
    "tier_at_most": name,
    "fails": title,
}


def _case(place: str, value: Any) -> Case:
    told = fields(place, value, _CASE)
    need(place, told, "name", "params")
    return Case(**told)


def scores(results: Iterable[Result]) -> dict[str, float]:
    """By rubric item the weighted mean, 0 to 1: of what passed, and of each score that
    validators gave."""
    sums: dict[str, float] = defaultdict(float)
    weights: dict[str, float] = defaultdict(float)
    for result in results:
        given = {result.rubric: float(result.passed)} | {
            item: min(1.0, max(0.0, value)) for item, value in result.scores.items()
        }
        for item, value in given.items():
            sums[item] += result.weight * value
            weights[item] += result.weight
    return {item: sums[item] / weights[item] for item in sums if weights[item]}
