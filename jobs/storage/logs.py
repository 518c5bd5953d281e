"""Bounded logs: head and tail are kept, and the cut is marked."""

import itertools
import os
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from django.conf import settings

from jobs.models import Attempt, Job

_MIB = 1024 * 1024


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
    """A log file of at most `cap_mb`: its head as it comes, its tail at the close.

    What lies between is left out, and the cut is marked. `resume` goes on with a file
    for which the same stream is read again from its start.
    """

    def __init__(self, path: Path, cap_mb: int, *, resume: bool = False) -> None:
        self._half = cap_mb * _MIB // 2
        self._file = path.open("ab" if resume else "wb", buffering=0)
        self._head = self._skip = self._file.tell()
        self._tail: deque[bytes] = deque()
        self._tail_size = self._left_out = 0

    def __enter__(self) -> "BoundedLog":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def write(self, chunk: bytes) -> None:
        chunk, self._skip = chunk[self._skip :], max(0, self._skip - len(chunk))
        room = max(0, self._half - self._head)
        self._head += self._file.write(chunk[:room])
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

    def finish(self) -> None:
        """Write the tail; nothing may be written after."""
        if self._left_out:
            self.mark(f"{self._left_out} bytes are left out here")
        for chunk in self._tail:
            self._file.write(chunk)

    def mark(self, text: str) -> None:
        self._file.write(f"\n[gpujobs: {text}]\n".encode())


def complete_log(path: Path, chunks: Iterable[bytes], cap_mb: int) -> None:
    """Write the whole log from what the runner kept of it.

    Where the runner has lost the beginning (it rotates far above our cap), what was
    followed while the job ran is the head.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    followed = path.read_bytes()[: cap_mb * _MIB // 2] if path.exists() else b""
    stream = iter(chunks)
    first = _at_least(stream, min(len(followed), 65536))
    part = path.with_suffix(".part")
    with BoundedLog(part, cap_mb) as log:
        compared = min(len(first), len(followed))
        if not first or first[:compared] != followed[:compared]:
            log.write(followed)
            if first:
                log.mark("some bytes are lost here")
        for chunk in itertools.chain([first], stream):
            log.write(chunk)
        log.finish()
    part.replace(path)


def _at_least(stream: Iterator[bytes], size: int) -> bytes:
    got = bytearray()
    for chunk in stream:
        got += chunk
        if len(got) >= size:
            break
    return bytes(got)
