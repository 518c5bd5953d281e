"""The anchor: a file outside the database with a line for each sealing.

A line is `NUMBER HASH TIME CHECK`: the last seal of the sealing as its row has it, and a
digest of the line with the check of the line before. So it follows from rows and the
lines before it, and one that a crash kept from being written can be written later.
"""

import fcntl
import os
import syslog
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import Path

from django.conf import settings

NAME = "audit.anchor"
START = "-"
# No line is longer, by far.
MOST_BYTES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What the file says of one sealing; `is_intact` unless its check is another."""

    position: int
    number: int
    hash: str
    at: str
    check: str
    is_intact: bool = True


def path() -> Path:
    return Path(settings.DATA_ROOT, NAME)


@contextmanager
def held() -> Iterator[int | None]:
    """The file to append to, for the one sealer of the moment; None for any other. The
    kernel frees the lock of a dead one."""
    fd = os.open(path(), os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
            return
        yield fd if _is_still_there(fd) else None
    finally:
        os.close(fd)


def _is_still_there(fd: int) -> bool:
    """Whether it was not put aside before we had the lock."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(fd), path().stat())
    return False


def put_aside(at: datetime) -> str:
    """Give the file another name, while no sealing is under way; "" if there is none."""
    aside = path().with_name(f"{NAME}.{at:%Y%m%dT%H%M%S%f}")
    with still() as size:
        if size == 0:
            return ""
        path().rename(aside)
    return aside.name


@contextmanager
def still() -> Iterator[int]:
    """The size of the file while no sealing is under way; 0 if there is none."""
    try:
        fd = os.open(path(), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield 0
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_SH)
        yield os.fstat(fd).st_size
    finally:
        os.close(fd)


def text_of(number: int, hash_: str, at: str, before: str) -> str:
    said = f"{number} {hash_} {at}"
    return f"{said} {_check(before, said)}\n"


def _check(before: str, said: str) -> str:
    return sha256(f"{before} {said}".encode()).hexdigest()[:32]


def end_of(fd: int) -> tuple[Line | None, bytes]:
    """The last whole line, and what was written of one that never became whole."""
    size = os.fstat(fd).st_size
    tail = os.pread(fd, 2 * MOST_BYTES, max(0, size - 2 * MOST_BYTES))
    whole, newline, torn = tail.rpartition(b"\n")
    if not newline:
        return None, tail
    last = whole.rpartition(b"\n")[2]
    return _parsed(0, last, None), torn


def append(fd: int, text: str, *, torn: bytes = b"") -> None:
    """Make the line whole and durable, and tell the system's log of it."""
    encoded = text.encode()
    if torn:
        encoded = (
            encoded.removeprefix(torn) if encoded.startswith(torn) else b"\n" + encoded
        )
    while encoded:
        encoded = encoded[os.write(fd, encoded) :]
    os.fsync(fd)
    # It does nothing where there is no such log.
    syslog.openlog("gpujobs-audit", 0, syslog.LOG_AUTHPRIV)
    syslog.syslog(syslog.LOG_NOTICE, text.strip())


def lines(size: int, last_bytes: int | None = None) -> Iterator[Line]:
    """The lines of the first `size` bytes; only the last of them, if so many bytes are
    enough. What is no line has the number -1."""
    if size == 0:
        return
    start = 0 if last_bytes is None else max(0, size - last_bytes)
    with path().open("rb") as file:
        file.seek(start)
        left = size - start
        before: str | None = None if start else START
        if start:
            left -= len(file.readline())
        position = 0
        while left > 0 and (raw := file.readline(left)):
            left -= len(raw)
            position += 1
            line = _parsed(position, raw.removesuffix(b"\n"), before)
            if not raw.endswith(b"\n"):
                line = Line(
                    position=position,
                    number=-1,
                    hash="",
                    at="",
                    check="",
                    is_intact=False,
                )
            yield line
            before = line.check


def _parsed(position: int, raw: bytes, before: str | None) -> Line:
    """`before` is the check of the line before; None if it is not known."""
    said, _, check = raw.decode(errors="replace").rpartition(" ")
    words = said.split(" ")
    if len(words) != 3 or not (words[0].isascii() and words[0].isdigit()):
        return Line(
            position=position, number=-1, hash="", at="", check=check, is_intact=False
        )
    return Line(
        position=position,
        number=int(words[0][:18]),
        hash=words[1],
        at=words[2],
        check=check,
        is_intact=before is None or check == _check(before, said),
    )
