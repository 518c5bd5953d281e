"""A job's files under the data root: bounded logs, and artifacts taken in safely."""

import contextlib
import shutil
import uuid

from django.conf import settings

from jobs.models import Job
from jobs.storage.artifacts import ArtifactCap, take_in
from jobs.storage.logs import (
    BoundedLog,
    Tail,
    attempt_log_path,
    complete_log,
    follow_log,
    job_log_path,
    open_log,
    tail,
)

__all__ = [
    "ArtifactCap",
    "BoundedLog",
    "Tail",
    "attempt_log_path",
    "complete_log",
    "follow_log",
    "job_log_path",
    "open_log",
    "remove_files",
    "sweep",
    "tail",
    "take_in",
]


def sweep() -> None:
    """Remove what is left of jobs that are gone: files that the process which deleted
    the job might not remove."""
    root = settings.DATA_ROOT
    left = {path.name.removesuffix(".log") for path in root.glob("logs/*")}
    left |= {path.name for path in root.glob("artifacts/*")}
    ids = [name for name in left if _is_uuid(name)]
    for start in range(0, len(ids), 500):
        some = ids[start : start + 500]
        known = {
            str(pk)
            for pk in Job.objects.filter(pk__in=some).values_list("pk", flat=True)
        }
        for gone in set(some) - known:
            remove_files(gone)


def _is_uuid(name: str) -> bool:
    try:
        return str(uuid.UUID(name)) == name
    except ValueError:
        return False


def remove_files(job_id: object) -> None:
    """Remove all that a job left; called when its rows are gone."""
    root = settings.DATA_ROOT
    with contextlib.suppress(PermissionError):
        (root / f"logs/{job_id}.log").unlink(missing_ok=True)
    for folder in (root / f"logs/{job_id}", root / f"artifacts/{job_id}"):
        shutil.rmtree(folder, ignore_errors=True)
