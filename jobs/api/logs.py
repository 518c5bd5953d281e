"""The log protocol: read on from an offset until X-Log-Complete says true."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import BinaryIO

from django.conf import settings
from django.http import FileResponse, HttpResponse, HttpResponseBase
from rest_framework import serializers

from jobs import storage
from jobs.api.fields import Strict
from jobs.models import Job

MAX_LIMIT = 1024 * 1024
# Programs write what they like; no browser may take it for a page of ours.
INERT = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox"}


class LogQuery(Strict):
    unknown_code = "unknown_parameter"

    offset = serializers.IntegerField(
        default=0, min_value=0, max_value=2**63 - 1, help_text="Bytes read before."
    )
    # At least one character of any length fits, or a reader would never get on.
    limit = serializers.IntegerField(
        default=65536, min_value=4, max_value=MAX_LIMIT, help_text="Most bytes wanted."
    )
    download = serializers.BooleanField(
        default=False, help_text="The whole log as an attachment."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    data: bytes
    offset: int  # where the next one starts
    size: int  # of the log so far


def answer(job: Job, query: Mapping[str, int]) -> HttpResponseBase:
    """`job` was read before its log is: one that had ended writes no more."""
    log = _open(job)
    if query["download"]:
        return _attachment(job, log)
    with log:
        chunk = read(log, query["offset"], query["limit"], is_final=job.is_terminal)
    is_complete = job.is_terminal and chunk.offset >= chunk.size
    headers = {
        **INERT,
        "X-Log-Offset": str(chunk.offset),
        "X-Log-Size": str(chunk.size),
        "X-Log-Complete": "true" if is_complete else "false",
        "Cache-Control": "no-store",
    }
    return HttpResponse(
        chunk.data, content_type="text/plain; charset=utf-8", headers=headers
    )


def _open(job: Job) -> BinaryIO:
    try:
        return (settings.DATA_ROOT / storage.job_log_path(job)).open("rb")
    except FileNotFoundError:  # not started yet
        return BytesIO()


def read(log: BinaryIO, offset: int, limit: int, *, is_final: bool) -> Chunk:
    """Read whole UTF-8 characters, `limit` bytes at most.

    An offset beyond the end is answered with the end: a new attempt's log may be
    shorter than the one that was being read.
    """
    size = log.seek(0, os.SEEK_END)
    start = log.seek(min(offset, size))
    data = log.read(min(limit, size - start))
    if start + len(data) < size or not is_final:
        data = data[: len(data) - _unfinished(data)]
    return Chunk(data=data, offset=start + len(data), size=size)


def _unfinished(data: bytes) -> int:
    """How many bytes at the end begin a character that goes on after them."""
    for length, byte in enumerate(reversed(data[-3:]), start=1):
        if byte >= 0xC0:
            needed = 2 + (byte >= 0xE0) + (byte >= 0xF0)
            return length if needed > length else 0
        if byte < 0x80:
            return 0
    return 0


def _attachment(job: Job, log: BinaryIO) -> HttpResponseBase:
    return FileResponse(
        log,
        as_attachment=True,
        filename=f"{job.pk}.log",
        content_type="text/plain; charset=utf-8",
        headers=INERT,
    )
