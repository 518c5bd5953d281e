"""Collect: from an exit that was seen to the end of the attempt."""

from dataclasses import replace
from pathlib import Path

from django.conf import settings
from django.db import transaction
from django.db.models import Avg

from jobs import lifecycle, storage
from jobs.failpoints import failpoint
from jobs.models import Attempt
from jobs.secrets import masked
from jobs.status import Kind, Phase, Reason
from scheduler import ending
from scheduler.execution.ground import (
    BY,
    attempt_lock,
    look,
    node_runner,
    read,
    wipe,
    work_folder,
)
from scheduler.execution.judging import judge
from scheduler.execution.launching import mark_running
from scheduler.execution.sealing import given_values
from scheduler.models import GpuSample
from scheduler.queue import enqueue
from scheduler.reservation import release, wake
from scheduler.runner.base import (
    ContainerState,
    Observation,
    RunnerFault,
    boot_id,
)

# A traceback of many processes is long.
LOG_TAIL = 64 * 1024
SLICE_S = 5.0
# After which endings what is in /artifacts is kept: a validator that rejects says why.
_LEAVES = {
    Kind.JOB: (Reason.COMPLETED,),
    Kind.VALIDATOR: (Reason.COMPLETED, Reason.NONZERO_EXIT),
}


def collect(attempt_id: str) -> None:
    """From an exit that was seen to the end of the attempt, in an order that a crash
    between any two steps can not spoil: release, log, artifacts, evidence, remove
    the container, judge."""
    with attempt_lock(attempt_id) as held:
        attempt = read(attempt_id) if held else None
        if attempt is None:
            return
        if attempt.phase in (Phase.STARTING, Phase.RUNNING) and not _see_exit(attempt):
            return
        if attempt.phase == Phase.COLLECTING and not _gather(attempt):
            enqueue("collect", attempt_id, node=attempt.node)
            return
        failpoint("collect.recorded")
        if look(attempt) is not None:
            node_runner().remove(attempt.container)
        failpoint("collect.removed")
        wipe(attempt)
        failpoint("collect.wiped")
        # A job without a GPU kept its CPU until now.
        if attempt.is_live and judge(attempt):
            wake()


def _see_exit(attempt: Attempt) -> bool:
    """Release on evidence: exited, or gone, or made and never started."""
    found = look(attempt)
    if found is not None and found.state is ContainerState.RUNNING:
        return False
    if attempt.phase == Phase.STARTING:
        if found is None or found.state is ContainerState.CREATED:
            return False  # launch looks into it
        mark_running(attempt, found)
    failpoint("collect.exit_seen")
    with transaction.atomic():
        exited_at = found.finished_at if found else None
        # As this first look finds it: what the runner remembers may be gone later.
        told = {
            **attempt.evidence,
            "boot_changed": attempt.boot_id not in ("", boot_id()),
            "is_exit_seen": found is None or found.is_exit_seen,
        }
        lifecycle.see_exit(attempt, exited_at=exited_at, evidence=told, by=BY)
        release(attempt)
        failpoint("collect.release_written")
    failpoint("collect.released")
    wake()
    return True


def _gather(attempt: Attempt) -> bool:
    """Log, artifacts, evidence. False if the artifacts need more than this slice: other
    tasks must not wait behind a job that left much."""
    found = look(attempt)
    log = settings.DATA_ROOT / attempt.log_path
    if not attempt.artifacts.exists():  # else a slice before this one completed it
        _complete_log(attempt, log, found)
        failpoint("collect.log_closed")
    ended = ending.judge(found, _known(attempt, log))
    if ended.reason in _LEAVES[Kind(attempt.kind)]:
        try:
            folder = work_folder(attempt) / "artifacts"
            if not storage.take_in(folder, attempt, within_s=SLICE_S):
                return False
        except storage.ArtifactCap as cap:
            ended = replace(ended, reason=Reason.ARTIFACT_CAP, text=str(cap))
    failpoint("collect.artifacts_taken")
    lifecycle.record_evidence(
        attempt,
        exit_code=ended.exit_code,
        evidence={
            **attempt.evidence,
            **ended.evidence,
            "reason": ended.reason,
            "text": ended.text,
        },
        mean_utilisation=_mean_utilisation(attempt),
    )
    return True


def _complete_log(attempt: Attempt, log: Path, found: Observation | None) -> None:
    """A daemon that is away is asked again later. One that answers and can not read
    this log twice has lost it: what was followed stays, and the job may end."""
    for _ in range(2):
        try:
            told = node_runner().logs(attempt.container, follow=False)
            chunks = masked(told, given_values(attempt)) if found else []
            storage.complete_log(log, chunks, settings.LOG_CAP_MB)
        except RunnerFault as fault:
            why = f"[gpujobs: the rest can not be read: {fault}]\n"
            look(attempt)
        else:
            return
    storage.complete_log(log, [b"", why.encode()], settings.LOG_CAP_MB)


def _known(attempt: Attempt, log: Path) -> ending.Known:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - LOG_TAIL))
        # It may become part of a text, and PostgreSQL holds no NUL in one.
        tail = (
            file.read()
            .decode(errors="replace")
            .replace("\0", "\N{REPLACEMENT CHARACTER}")
        )
    return ending.Known(
        stop_reason=Reason(attempt.stop_reason) if attempt.stop_reason else None,
        stop_requested_at=attempt.stop_requested_at,
        stop_text=attempt.evidence.get("stop_text", ""),
        kill_seen=attempt.kill_seen_at is not None,
        boot_changed=attempt.evidence.get("boot_changed", False),
        is_exit_seen=attempt.evidence.get("is_exit_seen", True),
        gpu_lost=attempt.allocations.filter(
            gpu__lost_at__gte=attempt.created_at
        ).exists(),
        log_tail=tail,
    )


def _mean_utilisation(attempt: Attempt) -> dict[str, float]:
    samples = GpuSample.objects.filter(attempt=attempt, utilisation__isnull=False)
    means = samples.values_list("gpu__uuid").annotate(mean=Avg("utilisation"))
    return {uuid: round(mean, 1) for uuid, mean in means}
