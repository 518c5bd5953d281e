"""What Docker keeps of a log, and what of it comes whole and once.

Of the driver `local`, measured with 20.10: what it has is read exactly, but who follows
it across a rotation gets lines twice, or not at all; and of a line that it took in parts
it loses the end.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import Any

FILES = 4
# Around each entry, and for each byte of it, at most.
PER_ENTRY, PER_BYTE = 28, 1.01
# A longer line is taken in parts.
PART = 16384
# An entry's stream, and its length.
_HEADER = struct.Struct(">BxxxL")
_UNITS = {"k": 1000, "m": 1_000_000, "g": 1_000_000_000}


def log_config(cap_mb: int) -> dict[str, str]:
    """Twice our cap, in files: with ours, which is at most the cap, that is thrice. A
    log up to the cap is whole if its lines have 27 bytes in the mean."""
    size = f"{2 * 1000 * cap_mb // FILES}k"
    return {"max-size": size, "max-file": str(FILES), "compress": "false"}


def _rotation(host_config: dict[str, Any]) -> tuple[int, int]:
    """The bytes of a file, and how many files there are."""
    config = host_config["LogConfig"]["Config"]
    size = config["max-size"]
    return int(size[:-1]) * _UNITS[size[-1]], int(config["max-file"])


def _stored(entry: bytes) -> int:
    return int(len(entry) * PER_BYTE) + PER_ENTRY


def followed(entries: Iterable[bytes], host_config: dict[str, Any]) -> Iterator[bytes]:
    """Up to the first rotation; an empty chunk says that there is more."""
    room, _ = _rotation(host_config)
    for entry in _ended(entries):
        room -= _stored(entry)
        if room < 0:
            yield b""
            return
        yield entry


def kept(body: bytes, host_config: dict[str, Any]) -> Iterator[bytes]:
    """All that there is, after an empty chunk if a file may have gone: with all but
    one full there was one rotation less than files, or more."""
    size, files = _rotation(host_config)
    entries = list(_ended(_entries(body)))
    if sum(map(_stored, entries)) > size * (files - 1):
        yield b""
    yield b"".join(entries)


def _entries(body: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(body):
        _, length = _HEADER.unpack_from(body, at)
        at += _HEADER.size + length
        yield body[at - length : at]


def _ended(entries: Iterable[bytes]) -> Iterator[bytes]:
    """Put back the end of a line that was taken in parts: the last of them is less than
    a full one, and nothing of its line comes after it."""
    is_begun = is_lost = False
    for entry in entries:
        yield b"\n" + entry if is_lost else entry
        is_last = len(entry) != PART
        is_lost = is_begun and is_last and not entry.endswith(b"\n")
        is_begun = not is_last
