"""Whose a process of this host is and what it is called, by /proc.

Never its command line: that may hold secrets. A process that has ended, one of
another pid namespace, a /proc that hides it: then what is not known is empty.
"""

import functools
import pwd
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
MOST_LETTERS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """Who runs a process, and what it is called; empty where that can not be told."""

    user: str = ""
    process: str = ""


def look_up(pid: int, proc: Path = PROC) -> Person:
    folder = proc / str(pid)
    return Person(user=_user(folder), process=_name(folder))


def _user(folder: Path) -> str:
    for line in _read(folder / "status").splitlines():
        field, _, value = line.partition(b":")
        # The first of its four is who started it, whatever rights it took since.
        if field == b"Uid" and value.split():
            return _user_name(int(value.split()[0]))
    return ""


def _user_name(uid: int) -> str:
    try:
        return _known_name(uid)
    except KeyError:
        return str(uid)


@functools.lru_cache(maxsize=1024)
def _known_name(uid: int) -> str:
    """It may be a directory server that is asked."""
    return pwd.getpwuid(uid).pw_name


def _name(folder: Path) -> str:
    name = _clean(_read(folder / "comm"))
    if name:
        return name
    # Of the first word only the end: a program may write what it likes there.
    words = _read(folder / "cmdline").split(b"\0")[0].split()
    return _clean(words[0].rpartition(b"/")[2]) if words else ""


def _clean(raw: bytes) -> str:
    text = raw.decode(errors="replace").strip()
    printable = "".join(
        c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text
    )
    return printable[:MOST_LETTERS]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
