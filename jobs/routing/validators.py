"""Validators as a document writes them: the word that says what is checked, and how."""

from collections.abc import Callable, Mapping
from typing import Any

from jobs.routing.patterns import schema_error
from jobs.routing.reading import (
    Reader,
    RoutingError,
    fields,
    items,
    maybe,
    name,
    need,
    number,
    text,
    title,
    whole,
    yes_or_no,
)
from jobs.routing.rules import pattern
from jobs.routing.terms import (
    ArtifactCheck,
    ExecutionCheck,
    ExitCodeCheck,
    NumberCheck,
    PatternCheck,
    SchemaCheck,
    Validator,
)

MOST_BYTES = 1024**4


def schema(place: str, value: Any) -> Any:
    if not isinstance(value, (dict, bool)):
        raise RoutingError(place, "a JSON Schema is an object, or true or false.")
    if wrong := schema_error(value):
        raise RoutingError(place, f"this is no JSON Schema: {wrong}.")
    return value


def path(place: str, value: Any) -> str:
    found = title(place, value)
    if found.startswith("/") or ".." in found.split("/"):
        raise RoutingError(place, "give the path below /artifacts, as result.json.")
    return found


def _command(place: str, value: Any) -> str | tuple[str, ...] | None:
    if value is None or isinstance(value, str):
        return maybe(text)(place, value)
    return items(place, value, text, most=1000)


def _exit_code(told: dict[str, Any]) -> Validator:
    return ExitCodeCheck(name=told["name"])


def _artifact(told: dict[str, Any]) -> Validator:
    return ArtifactCheck(**{**_rest(told, "artifact"), "path": told["artifact"]})


def _schema(told: dict[str, Any]) -> Validator:
    return SchemaCheck(**{**_rest(told, "json_schema"), "schema": told["json_schema"]})


def _pattern(told: dict[str, Any]) -> Validator:
    return PatternCheck(**told)


def _number(told: dict[str, Any]) -> Validator:
    return NumberCheck(**{**_rest(told, "number"), "field": told["number"]})


def _container(told: dict[str, Any]) -> Validator:
    return ExecutionCheck(**{**_rest(told, "container"), "image": told["container"]})


def _rest(told: dict[str, Any], word: str) -> dict[str, Any]:
    return {name: value for name, value in told.items() if name != word}


def _is_0(place: str, value: Any) -> Any:
    if value != 0 or type(value) is not int:
        raise RoutingError(place, "write 0: only a job that exits with 0 succeeds.")
    return value


_SIZE = whole(0, MOST_BYTES)
# By the word that says what is checked: its fields, what else it needs, how it is made.
_KINDS: dict[
    str, tuple[Mapping[str, Reader], tuple[str, ...], Callable[[Any], Validator]]
] = {
    "exit_code": ({"exit_code": _is_0}, (), _exit_code),
    "artifact": (
        {"artifact": path, "min_bytes": _SIZE, "max_bytes": maybe(_SIZE)},
        (),
        _artifact,
    ),
    "json_schema": ({"json_schema": schema, "path": path}, ("path",), _schema),
    "pattern": (
        {"pattern": pattern, "path": path, "is_absent": yes_or_no},
        ("path",),
        _pattern,
    ),
    "number": (
        {
            "number": title,
            "path": path,
            "at_least": maybe(number()),
            "at_most": maybe(number()),
        },
        ("path",),
        _number,
    ),
    "container": (
        {
            "container": title,
            "command": _command,
            "timeout_s": whole(1, 24 * 3600),
            "cpus": maybe(number(0.01, 1024)),
            "memory_mb": maybe(whole(16, 16 * 1024 * 1024)),
        },
        (),
        _container,
    ),
}


def read_validator(place: str, value: Any) -> Validator:
    if not isinstance(value, dict):
        raise RoutingError(place, "a validator is an object.")
    words = [word for word in _KINDS if word in value]
    if len(words) != 1:
        raise RoutingError(place, f"give one of {', '.join(_KINDS)}.")
    readers, needed, make = _KINDS[words[0]]
    told = fields(place, value, {"name": name, **readers})
    need(place, told, "name", *needed)
    made = make(told)
    _check_bounds(place, made)
    return made


def _check_bounds(place: str, made: Validator) -> None:
    if isinstance(made, NumberCheck):
        bounds = [b for b in (made.at_least, made.at_most) if b is not None]
        if not bounds:
            raise RoutingError(place, "give at_least, at_most, or both.")
        if bounds != sorted(bounds):
            raise RoutingError(place, "at_least is more than at_most.")
    elif isinstance(made, ArtifactCheck):
        most = made.max_bytes
        if most is not None and most < made.min_bytes:
            raise RoutingError(place, "min_bytes is more than max_bytes.")


def document_of_validator(made: Validator) -> dict[str, Any]:
    command = getattr(made, "command", None)
    told: dict[str, Any] = {"name": made.name}
    match made:
        case ExitCodeCheck():
            told |= {"exit_code": 0}
        case ArtifactCheck():
            told |= {"artifact": made.path, "min_bytes": made.min_bytes}
            told |= {"max_bytes": made.max_bytes}
        case SchemaCheck():
            told |= {"json_schema": made.schema, "path": made.path}
        case PatternCheck():
            told |= {"pattern": made.pattern, "path": made.path}
            told |= {"is_absent": made.is_absent}
        case NumberCheck():
            told |= {"number": made.field, "path": made.path}
            told |= {"at_least": made.at_least, "at_most": made.at_most}
        case ExecutionCheck():
            listed = list(command) if isinstance(command, tuple) else command
            told |= {"container": made.image, "command": listed}
            told |= {"timeout_s": made.timeout_s, "cpus": made.cpus}
            told |= {"memory_mb": made.memory_mb}
    return {key: value for key, value in told.items() if value is not None}
