"""Reading a document field by field: a mistyped name or value is told with its place."""

import math
import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
MOST_TEXT = 20_000
MOST_ITEMS = 200
MOST_DEPTH = 40
MOST_VALUES = 50_000
# What no database stores, and no file's text should hold.
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


class RoutingError(Exception):
    """It is no policy, or no task of it; says where, and what to do."""

    def __init__(self, place: str, text: str) -> None:
        super().__init__(f"{place}: {text}" if place else text)
        self.place = place


# Of a place and what stands there: the value that is meant.
Reader = Callable[[str, Any], Any]


def check_plain(place: str, value: Any) -> None:
    """JSON that a database holds: not deep without end, and no NUL in any text."""
    level, left = [value], MOST_VALUES
    for _ in range(MOST_DEPTH):
        inner: list[Any] = []
        for each in level:
            _check_one(place, each)
            inner += _inside(each)
        left -= len(inner)
        if left < 0:
            raise RoutingError(place, f"more than {MOST_VALUES:,} values are too many.")
        if not inner:
            return
        level = inner
    raise RoutingError(place, f"it is nested more than {MOST_DEPTH} deep.")


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    return value if isinstance(value, list) else []


def _check_one(place: str, value: Any) -> None:
    if isinstance(value, str) and _UNSTORABLE.search(value):
        raise RoutingError(place, "NUL and lone surrogates can not be stored.")
    if isinstance(value, float) and not math.isfinite(value):
        raise RoutingError(place, "a number is not finite.")


def storable(value: Any) -> Any:
    """The same with what no database holds made visible: of what a stranger wrote."""
    if isinstance(value, str):
        return _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", value)
    if isinstance(value, dict):
        return {storable(key): storable(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [storable(each) for each in value]
    return value


def fields(place: str, value: Any, readers: Mapping[str, Reader]) -> dict[str, Any]:
    """The object's fields, each by its reader. Nothing in it is ignored."""
    if not isinstance(value, dict):
        raise RoutingError(place, f"this is {_kind(value)}, and must be an object.")
    unknown = [name for name in value if name not in readers]
    if unknown:
        known = ", ".join(sorted(readers))
        raise RoutingError(
            place, f"there is no {_shown(unknown[0])}. There are: {known}."
        )
    at = f"{place}." if place else ""
    return {name: readers[name](f"{at}{name}", value[name]) for name in value}


def need(place: str, told: Mapping[str, Any], *names: str) -> None:
    for name in names:
        if name not in told:
            raise RoutingError(place, f"{name} is missing.")


def items(place: str, value: Any, reader: Reader, *, most: int = MOST_ITEMS) -> Any:
    if not isinstance(value, list):
        raise RoutingError(place, f"this is {_kind(value)}, and must be a list.")
    if len(value) > most:
        raise RoutingError(place, f"at most {most} of them.")
    return tuple(reader(f"{place}[{i}]", item) for i, item in enumerate(value))


def each_once(place: str, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise RoutingError(place, f"{name} is there twice. Give each its own name.")


def text(place: str, value: Any) -> str:
    if not isinstance(value, str):
        raise RoutingError(place, f"this is {_kind(value)}, and must be a text.")
    if len(value) > MOST_TEXT:
        raise RoutingError(place, f"a text may have {MOST_TEXT:,} characters.")
    if _UNSTORABLE.search(value):
        raise RoutingError(place, "NUL and lone surrogates can not be stored.")
    return value


def short(place: str, value: Any) -> str:
    found = text(place, value)
    if len(found) > 100 or not found.isprintable():
        raise RoutingError(place, "use at most 100 characters, all on one line.")
    return found


def title(place: str, value: Any) -> str:
    found = short(place, value)
    if not found.strip():
        raise RoutingError(place, "give it a name.")
    return found


def name(place: str, value: Any) -> str:
    found = text(place, value)
    if not NAME.fullmatch(found):
        raise RoutingError(
            place,
            f"{_shown(found)} is no name: use 1 to 63 small letters, digits, '.', '_' "
            "and '-', the first a letter or digit.",
        )
    return found


def yes_or_no(place: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise RoutingError(place, f"this is {_kind(value)}, and must be true or false.")
    return value


def whole(least: int, most: int) -> Reader:
    def read(place: str, value: Any) -> int:
        if type(value) is not int:
            raise RoutingError(
                place, f"this is {_kind(value)}, and must be a whole number."
            )
        if not least <= value <= most:
            raise RoutingError(place, f"give a number from {least:,} to {most:,}.")
        return value

    return read


def number(least: float = -1e12, most: float = 1e12) -> Reader:
    def read(place: str, value: Any) -> float:
        if type(value) not in (int, float) or not math.isfinite(value):
            raise RoutingError(place, f"this is {_kind(value)}, and must be a number.")
        if not least <= value <= most:
            raise RoutingError(place, f"give a number from {least:g} to {most:g}.")
        return float(value)

    return read


def maybe(reader: Reader) -> Reader:
    """The same, or null."""

    def read(place: str, value: Any) -> Any:
        return None if value is None else reader(place, value)

    return read


def one_of(words: type[StrEnum]) -> Reader:
    def read(place: str, value: Any) -> StrEnum:
        try:
            return words(text(place, value))
        except ValueError:
            known = ", ".join(words)
            raise RoutingError(place, f"{_shown(value)} is none of {known}.") from None

    return read


def _kind(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "not a finite number"
    kinds = {bool: "true or false", dict: "an object", list: "a list", str: "a text"}
    kinds |= {type(None): "null", int: "a number", float: "a number"}
    return kinds.get(type(value), f"a {type(value).__name__}")


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
