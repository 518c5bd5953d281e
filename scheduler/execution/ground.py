"""What the verbs stand on: this node's runner, the attempt's lock, what is there."""

import fcntl
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from jobs.models import Attempt
from scheduler.execution.staging import unstage
from scheduler.runner.base import Observation, Runner
from scheduler.runner.docker import DockerRunner
from scheduler.runner.process import ProcessRunner

BY = f"supervisor on {settings.NODE_NAME}"
LOCKS = 1024
LOCK_PATIENCE_S = 15.0


@cache
def node_runner() -> Runner:
    """The runner that the settings choose for this node."""
    if settings.RUNNER == "docker":
        return DockerRunner(settings.DOCKER_URL, _instance())
    if settings.RUNNER == "process":
        return ProcessRunner(settings.RUN_ROOT)
    raise ImproperlyConfigured("GPUJOBS_RUNNER is 'docker' or 'process'.")


def _instance() -> str:
    """Tells our containers from those of another installation on the same host."""
    path = settings.DATA_ROOT / "instance"
    if not path.exists():
        # Linked when it is whole: another process that starts now must not read half.
        part = path.with_name(f"instance.{uuid.uuid4().hex}")
        part.write_text(uuid.uuid4().hex)
        with suppress(FileExistsError):
            os.link(part, path)
        part.unlink()
    return str(path.read_text())


@contextmanager
def attempt_lock(attempt_id: str) -> Iterator[bool]:
    """All verbs on one attempt are serialised; False if another takes too long.

    The kernel frees the lock when its holder dies. The files are few and stay:
    removing one that is waited for would let two in.
    """
    until = time.monotonic() + LOCK_PATIENCE_S
    with _lock_file(attempt_id) as file:
        while not (held := _try_lock(file.fileno())) and time.monotonic() < until:
            time.sleep(0.05)
        yield held


def is_at_work(attempt_id: str) -> bool:
    """Whether a verb on the attempt is under way, here and now."""
    with _lock_file(attempt_id) as file:
        return not _try_lock(file.fileno())


def _lock_file(attempt_id: str) -> IO[str]:
    folder = settings.RUN_ROOT / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    return (folder / f"{uuid.UUID(attempt_id).int % LOCKS:03x}").open("w")


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def read(attempt_id: str) -> Attempt | None:
    rows = Attempt.objects.select_related("job", "job__owner")
    return rows.filter(pk=attempt_id, node=settings.NODE_NAME).first()


def look(attempt: Attempt) -> Observation | None:
    """The attempt's container. One with its name but another nonce is not ours."""
    found = node_runner().observe(attempt.container)
    return found[0] if found and found[0].nonce == attempt.nonce else None


def work_folder(attempt: Attempt) -> Path:
    return Path(settings.RUN_ROOT) / "work" / attempt.container_name


def wipe(attempt: Attempt) -> None:
    """A job may leave folders deeper than Python's recursion goes; rm does not mind."""
    unstage(attempt)
    rm = shutil.which("rm") or "/bin/rm"
    command = [rm, "-rf", "--one-file-system", "--", str(work_folder(attempt))]
    subprocess.run(command, check=False)  # noqa: S603
