"""What the kernel says of a container: its first process, and what that one sees."""

import os
import re
import socket
import struct
from collections.abc import Iterable
from pathlib import Path

from scheduler import mounting
from scheduler.runner.base import Mount, Rights

_GPU = re.compile(r"nvidia\d+")


def rights(pid: int, mounts: Iterable[Mount]) -> Rights | None:
    """None if the process is gone: of what has ended nothing can be told any more."""
    proc = Path(f"/proc/{pid}")
    try:
        status = _status(proc)
        devices = sorted(filter(_GPU.fullmatch, os.listdir(proc / "root/dev")))
        seen = {mount.target: _is_meant(proc / "root", mount) for mount in mounts}
        # Still there: what was read was its own.
        if not (proc / "root/dev").is_dir():
            return None
    except (FileNotFoundError, ProcessLookupError):
        return None
    return Rights(
        capabilities=int(status["CapEff"], 16),
        no_new_privileges=status["NoNewPrivs"] == "1",
        seccomp=int(status.get("Seccomp", "0")),
        user=(_effective(status["Uid"]), _effective(status["Gid"])),
        gpu_devices=tuple(devices),
        mounts=seen,
    )


def _status(proc: Path) -> dict[str, str]:
    lines = (proc / "status").read_text().splitlines()
    return {
        key: value.strip() for key, _, value in (line.partition(":") for line in lines)
    }


def _effective(ids: str) -> int:
    return int(ids.split()[1])


def _is_meant(root: Path, mount: Mount) -> bool:
    try:
        meant = mounting.identity(Path(mount.source))
        return mounting.identity_in(root, mount.target) == meant
    except FileNotFoundError:
        if root.exists():
            return False
        raise
    except OSError:
        return False


def seen_by_peer(url: str, path: Path) -> bool:
    """Whether the daemon behind a socket (or who listens for it, as systemd does) finds
    at `path` what we do. Of one that is not on this host nothing can be told."""
    scheme, _, address = url.partition("://")
    if scheme != "unix":
        return True
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        size = struct.calcsize("3i")
        told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    pid, _, _ = struct.unpack("3i", told)
    try:
        there = mounting.identity_in(Path(f"/proc/{pid}/root"), str(path))
    except FileNotFoundError:
        return False
    return there == mounting.identity(path)
