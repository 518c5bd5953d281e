"""Mounting what was looked at: a path may be swapped for a link at any moment, and an
open file can not. Linux alone; needs CAP_SYS_ADMIN.
"""

import ctypes
import errno
import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path, PurePath

_libc = ctypes.CDLL(None, use_errno=True)
# Of linux/mount.h, linux/openat2.h; the number is the same on x86-64 and ARM.
_OPENAT2 = 437
_RESOLVE_NO_MAGICLINKS, _RESOLVE_NO_SYMLINKS = 0x02, 0x04
_RESOLVE_BENEATH, _RESOLVE_IN_ROOT = 0x08, 0x10
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_REMOUNT = 1, 2, 4, 32
_MS_BIND, _MS_REC = 4096, 16384
_MNT_DETACH, _UMOUNT_NOFOLLOW = 2, 8

# The device and the inode: which file or folder it is, whatever its name.
Identity = tuple[int, int]


class NotAllowed(Exception):
    """It is not, or not any more, what may be mounted; says what it is."""


class _How(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


def pin(source: str, roots: Iterable[PurePath]) -> int:
    """Open a file or folder under one of the roots, and return its descriptor.

    Links are followed once, beforehand; one that comes into the way after that is
    refused. Raises NotAllowed, and FileNotFoundError if there is nothing.
    """
    try:
        fd = _open_under(source, [Path(os.path.realpath(root)) for root in roots])
    except FileNotFoundError:
        raise
    except OSError as error:
        text = f"{source} changed while it was looked at: {error.strerror}."
        raise NotAllowed(text) from error
    return _plain(fd, source)


def pin_as_it_is(path: PurePath) -> int:
    """Open the very folder or file that an absolute path names, over no link.

    Whoever may write to a folder above it could put one in its place. Raises as `pin`.
    """
    root = os.open("/", os.O_PATH | os.O_DIRECTORY)
    try:
        within = str(path.relative_to("/"))
        fd = _open(root, within, _RESOLVE_BENEATH | _RESOLVE_NO_SYMLINKS)
    except FileNotFoundError:
        raise
    except OSError as error:
        is_link = error.errno == errno.ELOOP
        why = "a link is on the way" if is_link else str(error.strerror)
        raise NotAllowed(f"{path} is not what was declared: {why}.") from error
    finally:
        os.close(root)
    return _plain(fd, str(path))


def _plain(fd: int, source: str) -> int:
    if not _is_plain(fd):
        os.close(fd)
        raise NotAllowed(f"{source} is neither a folder nor a file.")
    return fd


def _open_under(source: str, tops: list[Path]) -> int:
    # A name that is a link at one look and a folder at the next is an OSError here.
    real = Path(os.path.realpath(source))
    top = next((top for top in tops if real.is_relative_to(top)), None)
    if top is None:
        names = ", ".join(map(str, tops)) or "none"
        raise NotAllowed(
            f"{source} does not lie under an allowed root. They are: {names}."
        )
    root = os.open(top, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        within = str(real.relative_to(top))
        return _open(root, within, _RESOLVE_BENEATH | _RESOLVE_NO_SYMLINKS)
    finally:
        os.close(root)


def _is_plain(fd: int) -> bool:
    mode = os.fstat(fd).st_mode
    return stat.S_ISDIR(mode) or stat.S_ISREG(mode)


def _open(folder: int, path: str, resolve: int) -> int:
    how = _How(os.O_PATH | os.O_CLOEXEC, 0, resolve | _RESOLVE_NO_MAGICLINKS)
    name = ctypes.c_char_p(os.fsencode(path))
    fd = _libc.syscall(_OPENAT2, folder, name, ctypes.byref(how), ctypes.sizeof(how))
    if fd < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return int(fd)


def bind(fd: int, target: Path, *, read_only: bool) -> None:
    """Let what is open be seen at `target` too, which is made."""
    if stat.S_ISDIR(os.fstat(fd).st_mode):
        target.mkdir()
    else:
        target.touch()
    _mount(f"/proc/self/fd/{fd}", target, _MS_BIND | _MS_REC)
    flags = _MS_NOSUID | _MS_NODEV | (_MS_RDONLY if read_only else 0)
    _mount("", target, _MS_REMOUNT | _MS_BIND | flags)


def _mount(source: str, target: Path, flags: int) -> None:
    done = _libc.mount(
        os.fsencode(source), os.fsencode(target), None, ctypes.c_ulong(flags), None
    )
    if done != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(target))


def unbind(target: Path) -> None:
    """Twice is as once. What was seen there stays: nothing in it is removed."""
    while _libc.umount2(os.fsencode(target), _MNT_DETACH | _UMOUNT_NOFOLLOW) == 0:
        pass
    # Never with what is in it: were it mounted still, that would be somebody's data.
    with suppress(OSError):
        target.rmdir()
    with suppress(OSError):
        if target.is_file() and target.stat().st_size == 0:
            target.unlink()


def identity(path: Path) -> Identity:
    found = path.stat()
    return found.st_dev, found.st_ino


def identity_in(root: Path, path: str) -> Identity:
    """As who has `root` for his / sees it, links included."""
    top = os.open(root, os.O_PATH | os.O_DIRECTORY)
    try:
        fd = _open(top, path.lstrip("/"), _RESOLVE_IN_ROOT)
    finally:
        os.close(top)
    try:
        found = os.fstat(fd)
    finally:
        os.close(fd)
    return found.st_dev, found.st_ino
