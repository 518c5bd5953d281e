"""The host's root-owned file: read anew when it changes, and believed only if nobody
else may write it."""

import os
import re
import stat
import tomllib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

from jobs.hostpolicy.policy import CAPABILITIES, LIMITS, Declared, HostPolicy

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
LARGEST_ID = 2**32 - 2
VOLUME_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


class HostPolicyError(Exception):
    """The file can not be trusted or read; says what to do."""


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
    """Of the file's text."""
    return HostPolicy(**said(text))


def said(text: str) -> dict[str, Any]:
    """What a text says, by name. Nothing in it is ignored: a mistyped name is an
    error."""
    try:
        told = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise HostPolicyError(f"this is no TOML: {error}.") from None
    known = _READ.keys()
    if unknown := sorted(told.keys() - known):
        names = ", ".join(sorted(known))
        raise HostPolicyError(f"there is no {unknown[0]}. There are: {names}.")
    return {name: _READ[name](name, told[name]) for name in told}


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


def _volumes(name: str, value: Any) -> tuple[Declared, ...]:
    if not isinstance(value, dict):
        raise HostPolicyError(f'{name} is a table: datasets = "/srv/datasets".')
    return tuple(_declared(key, told) for key, told in value.items())


def _declared(name: str, told: Any) -> Declared:
    if not VOLUME_NAME.fullmatch(name):
        raise HostPolicyError(
            f"volumes: {name!r} is no name: use 1 to 63 small letters, digits, _ and -."
        )
    if isinstance(told, str):
        told = {"path": told}
    if not isinstance(told, dict) or not {"path"} <= told.keys() <= {
        "path",
        "writable",
    }:
        raise HostPolicyError(
            f'volumes: write {name} = "/path", or {{path = "/path", writable = true}}.'
        )
    path = _root("volumes", *_texts("volumes", [told["path"]]))
    writable = _yes_or_no("volumes", told.get("writable", False))
    return Declared(name=name, path=path, is_writable=writable)


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
    "volumes": _volumes,
    "networks": _networks,
    "allow_root": _yes_or_no,
    "min_uid": _id,
    "min_gid": _id,
    "capabilities": _capabilities,
    **dict.fromkeys(LIMITS, _size),
}
