"""Bounded logs: head and tail are kept, and the cut is marked."""

import fcntl
import itertools
import os
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from django.conf import settings

from jobs.models import Attempt, Job

_MIB = 1024 * 1024
# Two streams are taken for the same one if so many bytes are equal.
_PROBE = 4096
_LEAST_OVERLAP = 32


def job_log_path(job: Job) -> str:
    """Of the link that names the log of the latest attempt; under the data root."""
    return f"logs/{job.pk}.log"


def attempt_log_path(attempt: Attempt) -> str:
    return f"logs/{attempt.job_id}/{attempt.number}.log"


def open_log(attempt: Attempt) -> None:
    """Make the attempt's log, empty, and point the job's link at it."""
    path = settings.DATA_ROOT / attempt.log_path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    link = settings.DATA_ROOT / job_log_path(attempt.job)
    fresh = link.with_suffix(".link")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(path.relative_to(link.parent))
    fresh.replace(link)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """The last lines of a log; `first` is the number of the first one, if known."""

    lines: list[str]
    first: int | None


def tail(job: Job, *, most_lines: int, most_bytes: int) -> Tail | None:
    """Read the end of the latest attempt's log; None where there is no log yet."""
    try:
        with (settings.DATA_ROOT / job_log_path(job)).open("rb") as log:
            start = max(0, log.seek(0, os.SEEK_END) - most_bytes)
            log.seek(start)
            text = log.read(most_bytes).decode("utf-8", "replace")
    except FileNotFoundError:
        return None
    lines = text.removesuffix("\n").split("\n") if text else []
    if start and len(lines) > 1:
        lines = lines[1:]  # cut somewhere in its middle
    shown = lines[-most_lines:]
    return Tail(lines=shown, first=None if start else len(lines) - len(shown) + 1)


class BoundedLog:
    """What is kept of a log of any length: its head and its tail, `cap_mb` at most.
    What lies between is left out, and the cut is marked."""

    def __init__(self, cap_mb: int) -> None:
        self._half = _half(cap_mb)
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = self._left_out = 0

    def write(self, chunk: bytes) -> None:
        room = max(0, self._half - len(self._head))
        self._head += chunk[:room]
        if chunk[room:]:
            self._keep(chunk[room:])

    def _keep(self, chunk: bytes) -> None:
        self._tail.append(chunk)
        self._tail_size += len(chunk)
        while (excess := self._tail_size - self._half) > 0:
            oldest = self._tail.popleft()
            if oldest[excess:]:
                self._tail.appendleft(oldest[excess:])
            gone = min(excess, len(oldest))
            self._tail_size -= gone
            self._left_out += gone

    def mark(self, text: str) -> None:
        """Between what was written and what comes; before the head is full."""
        self._head += _mark(text)

    def content(self) -> bytes:
        cut = f"{self._left_out} bytes are left out here"
        between = _mark(cut) if self._left_out else b""
        return b"".join([self._head, between, *self._tail])


def _half(cap_mb: int) -> int:
    return cap_mb * _MIB // 2


def _mark(text: str) -> bytes:
    return f"\n[gpujobs: {text}]\n".encode()


@contextmanager
def _locked(file: IO[bytes]) -> Iterator[None]:
    """Against whoever else writes to this log, in whichever process: a follower may
    still be at work when the log is completed."""
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


def follow_log(path: Path, chunks: Iterable[bytes], cap_mb: int) -> bool:
    """Copy the head of a log while its job runs: half of `cap_mb` at most. The rest is
    read when it ended, so that whoever reads on from an offset misses nothing.

    `chunks` are read from the job's first byte on; what the file has of them, whoever
    wrote it, is not written again. True if there is no more to follow: the head is
    full, or an empty chunk says that bytes are missing, or this is another stream.
    """
    room = _half(cap_mb)
    with path.open("a+b", buffering=0) as file:
        file.seek(0)
        for chunk in chunks:
            wanted = chunk[:room]
            with _locked(file):
                known = file.read(len(wanted))
                if not wanted or not wanted.startswith(known):
                    return True
                _write(file, wanted[len(known) :])
            room -= len(wanted)
            if not room:
                return True
    return False


def _write(file: IO[bytes], data: bytes) -> None:
    """All of it: on a disk that is almost full a part may be written."""
    while data:
        data = data[file.write(data) :]


def complete_log(path: Path, chunks: Iterable[bytes], cap_mb: int) -> None:
    """Write the whole log from what the runner kept of it; where that is nothing, what
    was followed stays. Called again, it comes to the same.

    An empty first chunk says that the runner may have lost the beginning, as it keeps
    little more than our cap: then what was followed is the head. Readers see the file
    grow: it is not made anew, and takes no more room than its content.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    with path.open("r+b", buffering=0) as file, _locked(file):
        followed = file.read(_half(cap_mb))
        stream = iter(chunks)
        first = next(stream, b"")
        begin = _at_least(stream, first, len(followed))
        log = BoundedLog(cap_mb)
        is_whole = bool(first) and followed[:_PROBE] == begin[: len(followed)][:_PROBE]
        if not begin or (is_whole and followed.startswith(begin)):
            return
        if not is_whole:
            begin = _join(log, followed, begin)
        for chunk in itertools.chain([begin], stream):
            log.write(chunk)
        file.seek(0)
        _write(file, log.content())
        file.truncate()


def _at_least(stream: Iterator[bytes], first: bytes, size: int) -> bytes:
    got = bytearray(first)
    while len(got) <= size:
        chunk = next(stream, None)
        if chunk is None:
            break
        got += chunk
    return bytes(got)


def _join(log: BoundedLog, followed: bytes, begin: bytes) -> bytes:
    """Write what was followed, and return what comes after that of the stream."""
    log.write(followed)
    shared = _overlap(followed, begin)
    if not shared:
        log.mark("some bytes may be lost here")
    return begin[shared:]


def _overlap(followed: bytes, begin: bytes) -> int:
    """How many bytes at the end of the one are those at the start of the other; 0 if
    that can not be told, as of a program that says the same again and again."""
    probe = begin[:_PROBE]
    at = followed.find(probe)
    if at >= 0:
        size = len(followed) - at
        is_sure = followed.find(probe, at + 1) < 0 and begin.startswith(followed[at:])
        return size if is_sure else 0
    sizes = range(min(len(followed), len(probe)), _LEAST_OVERLAP - 1, -1)
    return next((size for size in sizes if followed.endswith(probe[:size])), 0)
