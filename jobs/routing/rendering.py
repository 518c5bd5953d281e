"""Templates: {{ name }} is replaced once, and what comes in its place is only text."""

import json
import re
from collections.abc import Mapping
from typing import Any

from jobs.routing.patterns import mismatch
from jobs.routing.reading import RoutingError, check_plain
from jobs.routing.terms import Policy

_PLACEHOLDER = re.compile(r"\{\{[ \t]*([A-Za-z_][A-Za-z0-9_]{0,62})[ \t]*\}\}")

# Mistyped, more likely than meant.
_ALIKE = re.compile(r"\{\{[^{}]*\}\}")


def placeholders(template: str, *, place: str = "") -> frozenset[str]:
    """The names in it. Raises RoutingError for what looks like a placeholder and is none:
    braces of JSON or of a shell may stand as they are."""
    wrong = _ALIKE.search(_PLACEHOLDER.sub("", template))
    if wrong:
        text = f"{wrong.group()[:60]}: write {{{{ name }}}}, of letters, digits and _."
        raise RoutingError(place, text)
    return frozenset(_PLACEHOLDER.findall(template))


def render(template: str, values: Mapping[str, Any]) -> str:
    """A text stands as it is, anything else as JSON. What was put in is not looked at
    again: braces in it stay braces. Raises RoutingError for a name without a value."""

    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in values:
            raise RoutingError(
                name, "the prompt needs this, and params do not have it."
            )
        found = values[name]
        return found if isinstance(found, str) else json.dumps(found)

    return _PLACEHOLDER.sub(value, template)


def check_params(policy: Policy, params: Any) -> None:
    """Raises RoutingError where a task's params are not what its policy takes."""
    if not isinstance(params, dict):
        raise RoutingError("params", "give an object.")
    check_plain("params", params)
    if policy.params_schema is not None:
        wrong = mismatch(policy.params_schema, params)
        if wrong:
            raise RoutingError("params", wrong)
    for tier in policy.tiers:
        if missing := sorted(placeholders(tier.prompt) - params.keys()):
            text = f"the prompt of tier {tier.name} needs {missing[0]}."
            raise RoutingError("params", text)
