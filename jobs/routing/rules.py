"""The rules that score a task: what they measure, and what they compare it with."""

from collections.abc import Mapping
from typing import Any

from jobs.routing.patterns import pattern_error
from jobs.routing.reading import (
    Reader,
    RoutingError,
    fields,
    items,
    need,
    number,
    one_of,
    short,
    text,
    title,
)
from jobs.routing.terms import Comparison, Measure, Rule


def pattern(place: str, value: Any) -> str:
    written = text(place, value)
    if wrong := pattern_error(written):
        raise RoutingError(place, f"this is no pattern of RE2: {wrong}.")
    return written


def _scalar(place: str, value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    return text(place, value) if isinstance(value, str) else number()(place, value)


_COMPARISONS: dict[str, Reader] = {
    Comparison.AT_LEAST: number(),
    Comparison.AT_MOST: number(),
    Comparison.EQUALS: _scalar,
    Comparison.ONE_OF: lambda place, value: items(place, value, _scalar),
    Comparison.MATCHES: pattern,
}
_FIELDS: Mapping[str, Reader] = {
    "name": title,
    "weight": number(-1000, 1000),
    "of": short,
    "measure": one_of(Measure),
    **_COMPARISONS,
}


def read_rule(place: str, value: Any) -> Rule:
    told = fields(place, value, _FIELDS)
    need(place, told, "name", "weight")
    made = [word for word in Comparison if word in told]
    if len(made) != 1:
        raise RoutingError(place, f"give one of {', '.join(Comparison)}.")
    comparison = made[0]
    measure = told.get("measure", Measure.VALUE)
    if comparison is Comparison.MATCHES and measure is not Measure.VALUE:
        raise RoutingError(place, "a pattern looks at the value: leave measure out.")
    return Rule(
        name=told["name"],
        weight=told["weight"],
        of=told.get("of", ""),
        measure=measure,
        comparison=comparison,
        value=told[comparison],
    )


def document_of_rule(rule: Rule) -> dict[str, Any]:
    value = list(rule.value) if isinstance(rule.value, tuple) else rule.value
    told: dict[str, Any] = {"name": rule.name, "weight": rule.weight}
    if rule.of:
        told["of"] = rule.of
    if rule.measure is not Measure.VALUE:
        told["measure"] = rule.measure.value
    return {**told, rule.comparison.value: value}
