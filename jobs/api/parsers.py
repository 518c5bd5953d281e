import json
import math
from collections.abc import Iterator, Mapping
from typing import IO, Any, NoReturn

from django.conf import settings
from django.utils.http import parse_header_parameters
from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser
from rest_framework.renderers import JSONRenderer

from jobs.api.problems import TooLarge, pointer
from jobs.spec import UNSTORABLE

MAX_DEPTH = 64
CHARSETS = ("utf-8", "utf8", "us-ascii")
INT64 = range(-(2**63), 2**63)


class StrictJSONParser(BaseParser):
    """One JSON object, all of whose values a database and a log can hold.

    What json.loads lets through and something later stumbles on is refused here, for
    every field of every endpoint.
    """

    media_type = "application/json"
    # The browsable pages write their example body with it.
    renderer_class = JSONRenderer

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        charset = parse_header_parameters(media_type or "")[1].get("charset", "utf-8")
        if charset.lower() not in CHARSETS:
            raise ParseError("Send JSON as UTF-8.", "bad_charset")
        data = _load(_read(stream))
        if not isinstance(data, dict):
            raise ParseError("Send one JSON object.", "not_an_object")
        _check(data)
        return data


def _read(stream: IO[Any]) -> str:
    limit = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    body = stream.read(limit + 1)
    if len(body) > limit:
        raise TooLarge(f"A request may have {limit:,} bytes.")
    try:
        return body.decode()
    except UnicodeDecodeError as exc:
        raise ParseError("The body is not UTF-8.", "bad_charset") from exc


def _load(body: str) -> Any:
    try:
        return json.loads(
            body, object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant
        )
    except RecursionError as exc:
        raise _too_deep() from exc
    # The body may hold half a surrogate pair or a secret: the text does not show it.
    except json.JSONDecodeError as exc:
        raise ParseError(
            f"This is not JSON: {exc.msg}, line {exc.lineno} column {exc.colno}.",
            "bad_json",
        ) from exc
    except ValueError as exc:  # an integer of more digits than Python converts
        raise ParseError("A number has too many digits.", "bad_number") from exc


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) != len(pairs):
        raise ParseError("An object has the same key twice.", "duplicate_key")
    return data


def _refuse_constant(word: str) -> NoReturn:
    raise ParseError(f"{word} is no JSON number.", "bad_number")


def _too_deep() -> ParseError:
    return ParseError(f"Nest values at most {MAX_DEPTH} deep.", "too_deep")


def _check(data: Any) -> None:
    """Walk without recursion: the depth is what is being checked."""
    rest: list[tuple[tuple[str | int, ...], Any]] = [((), data)]
    while rest:
        path, value = rest.pop()
        if len(path) > MAX_DEPTH:
            raise _too_deep()
        if isinstance(value, str):
            _check_text(path, value)
        elif isinstance(value, int | float):
            _check_number(path, value)
        elif isinstance(value, dict | list):
            rest += [((*path, key), item) for key, item in _items(value)]


def _items(value: dict[str, Any] | list[Any]) -> Iterator[tuple[str | int, Any]]:
    if isinstance(value, list):
        yield from enumerate(value)
        return
    for key, item in value.items():
        _check_text((), key)
        yield key, item


def _check_text(path: tuple[str | int, ...], text: str) -> None:
    if UNSTORABLE.search(text):
        raise ParseError(
            f"At {pointer(path)!r}: a text holds a NUL character or half of a "
            "surrogate pair. Remove it.",
            "bad_text",
        )


def _check_number(path: tuple[str | int, ...], number: float) -> None:
    fits = number in INT64 if isinstance(number, int) else math.isfinite(number)
    if not fits:
        raise ParseError(
            f"At {pointer(path)!r}: a number is out of range.", "bad_number"
        )
