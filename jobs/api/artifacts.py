"""A succeeded job's result: what its accepted attempt left in /artifacts."""

import os.path
import re
import uuid
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from django.conf import settings
from django.http import FileResponse, HttpResponseBase, StreamingHttpResponse
from rest_framework import serializers

from jobs.api.fields import Strict
from jobs.api.logs import INERT
from jobs.api.problems import Missing
from jobs.models import Artifact, Attempt, Job
from jobs.spec import NOT_ONE_LINE, UNSTORABLE
from jobs.status import Status

BLOCK = 64 * 1024
OCTETS = "application/octet-stream"


class ArtifactQuery(Strict):
    unknown_code = "unknown_parameter"

    attempt = serializers.IntegerField(
        required=False,
        min_value=1,
        max_value=2**31 - 1,
        help_text="What this attempt left, also one whose result was rejected.",
    )


class DownloadQuery(ArtifactQuery):
    path = serializers.CharField(
        required=False,
        max_length=4096,
        trim_whitespace=False,
        help_text="Only this one of the files, by its path.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    id: uuid.UUID  # the attempt's
    job_id: uuid.UUID
    storage_path: str
    mime_type: str
    created_at: datetime
    files: Sequence[Artifact]


def left_by(job: Job, number: int | None) -> Result:
    """What one attempt left, be it accepted or not; with no number, the job's result."""
    if number is None:
        return result_of(job)
    attempt = job.attempts.filter(number=number).first()
    files = list(attempt.artifacts.exclude(sha256="")) if attempt else []
    if attempt is None or not files:
        raise Missing(f"Attempt {number} left no files here.", "no_artifact")
    return _of(attempt, files)


def result_of(job: Job) -> Result:
    """Raises Missing unless the job succeeded and left files."""
    if job.status != Status.SUCCEEDED:
        text = f"The job is {job.status}; only a job that succeeded has a result."
        raise Missing(text, "not_succeeded")
    attempt = job.attempts.accepted().first()
    files = list(attempt.artifacts.all()) if attempt else []
    if attempt is None or not files:
        text = "The job left no files. What it writes to $GPUJOBS_ARTIFACTS is kept."
        raise Missing(text, "no_artifact")
    return _of(attempt, files)


def _of(attempt: Attempt, files: Sequence[Artifact]) -> Result:
    is_one = len(files) == 1
    return Result(
        id=attempt.pk,
        job_id=attempt.job_id,
        storage_path=os.path.commonpath([file.storage_path for file in files]),
        mime_type=files[0].mime_type if is_one else "application/zip",
        created_at=max(file.created_at for file in files),
        files=files,
    )


def download(result: Result, path: str | None) -> HttpResponseBase:
    """The file asked for, the only file, or a zip of all."""
    files = [file for file in result.files if path in (None, file.path)]
    if not files:
        raise Missing("The job left no file of that path.", "no_artifact")
    for file in files:
        if not _stored(file).is_file():
            raise Missing("The file is no longer in the store.", "file_gone")
    if len(files) == 1:
        return FileResponse(
            _stored(files[0]).open("rb"),
            as_attachment=True,
            filename=safe_name(files[0].path).rpartition("/")[2],
            content_type=OCTETS,
            headers=INERT,
        )
    disposition = f'attachment; filename="{result.job_id}.zip"'
    return StreamingHttpResponse(
        _zip(files),
        content_type=OCTETS,
        headers={**INERT, "Content-Disposition": disposition},
    )


def _stored(file: Artifact) -> Path:
    return settings.DATA_ROOT / file.storage_path


def safe_name(path: str) -> str:
    """A relative path that means the same, and no harm, to whoever unpacks it."""
    text = UNSTORABLE.sub("_", NOT_ONE_LINE.sub("_", path)).replace(":", "_")
    parts = [part for part in re.split(r"[/\\]", text) if part not in ("", ".", "..")]
    return "/".join(parts) or "file"


class _Sink:
    """What ZipFile writes to: it can not seek, and hands on what it got."""

    def __init__(self) -> None:
        self._blocks: list[bytes] = []

    def write(self, block: bytes) -> int:
        self._blocks.append(bytes(block))
        return len(block)

    def flush(self) -> None:
        pass

    def take(self) -> bytes:
        taken, self._blocks = b"".join(self._blocks), []
        return taken


def _zip(files: Sequence[Artifact]) -> Iterator[bytes]:
    sink = _Sink()
    taken: set[str] = set()
    with zipfile.ZipFile(sink, "w") as archive:  # type: ignore[call-overload]
        for file in files:
            info = zipfile.ZipInfo(
                _unused(safe_name(file.path), taken),
                file.created_at.timetuple()[:6],
            )
            with (
                _stored(file).open("rb") as source,
                archive.open(info, "w", force_zip64=True) as member,
            ):
                while block := source.read(BLOCK):
                    member.write(block)
                    yield sink.take()
    yield sink.take()


def _unused(name: str, taken: set[str]) -> str:
    """Cleaning may have made two names one."""
    number, unused = 1, name
    while unused in taken:
        number += 1
        unused = f"{name}.{number}"
    taken.add(unused)
    return unused
