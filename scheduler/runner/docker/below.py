"""Below Docker: what runs for containers, by /proc alone.

A daemon that is killed during a start forgets what it has begun; the container's shim
and its first process stay.
"""

import contextlib
import json
import os
import re
import signal
from itertools import pairwise
from pathlib import Path

from scheduler.runner.base import Stray
from scheduler.runner.birth import born

PROC = Path("/proc")
# Docker's own namespace in containerd: others are other people's.
NAMESPACE = "moby"
_ID = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
# What containerd calls to start a shim, and to tidy up after one, soon ends by itself.
_SHORT_LIVED = {"start", "delete"}
_UIDS = re.compile(r"^Uid:\t0\t0\t0\t0$", re.MULTILINE)


def look() -> list[Stray]:
    """Everything that runs here for a container, whoever's it is and known or not."""
    processes: dict[str, list[tuple[int, str]]] = {}
    mounts: dict[str, tuple[str, ...]] = {}
    for folder in PROC.glob("[0-9]*"):
        shim = _shim(folder)
        container_id = shim or in_cgroup(_read(folder / "cgroup"))
        birth = born(int(folder.name)) if container_id else ""
        if birth:
            processes.setdefault(container_id, []).append((int(folder.name), birth))
        if shim:
            mounts[shim] = _mounts(folder)
    return [
        Stray(container_id=id_, processes=tuple(found), mounts=mounts.get(id_, ()))
        for id_, found in processes.items()
    ]


def end(stray: Stray) -> None:
    """The youngest first: the shim, which started the others and is what tells that
    they are ours, goes last."""
    for pid, birth in sorted(stray.processes, key=_age, reverse=True):
        if born(pid) == birth:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _age(process: tuple[int, str]) -> int:
    """A birth begins with the clock's ticks at it."""
    return int(process[1].partition("@")[0])


def in_cgroup(text: str) -> str:
    """The container of a process by its cgroups, of version 1 or 2, with cgroupfs
    (/docker/ID) or systemd (docker-ID.scope); the innermost one, or nothing."""
    found = _ID.findall(text)
    return found[-1] if found else ""


def of_shim(words: list[str]) -> str:
    """The container of Docker's that a command line is the shim of, or nothing."""
    program = words[0].rpartition("/")[2] if words else ""
    if not program.startswith("containerd-shim") or _SHORT_LIVED & {*words}:
        return ""
    options = dict(pairwise(words[1:]))
    found = options.get("-id", "")
    is_dockers = options.get("-namespace") == NAMESPACE
    return found if is_dockers and _ID.fullmatch(found) else ""


def _shim(folder: Path) -> str:
    """Anybody may call a process a shim; only root's own, outside of containers, is
    believed, or a forged one could have other people's containers ended."""
    container_id = of_shim(_read(folder / "cmdline").split("\0"))
    if not container_id or not _UIDS.search(_read(folder / "status")):
        return ""
    return container_id if _in_our_pid_namespace(folder) else ""


def _in_our_pid_namespace(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        return (folder / "ns/pid").readlink() == (PROC / "self/ns/pid").readlink()
    return False


def _mounts(folder: Path) -> tuple[str, ...]:
    """A shim works in its bundle, whose config.json says what is mounted."""
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
        config = json.loads((folder / "cwd/config.json").read_text())
        return tuple(str(m["source"]) for m in config["mounts"] if "source" in m)
    return ()


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode(errors="replace")
    except OSError:
        return ""
