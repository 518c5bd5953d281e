"""A job's files under the data root: bounded logs, and artifacts taken in safely."""

import shutil

from django.conf import settings

from jobs.storage.artifacts import ArtifactCap, take_in
from jobs.storage.logs import (
    BoundedLog,
    Tail,
    attempt_log_path,
    complete_log,
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
    "job_log_path",
    "open_log",
    "remove_files",
    "tail",
    "take_in",
]


def remove_files(job_id: object) -> None:
    """Remove all that a job left; called when its rows are gone."""
    root = settings.DATA_ROOT
    (root / f"logs/{job_id}.log").unlink(missing_ok=True)
    for folder in (root / f"logs/{job_id}", root / f"artifacts/{job_id}"):
        shutil.rmtree(folder, ignore_errors=True)
