"""Processes of containers that Docker has forgotten: which are ours, and to be ended.

A daemon that is killed during a start leaves the container's shim and its first process
behind, and after a removal it knows nothing of them. Pure.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from pathlib import PurePosixPath

from scheduler.runner.base import Observation, Stray

# What each of our containers mounts from its folder under the work folder.
OWN_FOLDERS = {"artifacts", "scratch"}


@dataclass(frozen=True, slots=True, kw_only=True)
class OurStray:
    """`name` is that of its container, and so of its attempt."""

    stray: Stray
    name: str


def ours(
    strays: Iterable[Stray], *, work: PurePosixPath, names: Mapping[str, str]
) -> list[OurStray]:
    """Those that were ours for sure; whatever else a host runs is nobody's to touch.

    `names` are container names by the ids that we know to be ours. Other ids are known
    by their mounts: who may mount a folder under `work` is root, and so are we alone.
    """
    found = []
    for stray in strays:
        name = names.get(stray.container_id) or _mounted(stray, work)
        if name:
            found.append(OurStray(stray=stray, name=name))
    return found


def _mounted(stray: Stray, work: PurePosixPath) -> str:
    """The name whose two own folders are mounted, or nothing."""
    folders: dict[str, set[str]] = {}
    for source in map(PurePosixPath, stray.mounts):
        if source.parent.parent == work:
            folders.setdefault(source.parent.name, set()).add(source.name)
    complete = [name for name, own in folders.items() if own >= OWN_FOLDERS]
    return complete[0] if len(complete) == 1 else ""


def to_end(
    found: Iterable[OurStray],
    *,
    before: Set[str],
    live: Set[str],
    containers: Iterable[Observation],
) -> list[OurStray]:
    """Those that the look before had too (`before`: container ids), so that nothing is
    ended which is only on its way out.

    `live` are names of live attempts. What such a name means is Docker's to say: only
    where it names another container is this one nobody's. Until then the attempt is
    ended, or launched, by others.
    """
    named = {each.name: each.container_id for each in containers}
    return [
        each
        for each in found
        if each.stray.container_id in before
        and named.get(each.name) != each.stray.container_id
        and (each.name not in live or each.name in named)
    ]
