"""A job's files under the data root: bounded logs, and artifacts taken in safely."""

import hashlib
import itertools
import mimetypes
import os
import shutil
import stat
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from django.conf import settings

from jobs.exceptions import GpuJobsError
from jobs.models import Artifact, Attempt, Job

MAX_FILES = 10_000
MAX_DEPTH = 32
_MIB = 1024 * 1024


class ArtifactCap(GpuJobsError):
    """The job left more files, deeper folders or more bytes than are taken in."""


# --- Logs ----------------------------------------------------------------------------


def job_log_path(job: Job) -> str:
    """Of the link that names the log of the latest attempt; under the data root."""
    return f"logs/{job.pk}.log"


def attempt_log_path(attempt: Attempt) -> str:
    return f"logs/{attempt.job_id}/{attempt.number}.log"


def open_log(attempt: Attempt) -> None:
    """Make the attempt's log, empty, and point the job's link at it."""
    path = settings.DATA_ROOT / attempt.log_path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    link = settings.DATA_ROOT / job_log_path(attempt.job)
    fresh = link.with_suffix(".link")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(path.relative_to(link.parent))
    fresh.replace(link)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """The last lines of a log; `first` is the number of the first one, if known."""

    lines: list[str]
    first: int | None


def tail(job: Job, *, most_lines: int, most_bytes: int) -> Tail | None:
    """Read the end of the latest attempt's log; None where there is no log yet."""
    try:
        with (settings.DATA_ROOT / job_log_path(job)).open("rb") as log:
            start = max(0, log.seek(0, os.SEEK_END) - most_bytes)
            log.seek(start)
            text = log.read(most_bytes).decode("utf-8", "replace")
    except FileNotFoundError:
        return None
    lines = text.removesuffix("\n").split("\n") if text else []
    if start and len(lines) > 1:
        lines = lines[1:]  # cut somewhere in its middle
    shown = lines[-most_lines:]
    return Tail(lines=shown, first=None if start else len(lines) - len(shown) + 1)


class BoundedLog:
    """A log file of at most `cap_mb`: its head as it comes, its tail at the close.

    What lies between is left out, and the cut is marked. `resume` goes on with a file
    for which the same stream is read again from its start.
    """

    def __init__(self, path: Path, cap_mb: int, *, resume: bool = False) -> None:
        self._half = cap_mb * _MIB // 2
        self._file = path.open("ab" if resume else "wb", buffering=0)
        self._head = self._skip = self._file.tell()
        self._tail: deque[bytes] = deque()
        self._tail_size = self._left_out = 0

    def __enter__(self) -> "BoundedLog":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def write(self, chunk: bytes) -> None:
        chunk, self._skip = chunk[self._skip :], max(0, self._skip - len(chunk))
        room = max(0, self._half - self._head)
        self._head += self._file.write(chunk[:room])
        if chunk[room:]:
            self._keep(chunk[room:])

    def _keep(self, chunk: bytes) -> None:
        self._tail.append(chunk)
        self._tail_size += len(chunk)
        while (excess := self._tail_size - self._half) > 0:
            oldest = self._tail.popleft()
            if oldest[excess:]:
                self._tail.appendleft(oldest[excess:])
            gone = min(excess, len(oldest))
            self._tail_size -= gone
            self._left_out += gone

    def finish(self) -> None:
        """Write the tail; nothing may be written after."""
        if self._left_out:
            self.mark(f"{self._left_out} bytes are left out here")
        for chunk in self._tail:
            self._file.write(chunk)

    def mark(self, text: str) -> None:
        self._file.write(f"\n[gpujobs: {text}]\n".encode())


def complete_log(path: Path, chunks: Iterable[bytes], cap_mb: int) -> None:
    """Write the whole log from what the runner kept of it.

    Where the runner has lost the beginning (it rotates far above our cap), what was
    followed while the job ran is the head.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    followed = path.read_bytes()[: cap_mb * _MIB // 2] if path.exists() else b""
    stream = iter(chunks)
    first = _at_least(stream, min(len(followed), 65536))
    part = path.with_suffix(".part")
    with BoundedLog(part, cap_mb) as log:
        compared = min(len(first), len(followed))
        if not first or first[:compared] != followed[:compared]:
            log.write(followed)
            if first:
                log.mark("some bytes are lost here")
        for chunk in itertools.chain([first], stream):
            log.write(chunk)
        log.finish()
    part.replace(path)


def _at_least(stream: Iterator[bytes], size: int) -> bytes:
    got = bytearray()
    for chunk in stream:
        got += chunk
        if len(got) >= size:
            break
    return bytes(got)


# --- Artifacts -----------------------------------------------------------------------


def take_in(folder: Path, attempt: Attempt) -> None:
    """Move the regular files under `folder` to the store and register each.

    Called after the container is gone. No link is followed, nothing is unpacked. A
    row is written before its file moves, so that a second call finishes what a first
    one began. Raises ArtifactCap.
    """
    store = settings.DATA_ROOT / "artifacts" / str(attempt.job_id) / str(attempt.number)
    store.mkdir(parents=True, exist_ok=True, mode=0o750)
    _check_cap(folder, store)
    for path, name, fd in _regular_files(folder):
        row = _row(attempt, path, store)
        _move(name, fd, settings.DATA_ROOT / row.storage_path)
    for row in attempt.artifacts.filter(sha256=""):
        if (settings.DATA_ROOT / row.storage_path).exists():
            _register(row)
        else:  # somebody removed the file after its row was written
            row.delete()


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


def _stored_name(path: str) -> str:
    return hashlib.sha256(path.encode()).hexdigest()[:32]


def _row(attempt: Attempt, path: str, store: Path) -> Artifact:
    stored = store / _stored_name(path)
    row, _ = Artifact.objects.get_or_create(
        attempt=attempt,
        path=path,
        defaults={
            "storage_path": str(stored.relative_to(settings.DATA_ROOT)),
            "mime_type": mimetypes.guess_type(path)[0] or "application/octet-stream",
            "size": 0,
        },
    )
    return row


def _register(row: Artifact) -> None:
    digest, size = hashlib.sha256(), 0
    with (settings.DATA_ROOT / row.storage_path).open("rb") as stored:
        while chunk := stored.read(_MIB):
            digest.update(chunk)
            size += len(chunk)
    row.sha256, row.size = digest.hexdigest(), size
    row.save(update_fields=["sha256", "size"])


def _regular_files(folder: Path) -> Iterator[tuple[str, str, int]]:
    """Triples of the path to show, the file's name, and its folder's descriptor."""
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
                yield _shown(relative / name), name, fd


def _shown(path: Path) -> str:
    """The path as text: names are bytes, and need not be UTF-8."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _move(name: str, fd: int, target: Path) -> None:
    try:
        os.rename(name, target, src_dir_fd=fd)
    except OSError:  # another file system: copy what is really there, no link
        source = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=fd)
        with os.fdopen(source, "rb") as opened, target.open("wb") as copy:
            shutil.copyfileobj(opened, copy, _MIB)
    if os.geteuid() == 0:
        os.chown(target, 0, target.parent.stat().st_gid)
    target.chmod(0o640)


def remove_files(job_id: object) -> None:
    """Remove all that a job left; called when its rows are gone."""
    root = settings.DATA_ROOT
    (root / f"logs/{job_id}.log").unlink(missing_ok=True)
    for folder in (root / f"logs/{job_id}", root / f"artifacts/{job_id}"):
        shutil.rmtree(folder, ignore_errors=True)
