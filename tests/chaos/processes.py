"""Who is whose child, and which part of the cluster it is: read from /proc."""

import os
from contextlib import suppress
from pathlib import Path

LOCKS = "/locks/"
# As in Q_CLUSTER of the settings, which can not be read here; a test compares.
WORKERS = 4
AT_BIRTH = (*["worker"] * WORKERS, "monitor", "pusher")


def _stat(pid: str) -> tuple[int, int, str] | None:
    """Its parent, when it was born, and its state; None if it is gone."""
    with suppress(OSError):
        # The name before the last bracket may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[1]), int(fields[19]), fields[0]
    return None


def children(parent: int) -> list[int]:
    """Living ones, the oldest first."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        stat = _stat(pid)
        if stat and stat[0] == parent and stat[2] != "Z":
            found.append((stat[1], int(pid)))
    return [pid for _, pid in sorted(found)]


def descendants(parent: int) -> list[int]:
    """Parents before their children."""
    found = children(parent)
    for child in list(found):
        found += descendants(child)
    return found


def held_locks(pid: int) -> set[str]:
    """Names of the locks of attempts that it has open."""
    names = set()
    with suppress(OSError):
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                target = os.readlink(fd)
                if LOCKS in target:
                    names.add(target.rpartition("/")[2])
    return names


class Cluster:
    """The tree below one `manage.py cluster`: watchdog, qcluster, sentinel, the rest.

    Nothing but the order of birth tells the sentinel's children apart, so that who
    takes whose place is kept in mind.
    """

    def __init__(self) -> None:
        self._sentinel = 0
        self._parts: dict[int, str] = {}

    def parts(self, watchdog: int) -> dict[str, list[int]]:
        """The pids of each part that lives now."""
        found: dict[str, list[int]] = {"watchdog": [watchdog]}
        for name, parent in (("qcluster", watchdog), ("sentinel", None)):
            parent = parent or found["qcluster"][0]
            below = children(parent)
            if not below:
                return found
            found[name] = below[:1]
        for pid, part in self._below(found["sentinel"][0]).items():
            found.setdefault(part, []).append(pid)
        return found

    def _below(self, sentinel: int) -> dict[int, str]:
        if sentinel != self._sentinel:
            self._sentinel, self._parts = sentinel, {}
        living = children(sentinel)
        self._parts = {p: part for p, part in self._parts.items() if p in living}
        missing = list(AT_BIRTH)
        for part in self._parts.values():
            missing.remove(part)
        for pid in living:
            if pid not in self._parts and missing:
                self._parts[pid] = missing.pop(0)
        return self._parts
