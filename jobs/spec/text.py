"""What any text and any name of a spec must be."""

import re
from typing import Any

from django.core.exceptions import ValidationError

MAX_NAME = 100

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
# Line separators break a line; direction overrides make a name read as another.
NOT_ONE_LINE = re.compile(
    rf"{CONTROL.pattern}|[\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)
UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")


def check_text(value: str) -> None:
    """Refuse what neither UTF-8 nor PostgreSQL nor an argument of a program can hold."""
    if UNSTORABLE.search(value):
        raise ValidationError(
            "Remove the NUL character or the half of a surrogate pair.", "bad_text"
        )


def check_name(value: str) -> None:
    check_text(value)
    if len(value) > MAX_NAME:
        raise ValidationError(f"Use at most {MAX_NAME} characters.", "max_length")
    if NOT_ONE_LINE.search(value):
        raise ValidationError(
            "Use one line without control characters.", "control_character"
        )


def size_of(text: str) -> int:
    return len(text.encode(errors="surrogatepass"))


def shown(value: Any) -> str:
    """A hostile value, fit to stand in a sentence."""
    return repr(value if len(str(value)) <= 80 else f"{str(value)[:80]}...")


def one_line(text: str) -> str:
    """Fit for a terminal: what would move its cursor is written out."""
    return NOT_ONE_LINE.sub(lambda found: ascii(found[0])[1:-1], text)
