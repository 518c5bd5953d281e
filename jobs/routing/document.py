"""From a document (of YAML, JSON or rows) to a Policy, and back."""

from collections.abc import Mapping
from dataclasses import fields as fields_of
from enum import StrEnum
from typing import Any

import yaml

from jobs.routing.agreement import check
from jobs.routing.reading import (
    Reader,
    RoutingError,
    check_plain,
    each_once,
    fields,
    items,
    maybe,
    name,
    need,
    number,
    one_of,
    short,
    text,
    title,
    whole,
    yes_or_no,
)
from jobs.routing.rules import document_of_rule, read_rule
from jobs.routing.terms import Policy, Prefer, Review, Risk, Tier, Trouble, Work
from jobs.routing.validators import document_of_validator, read_validator, schema
from jobs.routing.yamltext import plain_of

MOST_CHARACTERS = 512 * 1024
MOST_TIERS = 20
_DAYS_30 = 30 * 24 * 3600


def parse(document: Any) -> Policy:
    """Raises RoutingError, which says where what is wrong."""
    check_plain("", document)
    told = fields("", document, _POLICY)
    need("", told, "name", "tiers")
    release = told.pop("release", {})
    # An empty schema takes everything, as none does.
    params = told.pop("params", None)
    params_schema = None if params == {} else params
    policy = Policy(**told, **release, params_schema=params_schema)
    check(policy)
    return policy


def parse_yaml(written: str) -> Policy:
    return parse(plain_of(written, MOST_CHARACTERS))


def to_yaml(policy: Policy) -> str:
    written: str = yaml.safe_dump(
        document_of(policy), sort_keys=False, allow_unicode=True, width=88
    )
    return written


def _command(place: str, value: Any) -> str | tuple[str, ...] | None:
    if value is None or isinstance(value, str):
        return maybe(text)(place, value)
    return items(place, value, text, most=1000)


def _env(place: str, value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise RoutingError(place, "give an object of names and texts.")
    return {key: text(f"{place}.{key}", each) for key, each in value.items()}


_COUNT = whole(0, 64)
_MB = whole(1, 16 * 1024 * 1024)
_TIER: dict[str, Reader] = {
    "name": name,
    "image": title,
    "command": _command,
    "env": _env,
    "gpu_count": _COUNT,
    "min_vram_mb": maybe(_MB),
    "share": yes_or_no,
    "gpu_names": lambda place, value: items(place, value, title, most=20),
    "cpus": maybe(number(0.01, 1024)),
    "memory_mb": maybe(whole(16, 16 * 1024 * 1024)),
    "shm_mb": maybe(_MB),
    "timeout_s": whole(1, _DAYS_30),
    "grace_s": whole(0, 120),
    "model_version": title,
    "prompt_version": short,
    "prompt": text,
    "max_complexity": maybe(number()),
    "max_risk": one_of(Risk),
}


def _tier(place: str, value: Any) -> Tier:
    told = fields(place, value, _TIER)
    need(place, told, "name", "image", "model_version")
    return Tier(**told)


def _named(reader: Reader) -> Reader:
    """A list of what has names, each its own."""

    def read(place: str, value: Any) -> Any:
        found = items(place, value, reader)
        each_once(place, [each.name for each in found])
        return found

    return read


def _tiers(place: str, value: Any) -> tuple[Tier, ...]:
    found: tuple[Tier, ...] = items(place, value, _tier, most=MOST_TIERS)
    if not found:
        raise RoutingError(place, "give at least one tier.")
    each_once(place, [tier.name for tier in found])
    return found


def _release(place: str, value: Any) -> dict[str, Any]:
    return fields(
        place,
        value,
        {"thresholds": _thresholds, "max_regression": number(0, 1)},
    )


def _thresholds(place: str, value: Any) -> dict[str, float]:
    if not isinstance(value, dict):
        raise RoutingError(place, "give an object: by rubric item the least score.")
    return {
        title(place, item): number(0, 1)(f"{place}.{item}", least)
        for item, least in value.items()
    }


_POLICY: dict[str, Reader] = {
    "name": name,
    "description": text,
    "work": one_of(Work),
    "prefer": one_of(Prefer),
    "params": maybe(schema),
    "rules": _named(read_rule),
    "tiers": _tiers,
    "validators": _named(read_validator),
    "escalate_on": lambda place, value: frozenset(items(place, value, one_of(Trouble))),
    "max_escalations": whole(0, 10),
    "review": one_of(Review),
    "review_within_s": whole(60, _DAYS_30),
    "release": _release,
}


# --- Back ----------------------------------------------------------------------------


def document_of(policy: Policy) -> dict[str, Any]:
    """As `parse` takes it, in plain values; what says nothing is left out."""
    told = {
        **_plain(policy, leave={"params_schema", "thresholds", "max_regression"}),
        "params": policy.params_schema,
        "rules": [document_of_rule(rule) for rule in policy.rules],
        "tiers": [_written(_plain(tier)) for tier in policy.tiers],
        "validators": [document_of_validator(each) for each in policy.validators],
        "escalate_on": sorted(each.value for each in policy.escalate_on),
        "release": _written(
            {
                "thresholds": dict(policy.thresholds),
                "max_regression": policy.max_regression,
            }
        ),
    }
    return _written(told)


def _plain(row: Any, *, leave: Any = frozenset()) -> dict[str, Any]:
    told = {f.name: getattr(row, f.name) for f in fields_of(row)}
    return {key: _value(value) for key, value in told.items() if key not in leave}


def _value(value: Any) -> Any:
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else value


def _written(told: Mapping[str, Any]) -> dict[str, Any]:
    return {name: v for name, v in told.items() if v not in (None, "", [], {})}
