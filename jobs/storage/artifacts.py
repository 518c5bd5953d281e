"""Artifacts are taken in: regular files only, under names of our making."""

import hashlib
import mimetypes
import os
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from django.conf import settings

from jobs.exceptions import GpuJobsError
from jobs.failpoints import failpoint
from jobs.models import Artifact, Attempt

MAX_FILES = 10_000
MAX_DEPTH = 32
BATCH = 500
_MIB = 1024 * 1024


class ArtifactCap(GpuJobsError):
    """The job left more files, deeper folders or more bytes than are taken in."""


def take_in(folder: Path, attempt: Attempt, *, within_s: float) -> bool:
    """Move the regular files under `folder` to the store and register each.

    Called after the container is gone. No link is followed, nothing is unpacked. Rows
    are written before their files move, so that a second call finishes what a first
    one began. False if `within_s` was over before all were hashed: call again.
    Raises ArtifactCap.
    """
    until = time.monotonic() + within_s
    store = settings.DATA_ROOT / "artifacts" / str(attempt.job_id) / str(attempt.number)
    store.mkdir(parents=True, exist_ok=True, mode=0o750)
    _share_with_group(store.parent, store)
    _check_cap(folder, store)
    _add_rows(attempt, [path for path, _, _ in _regular_files(folder)], store)
    failpoint("collect.artifacts_listed")
    for path, name, fd in _regular_files(folder):
        _move(name, fd, store / _stored_name(path))
    failpoint("collect.artifacts_moved")
    return _register_all(attempt, until)


def _register_all(attempt: Attempt, until: float) -> bool:
    unknown = attempt.artifacts.filter(sha256="")
    while rows := list(unknown[:BATCH]):
        registered = []
        for row in rows:
            if _is_stored(row):
                _register(row)
                registered.append(row)
            if time.monotonic() > until:
                break
        Artifact.objects.bulk_update(registered, ["sha256", "size"])
        # Somebody removed these files after their rows were written.
        gone = [row.pk for row in rows if not _is_stored(row)]
        Artifact.objects.filter(pk__in=gone).delete()
        if time.monotonic() > until:
            return not unknown.exists()
    return True


def _is_stored(row: Artifact) -> bool:
    return (settings.DATA_ROOT / row.storage_path).exists()


def _check_cap(folder: Path, store: Path) -> None:
    """Before anything moves, and with what a call before this one has moved."""
    sizes = {entry.name: entry.stat().st_size for entry in os.scandir(store)}
    for path, name, fd in _regular_files(folder):
        found = os.stat(name, dir_fd=fd, follow_symlinks=False)
        sizes[_stored_name(path)] = found.st_size
        if len(sizes) > MAX_FILES:
            break
    if len(sizes) > MAX_FILES or sum(sizes.values()) > settings.ARTIFACT_CAP_MB * _MIB:
        raise ArtifactCap(
            f"/artifacts holds more than {MAX_FILES:,} files or "
            f"{settings.ARTIFACT_CAP_MB:,} MiB. Leave less there."
        )


def _stored_name(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:32]


def _add_rows(attempt: Attempt, paths: list[Path], store: Path) -> None:
    known = set(attempt.artifacts.values_list("storage_path", flat=True))
    taken = set(attempt.artifacts.values_list("path", flat=True))
    rows = []
    for path in paths:
        stored = str((store / _stored_name(path)).relative_to(settings.DATA_ROOT))
        if stored in known:
            continue
        shown = _shown(path)
        if shown in taken:  # two names in bytes may look alike as text
            shown = f"{shown} ({_stored_name(path)[:8]})"
        taken.add(shown)
        rows.append(_new_row(attempt, shown, stored))
    Artifact.objects.bulk_create(rows, batch_size=BATCH)


def _new_row(attempt: Attempt, path: str, storage_path: str) -> Artifact:
    return Artifact(
        attempt=attempt,
        path=path,
        storage_path=storage_path,
        mime_type=mimetypes.guess_type(path)[0] or "application/octet-stream",
        size=0,
    )


def _register(row: Artifact) -> None:
    digest, size = hashlib.sha256(), 0
    with (settings.DATA_ROOT / row.storage_path).open("rb") as stored:
        while chunk := stored.read(_MIB):
            digest.update(chunk)
            size += len(chunk)
    row.sha256, row.size = digest.hexdigest(), size


def _regular_files(folder: Path) -> Iterator[tuple[Path, str, int]]:
    """Triples of the path in it, the file's name, and its folder's descriptor."""
    if not folder.is_dir():
        return
    device = folder.stat().st_dev
    for parent, _, names, fd in os.fwalk(folder, follow_symlinks=False):
        relative = Path(parent).relative_to(folder)
        if len(relative.parts) > MAX_DEPTH:
            raise ArtifactCap(f"Folders in /artifacts go deeper than {MAX_DEPTH}.")
        for name in sorted(names):
            found = os.stat(name, dir_fd=fd, follow_symlinks=False)
            if stat.S_ISREG(found.st_mode) and found.st_dev == device:
                yield relative / name, name, fd


def _shown(path: Path) -> str:
    """The path as text: names are bytes, and need not be UTF-8."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _move(name: str, fd: int, target: Path) -> None:
    """What is stored is the regular file that was opened, and no other that somebody
    put in its place meanwhile; what is no regular file any more is left out."""
    try:
        source = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=fd)
    except OSError:
        return
    with os.fdopen(source, "rb") as opened:
        if not stat.S_ISREG(os.fstat(source).st_mode):
            return
        _place(name, fd, opened, target)


def _place(name: str, fd: int, opened: BinaryIO, target: Path) -> None:
    try:
        os.rename(name, target, src_dir_fd=fd)
        if not os.path.samestat(target.lstat(), os.fstat(opened.fileno())):
            target.unlink()
            return
    except OSError:  # another file system
        with target.open("wb") as copy:
            shutil.copyfileobj(opened, copy, _MIB)
    target.chmod(0o640)
    _share_with_group(target)


def _share_with_group(*paths: Path) -> None:
    """No more the job's user's; the group of the data root, the web's, may read."""
    if os.geteuid() == 0:
        for path in paths:
            os.chown(path, 0, settings.DATA_ROOT.stat().st_gid)
