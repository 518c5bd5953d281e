"""What a host lets any container have: the ceiling, as its root-owned file tells it.

The web process asks it to be kind, the node asks it again before each start. Where there
is no file the strict values below hold.
"""

import os
import stat
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

DOCKER_HUB = "docker.io"
# Public registries by name: nothing that a pull from inside a lab could be turned at.
PUBLIC = (f"{DOCKER_HUB}/*", "nvcr.io/*", "ghcr.io/*", "quay.io/*")
# Whoever mounts these has the host.
SYSTEM = tuple(
    PurePosixPath(path)
    for path in (
        *("/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/root", "/run"),
        *(
            "/sbin",
            "/sys",
            "/usr",
            "/var/lib/containerd",
            "/var/lib/docker",
            "/var/run",
        ),
    )
)
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
LARGEST_ID = 2**32 - 2


class HostPolicyError(Exception):
    """The file can not be trusted or read; says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPolicy:
    """Sizes are MiB, durations seconds; a limit of None is none."""

    # Patterns of registry/repository, such as docker.io/pytorch/*.
    images: tuple[str, ...] = PUBLIC
    # Folders that volumes may lie under.
    read_only: tuple[PurePosixPath, ...] = ()
    writable: tuple[PurePosixPath, ...] = ()
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
        if any(fnmatchcase(name, pattern) for pattern in self.images):
            return ""
        allowed = ", ".join(self.images) or "none"
        return f"{name} is not among the images that may run here. Allowed: {allowed}."

    def refusal_of_volume(self, source: str, mode: str) -> str:
        """Of a path as it is written; links are the node's to follow."""
        roots = self.writable if mode == "rw" else self.roots
        path = PurePosixPath(source)
        if any(path.is_relative_to(root) for root in roots):
            return ""
        allowed = (
            f"Allowed are paths under {', '.join(map(str, roots))}."
            if roots
            else f"The operator of this site allows {_none_of(mode)}."
        )
        return f"{source} may not be mounted{_how(mode)}. {allowed}"

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


# --- The file ------------------------------------------------------------------------


def host_policy(path: Path) -> HostPolicy:
    """As the file says at this moment; the strict values where there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return HostPolicy()
    except OSError as error:
        raise HostPolicyError(f"{path} can not be read: {error.strerror}.") from error
    _check_owner(path, found)
    return _read(path, found.st_mtime_ns, found.st_ino)


def _check_owner(path: Path, found: os.stat_result) -> None:
    """Who may write it may become root here: root alone, or whom a trial runs as."""
    if found.st_uid not in (0, os.geteuid()) or found.st_mode & (
        stat.S_IWGRP | stat.S_IWOTH
    ):
        text = f"{path} must be root's and nobody else may write it: chown root, chmod 644."
        raise HostPolicyError(text)


@lru_cache(maxsize=8)
def _read(path: Path, modified_ns: int, inode: int) -> HostPolicy:
    try:
        return parse(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise HostPolicyError(f"{path} can not be read: {error}.") from error
    except HostPolicyError as error:
        raise HostPolicyError(f"{path}: {error}") from None


def parse(text: str) -> HostPolicy:
    """Of the file's text. Nothing in it is ignored: a mistyped name is an error."""
    try:
        told = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise HostPolicyError(f"this is no TOML: {error}.") from None
    known = {field.name for field in fields(HostPolicy)}
    if unknown := sorted(told.keys() - known):
        names = ", ".join(sorted(known))
        raise HostPolicyError(f"there is no {unknown[0]}. There are: {names}.")
    return HostPolicy(**{name: _READ[name](name, told[name]) for name in told})


def _texts(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(v, str) and v for v in value):
        raise HostPolicyError(f"{name} is a list of texts.")
    return tuple(value)


def _roots(name: str, value: Any) -> tuple[PurePosixPath, ...]:
    return tuple(_root(name, text) for text in _texts(name, value))


def _root(name: str, text: str) -> PurePosixPath:
    path = PurePosixPath(text)
    if not path.is_absolute() or ".." in path.parts or "\0" in text:
        raise HostPolicyError(f"{name}: {text} is no absolute path.")
    if any(path.is_relative_to(s) or s.is_relative_to(path) for s in SYSTEM):
        raise HostPolicyError(
            f"{name}: {text} holds the system's own files, or is one of its folders. "
            "Declare the folders that hold data."
        )
    return path


def _capabilities(name: str, value: Any) -> tuple[str, ...]:
    asked = _texts(name, value)
    if more := sorted(set(asked) - CAPABILITIES.keys()):
        allowed = ", ".join(sorted(CAPABILITIES))
        raise HostPolicyError(f"{name}: {more[0]} is not one of {allowed}.")
    return asked


def _networks(name: str, value: Any) -> tuple[str, ...]:
    asked = _texts(name, value)
    for network in asked:
        if network == "host" or ":" in network:
            raise HostPolicyError(
                f"{name}: {network} would let a job be the host to its network."
            )
    return asked


def _yes_or_no(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise HostPolicyError(f"{name} is true or false.")
    return value


def _id(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise HostPolicyError(f"{name} is a number from 1 on.")
    return min(value, LARGEST_ID)


def _size(name: str, value: Any) -> Any:
    kinds = (int, float) if name == "cpus" else int
    if not isinstance(value, kinds) or isinstance(value, bool) or not value >= 0:
        raise HostPolicyError(f"{name} is a number, 0 or more.")
    return value


_READ: dict[str, Callable[[str, Any], Any]] = {
    "images": _texts,
    "read_only": _roots,
    "writable": _roots,
    "networks": _networks,
    "allow_root": _yes_or_no,
    "min_uid": _id,
    "min_gid": _id,
    "capabilities": _capabilities,
    **dict.fromkeys(LIMITS, _size),
}
