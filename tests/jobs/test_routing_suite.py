"""An evaluation suite as a document, and the scores, worked out by hand."""

from typing import Any

import pytest
import yaml

from jobs.routing import RoutingError
from jobs.routing.suite import Result, parse_suite, scores

CASE = {"name": "a", "params": {"n": 1}}


def suite(**changes: Any) -> str:
    return yaml.safe_dump({"name": "s", "cases": [CASE], **changes})


def case(**changes: Any) -> str:
    return suite(cases=[{**CASE, **changes}])


WRONG = [
    ("nothing", "", "object"),
    ("no name", yaml.safe_dump({"cases": [CASE]}), "name is missing"),
    ("no case", suite(cases=[]), "at least one case"),
    ("a case without params", suite(cases=[{"name": "a"}]), "params is missing"),
    ("params that are a list", case(params=[1]), "give an object"),
    ("two of one name", suite(cases=[CASE, {**CASE, "params": {}}]), "twice"),
    ("a weight below 0", case(weight=-1), "from 0"),
    ("a risk that is none", case(risk="x"), "low, medium, high"),
    ("a mistyped field", case(wieght=1), "wieght"),
    (
        "a container",
        case(expect=[{"name": "c", "container": "a:1"}]),
        "policy's to run",
    ),
]


@pytest.mark.parametrize(
    ("written", "told"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG]
)
def test_what_is_no_suite_is_told(written: str, told: str) -> None:
    with pytest.raises(RoutingError, match=told):
        parse_suite(written)


def test_a_case_has_what_it_says() -> None:
    file = {"name": "f", "artifact": "r.json"}
    (read,) = parse_suite(case(weight=2, rubric="tone", expect=[file])).cases
    assert (read.weight, read.rubric, read.params) == (2, "tone", {"n": 1})
    assert read.expect[0].name == "f"


def result(rubric: str, passed: bool, weight: float = 1, **given: float) -> Result:
    return Result(rubric=rubric, weight=weight, passed=passed, scores=given)


def test_scores_are_weighted_means_of_each_item() -> None:
    found = scores(
        [
            result("label", True),
            result("label", False, weight=3),
            result("tone", True, style=0.5),
            result("tone", True, weight=3, style=0.9),
        ]
    )
    assert found == {"label": 0.25, "tone": 1.0, "style": pytest.approx(0.8)}


def test_what_a_validator_gave_is_kept_within_0_and_1() -> None:
    assert scores([result("a", True, x=7, y=-3)]) == {"a": 1.0, "x": 1.0, "y": 0.0}


def test_what_weighs_nothing_has_no_score() -> None:
    assert scores([result("a", True, weight=0)]) == {}
    assert scores([]) == {}
