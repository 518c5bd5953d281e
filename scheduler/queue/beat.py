"""What the processes of a cluster tell the watchdog: a byte for each step of a task.

By a pipe, as no database is needed to write to it, and its reader never waits for a
lock that a killed process holds.
"""

import os
from contextlib import suppress

from scheduler.runner.birth import born

CLAIMED, BEGUN, ENDED = b"c", b"b", b"e"

_fd: int | None = None
_cluster_id = ""


def attach(fd: int | None) -> None:
    """Of the process that all others of the cluster are forked from."""
    global _fd, _cluster_id
    _fd, _cluster_id = fd, identity(os.getpid())


def identity(pid: int) -> str:
    """Names a process for ever: a pid is used again, with its time of birth it is not."""
    return f"{pid}/{born(pid)}"


def lives(identity_: str) -> bool:
    pid, _, birth = identity_.partition("/")
    return bool(birth) and born(int(pid)) == birth


def cluster_id() -> str:
    return _cluster_id or identity(os.getpid())


def tell(step: bytes) -> None:
    """Never waits and never fails: a watchdog that does not read is not our trouble."""
    if _fd is not None:
        with suppress(OSError):
            os.write(_fd, step)
