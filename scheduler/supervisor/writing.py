"""What jobs write to the node's disk outside volumes: measured, and bounded."""

import logging
import queue
import subprocess
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from django.conf import settings

from jobs import lifecycle
from jobs.models import Attempt
from jobs.status import Phase, Reason
from scheduler.execution import BY, work_folder
from scheduler.runner.base import Observation

logger = logging.getLogger(__name__)

# A file takes an inode, however small it is.
MOST_FILES = 1_000_000
PATIENCE_S = 120


class Written(NamedTuple):
    """Under some folders: MiB on the disk, and how many files and folders."""

    size_mb: int
    files: int


class Folders(NamedTuple):
    attempt_id: str
    artifacts: Path
    others: tuple[Path, ...]


def measure(folders: Iterable[Path]) -> Written:
    """By `du`: it minds neither depth nor links, nor files that come and go."""
    there = [str(folder) for folder in folders if folder.is_dir()]
    return Written(_du("-B1M", there), _du("--inodes", there))


def _du(unit: str, folders: list[str]) -> int:
    if not folders:
        return 0
    done = subprocess.run(  # noqa: S603
        ["/usr/bin/du", "-scx", unit, "--", *folders],
        capture_output=True,
        check=False,
        timeout=PATIENCE_S,
    )
    # The last line is the total, also if a file went meanwhile.
    last = done.stdout.splitlines()[-1:] or [b"0"]
    return int(last[0].split()[0])


def excess(artifacts: Written, others: Written) -> tuple[Reason, str] | None:
    """Why a job that has written so much is to be stopped; None if it is not."""
    for reason, written, most_mb in (
        (Reason.ARTIFACT_CAP, artifacts, settings.ARTIFACT_CAP_MB),
        (Reason.SCRATCH_FULL, others, settings.SCRATCH_CAP_MB),
    ):
        if written.size_mb > most_mb:
            return reason, f"It wrote {written.size_mb:,} MiB; {most_mb:,} are allowed."
        if written.files > MOST_FILES:
            text = f"It made {written.files:,} files; {MOST_FILES:,} are allowed."
            return reason, text
    return None


class Writing:
    """Measures in a thread, which knows folders and no rows; the loop writes wishes."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._thread: threading.Thread | None = None
        self._found: queue.SimpleQueue[tuple[str, Reason, str]] = queue.SimpleQueue()

    def turn(self, live: Iterable[Attempt], found: Iterable[Observation]) -> None:
        """To be called every few seconds; a slow disk makes it look less often."""
        if self._thread is None or not self._thread.is_alive():
            layers = {o.container_id: o.layer for o in found}
            running = (a for a in live if a.phase == Phase.RUNNING)
            folders = [
                _folders(a, layers.get(a.container_id or "", "")) for a in running
            ]
            self._thread = threading.Thread(
                target=self._look, args=[folders], daemon=True
            )
            self._thread.start()

    def write_down(self, live: dict[str, Attempt]) -> None:
        while not self._found.empty():
            attempt_id, reason, text = self._found.get()
            if attempt := live.get(attempt_id):
                lifecycle.request_stop(attempt, reason, text=text, by=BY)

    def _look(self, folders: list[Folders]) -> None:
        for each in folders:
            try:
                over = excess(measure([each.artifacts]), measure(each.others))
            except (OSError, subprocess.TimeoutExpired, ValueError):
                logger.exception("what %s writes can not be measured", each.attempt_id)
                continue
            if over:
                self._found.put((each.attempt_id, *over))
                self._wake()


def _folders(attempt: Attempt, layer: str) -> Folders:
    work = work_folder(attempt)
    others = (work / "scratch", *([Path(layer)] if layer else []))
    return Folders(str(attempt.pk), work / "artifacts", others)
