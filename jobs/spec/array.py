"""The tasks of an array, as `sbatch --array` writes them."""

import re
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from django.core.exceptions import ValidationError

from jobs.spec.text import shown

MAX_ARRAY_TEXT = 200
MAX_INDEX = 1_000_000
MAX_TASKS = 1000
_SPAN = re.compile(r"([0-9]+)(?:-([0-9]+)(?::([0-9]+))?)?")
_LIMIT = re.compile(r"[0-9]+")


class Array(NamedTuple):
    """`limit` is how many of the tasks may run at once; None is no limit."""

    indices: tuple[int, ...]
    limit: int | None


def parse(text: str) -> Array:
    """Read "0-99%4", "1,3,5-7" or "0-20:5"; the indices come in rising order."""
    if len(text) > MAX_ARRAY_TEXT:
        raise ValidationError(
            f"Use at most {MAX_ARRAY_TEXT} characters: write ranges.", "max_length"
        )
    listed, sign, limit = text.partition("%")
    # Counted before any is made: a range of a million is refused, not built.
    spans = [_span(part) for part in listed.split(",")]
    count = sum(map(len, spans))
    if count > MAX_TASKS:
        raise ValidationError(
            f"{count:,} tasks are too many: an array has at most {MAX_TASKS:,}. Split "
            "it into several.",
            "too_many_tasks",
        )
    return Array(_sorted(spans), _limit(limit) if sign else None)


def _span(part: str) -> range:
    found = _SPAN.fullmatch(part)
    if not found:
        raise ValidationError(
            f"{shown(part)} is no range of indices. Write an array as 0-99, 1,3,5-7 or "
            "0-20:5, without spaces, and %4 after it to run at most 4 tasks at once.",
            "bad_array",
        )
    first = int(found[1])
    last = int(found[2] or first)
    step = int(found[3] or 1)
    if last > MAX_INDEX or first > MAX_INDEX:
        text = f"{part}: an index is at most {MAX_INDEX:,}."
        raise ValidationError(text, "index_too_large")
    if last < first:
        text = f"{part} runs backwards. Write the lower index first."
        raise ValidationError(text, "backwards")
    if step < 1:
        raise ValidationError(f"{part}: a step is at least 1.", "bad_step")
    return range(first, last + 1, step)


def _sorted(spans: Iterable[range]) -> tuple[int, ...]:
    indices = sorted(index for span in spans for index in span)
    for one, other in pairwise(indices):
        if one == other:
            text = f"{one} is there twice. Give each index once."
            raise ValidationError(text, "doubled_index")
    return tuple(indices)


def _limit(text: str) -> int:
    if not _LIMIT.fullmatch(text) or int(text) < 1:
        raise ValidationError(
            f"{shown(text)}: after % say how many tasks may run at once, 1 or more.",
            "bad_limit",
        )
    return int(text)
