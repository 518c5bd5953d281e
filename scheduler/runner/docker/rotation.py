"""What Docker keeps of a log, and what of it comes whole and once.

Of the driver `local`, measured with 20.10: what it has is read exactly, but who follows
it across a rotation gets lines twice, or not at all.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from docker.types import LogConfig

FILES = 4
# Around each line, and for each byte of it, at most.
PER_LINE, PER_BYTE = 28, 1.01
# As the driver's units, and its default.
_UNITS = {"k": 1000, "m": 1_000_000, "g": 1_000_000_000}
_DEFAULT = ("20m", "5")


def log_config(cap_mb: int) -> LogConfig:
    """Twice our cap, in files: with ours, which is at most the cap, that is thrice. A
    log up to the cap is whole if its lines have 27 bytes in the mean."""
    size = f"{2 * 1000 * cap_mb // FILES}k"
    config = {"max-size": size, "max-file": str(FILES), "compress": "false"}
    return LogConfig(type="local", config=config)


def _rotation(host_config: dict[str, Any]) -> tuple[int, int]:
    """The bytes of a file, and how many files there are."""
    config = host_config["LogConfig"].get("Config") or {}
    size = config.get("max-size", _DEFAULT[0]).lower()
    number, unit = re.findall(r"[0-9.]+|[a-z]", size)[:2]
    files = int(config.get("max-file", _DEFAULT[1]))
    return int(float(number) * _UNITS[unit]), files


def _stored(data: bytes) -> int:
    return int(len(data) * PER_BYTE) + PER_LINE * max(1, data.count(b"\n"))


def followed(
    entries: Iterable[bytes], host_config: dict[str, Any]
) -> Iterator[bytes]:
    """Up to the first rotation; an empty chunk says that there is more."""
    room, _ = _rotation(host_config)
    for entry in entries:
        room -= _stored(entry)
        if room < 0:
            yield b""
            return
        yield entry


def kept(data: bytes, host_config: dict[str, Any]) -> Iterator[bytes]:
    """All that there is, after an empty chunk if a file may have gone: with all but
    one full there was one rotation less than files, or more."""
    size, files = _rotation(host_config)
    if _stored(data) > size * (files - 1):
        yield b""
    yield data
