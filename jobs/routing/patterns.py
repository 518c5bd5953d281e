"""Patterns and schemas of operators over texts of strangers: in linear time, or not.

RE2 matches in time linear in the text, so that no text can keep a task busy. Schemas
are JSON Schema 2020-12, and nothing that they name is ever fetched.
"""

import json
import re
from typing import Any

import jsonschema_rs
import re2

_QUIET = re2.Options()
_QUIET.log_errors = False


def pattern_error(pattern: str) -> str:
    """Why RE2 does not take it; empty if it does."""
    try:
        re2.compile(pattern, _QUIET)
    except re2.error as error:
        told = error.args[0] if error.args else error
        return told.decode(errors="replace") if isinstance(told, bytes) else str(told)
    return ""


def found(pattern: str, text: str) -> str | None:
    """What of the text it matches first; None if nothing."""
    match = re2.compile(pattern, _QUIET).search(text)
    return match.group(0) if match else None


_REFERS = re.compile(r'"\$(?:ref|dynamicRef)"')


def _fetch_nothing(uri: str) -> Any:
    raise ValueError(f"{uri} is not looked up: write what it means into the schema")


def _validator(schema: Any) -> Any:
    return jsonschema_rs.Draft202012Validator(
        schema,
        pattern_options=jsonschema_rs.RegexOptions(),
        retriever=_fetch_nothing,
    )


def schema_error(schema: Any) -> str:
    """Why it is no schema; empty if it is one."""
    try:
        _validator(schema)
    except (jsonschema_rs.ValidationError, ValueError, TypeError, OSError) as error:
        return _first_line(error)
    return ""


def mismatch(schema: Any, value: Any) -> str:
    """What of the value does not meet the schema, and where; empty if nothing."""
    try:
        validator = _validator(schema)
        if validator.is_valid(value):
            return ""
        # Where a schema refers to itself, to say why takes twice as long for each level
        # of a stranger's document; whether, does not.
        if _REFERS.search(json.dumps(schema)):
            return "it is not as the schema says"
        error = next(iter(validator.iter_errors(value)))
    except (ValueError, TypeError, OverflowError, RecursionError) as unreadable:
        return _first_line(unreadable)
    place = ".".join(map(str, error.instance_path))
    return f"{place}: {error.message}" if place else str(error.message)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
