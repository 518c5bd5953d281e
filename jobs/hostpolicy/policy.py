"""What a host lets any container have, and what of that a site does."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Any

DOCKER_HUB = "docker.io"
# Public registries by name: nothing that a pull from inside a lab could be turned at.
PUBLIC = (f"{DOCKER_HUB}/*", "nvcr.io/*", "ghcr.io/*", "quay.io/*")
# None of them leads out of a container that has no more than these.
# With the bits of linux/capability.h.
CAPABILITIES = {
    "CHOWN": 0,
    "DAC_OVERRIDE": 1,
    "FOWNER": 3,
    "FSETID": 4,
    "KILL": 5,
    "SETGID": 6,
    "SETUID": 7,
    "NET_BIND_SERVICE": 10,
    "IPC_LOCK": 14,
    "SYS_NICE": 23,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A folder of the host that jobs mount by a name of the operator's."""

    name: str
    path: PurePosixPath
    is_writable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPolicy:
    """Sizes are MiB, durations seconds; a limit of None is none."""

    # Patterns of registry/repository, such as docker.io/pytorch/*.
    images: tuple[str, ...] = PUBLIC
    # An image must be among these as well: those that the site narrowed it to.
    also_images: tuple[str, ...] = ("*",)
    # Folders that volumes may lie under.
    read_only: tuple[PurePosixPath, ...] = ()
    writable: tuple[PurePosixPath, ...] = ()
    volumes: tuple[Declared, ...] = ()
    networks: tuple[str, ...] = ("none", "bridge")
    allow_root: bool = False
    min_uid: int = 1000
    min_gid: int = 100
    # Those that every container here has.
    capabilities: tuple[str, ...] = ()
    gpu_count: int | None = None
    cpus: float | None = None
    memory_mb: int | None = None
    shm_mb: int | None = None
    timeout_s: int | None = None

    @property
    def roots(self) -> tuple[PurePosixPath, ...]:
        return self.read_only + self.writable

    def refusal_of_image(self, image: str) -> str:
        name = repository(image)
        lists = (self.images, self.also_images)
        refusing = [each for each in lists if not _matches(name, each)]
        if not refusing:
            return ""
        allowed = ", ".join(refusing[0]) or "none"
        return f"{name} is not among the images that may run here. Allowed: {allowed}."

    def declared(self, source: str) -> Declared | None:
        """Of a volume's source that is a name: what it stands for."""
        return next((each for each in self.volumes if each.name == source), None)

    def roots_for(self, mode: str) -> tuple[PurePosixPath, ...]:
        return self.writable if mode == "rw" else self.roots

    def refusal_of_volume(self, source: str, mode: str) -> str:
        """Of a path as it is written, or a name; links are the node's to follow."""
        if not source.startswith("/"):
            return self._refusal_of_name(source, mode)
        roots = self.roots_for(mode)
        path = PurePosixPath(source)
        if any(path.is_relative_to(root) for root in roots):
            return ""
        allowed = (
            f"Allowed are paths under {', '.join(map(str, roots))}."
            if roots
            else f"The operator of this site allows {_none_of(mode)}."
        )
        return f"{source} may not be mounted{_how(mode)}. {allowed}"

    def _refusal_of_name(self, name: str, mode: str) -> str:
        volume = self.declared(name)
        if volume is None:
            there = ", ".join(each.name for each in self.volumes) or "none"
            return f"There is no volume {name} here. There are: {there}."
        if mode == "rw" and not volume.is_writable:
            return f"The volume {name} is read-only: write {name} without rw."
        return ""

    def refusal_of_user(self, uid: int, gid: int) -> str:
        if uid == 0 or gid == 0:
            return "" if self.allow_root else "No job may run as root here."
        if uid < self.min_uid or gid < self.min_gid:
            least = f"{self.min_uid}:{self.min_gid}"
            return f"No job may run as {uid}:{gid} here: from {least} on."
        return ""

    def refusal_of_network(self, network: str) -> str:
        if network in self.networks:
            return ""
        allowed = ", ".join(self.networks) or "none at all"
        return f"Network {network} may not be used here. Allowed: {allowed}."

    def refusal_of_size(self, name: str, asked: float | None) -> str:
        most = getattr(self, name)
        if asked is None or most is None or asked <= most:
            return ""
        return f"At most {most:,} here."


LIMITS = ("gpu_count", "cpus", "memory_mb", "shm_mb", "timeout_s")


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _none_of(mode: str) -> str:
    return "no volume to be written to" if mode == "rw" else "none"


def _how(mode: str) -> str:
    return " to be written to" if mode == "rw" else ""


def repository(image: str) -> str:
    """Registry and repository of an image, as Docker completes a short name."""
    name = image.partition("@")[0]
    head, slash, rest = name.partition("/")
    if not slash or not (set(head) & set(".:") or head == "localhost"):
        head, rest = DOCKER_HUB, name if slash else f"library/{name}"
    path, colon, _ = rest.rpartition(":")
    return f"{head}/{path if colon else rest}"


def narrowed(policy: HostPolicy, more: dict[str, Any]) -> HostPolicy:
    """What both the host and `more` (see `said`) allow: never more than the host."""
    # Two patterns have no simple pattern that is both: an image is to be in each list.
    also = more.get("images", policy.also_images)
    rules = {
        name: _NARROW[name](getattr(policy, name), value)
        for name, value in more.items()
        if name != "images"
    }
    return replace(policy, also_images=also, **rules)


def _both(ours: tuple[str, ...], theirs: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(each for each in ours if each in theirs)


def _under_both(
    ours: tuple[PurePosixPath, ...], theirs: tuple[PurePosixPath, ...]
) -> tuple[PurePosixPath, ...]:
    """Of two roots of which one holds the other, the inner one."""
    pairs = [(a, b) for a in ours for b in theirs]
    inner = [a if a.is_relative_to(b) else b for a, b in pairs if _nested(a, b)]
    return tuple(dict.fromkeys(inner))


def _nested(a: PurePosixPath, b: PurePosixPath) -> bool:
    return a.is_relative_to(b) or b.is_relative_to(a)


def _same_names(
    ours: tuple[Declared, ...], theirs: tuple[Declared, ...]
) -> tuple[Declared, ...]:
    """Those that both name, where the host says, and writable if both let it be."""
    writable = {each.name: each.is_writable for each in theirs}
    return tuple(
        replace(each, is_writable=each.is_writable and writable[each.name])
        for each in ours
        if each.name in writable
    )


def _least(ours: float | None, theirs: float) -> float:
    return theirs if ours is None else min(ours, theirs)


def _each(ours: bool, theirs: bool) -> bool:
    return ours and theirs


_NARROW: dict[str, Callable[[Any, Any], Any]] = {
    **dict.fromkeys(("networks", "capabilities"), _both),
    **dict.fromkeys(("read_only", "writable"), _under_both),
    "volumes": _same_names,
    **dict.fromkeys(("min_uid", "min_gid"), max),
    **dict.fromkeys(LIMITS, _least),
    "allow_root": _each,
}
