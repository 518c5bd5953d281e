"""The only module that writes `Job.status`.

Each move is one counted UPDATE filtered on the allowed source states; zero rows means
that somebody else was first. Event and audit record are written by the same
transaction, so a move without its story can not be.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Coalesce, Greatest
from django.utils import timezone

from jobs import audit, storage
from jobs.exceptions import TransitionConflict
from jobs.models import Attempt, Job, JobEvent, UsageRecord, User
from jobs.signals import job_queued
from jobs.status import LIVE, SOURCES, Fault, Phase, Reason, Status, WaitReason

# Infra endings in a row after which a job fails, with the story.
MOST_INFRA_ENDINGS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What an attempt held: seconds summed over its GPUs, and MiB times seconds."""

    gpu_seconds: float = 0.0
    vram_mb_seconds: float = 0.0


def _move(
    job: Job,
    to: Status,
    *,
    by: object,
    event_type: str = "",
    payload: Mapping[str, Any] | None = None,
    guard: Q | None = None,
    **changes: Any,
) -> None:
    """Make one move, or raise TransitionConflict. Runs in the caller's transaction."""
    rows = Job.objects.filter(guard or Q(), pk=job.pk, status__in=SOURCES[to])
    if rows.update(status=to, **changes) != 1:
        raise TransitionConflict(f"{job} can not become {to}: it has moved on.")
    note(job, event_type or to.value, by=by, **(payload or {}))
    job.refresh_from_db()


def note(job: Job, event_type: str, *, by: object, **payload: Any) -> None:
    """Write an event, and the audit record that outlives it."""
    JobEvent.objects.create(
        job=job, event_type=event_type, payload=payload, actor=str(by)
    )
    audit.record(f"job.{event_type}", target=job.pk, by=by, **payload)


def _announce_queued() -> None:
    transaction.on_commit(partial(job_queued.send, sender=Job))


@transaction.atomic
def submit(*, by: User, idempotency_key: str | None = None, **spec: Any) -> Job:
    """Queue a job owned by `by`. `spec` is validated field values of Job."""
    job = Job.objects.create(owner=by, idempotency_key=idempotency_key, **spec)
    note(job, Status.QUEUED, by=by, image=job.image, gpu_count=job.gpu_count)
    _announce_queued()
    return job


def start(
    job: Job, *, node: str, gpu_indices: list[int], gpu_uuids: list[str], by: object
) -> Attempt:
    """queued -> starting, with a new attempt. The caller's transaction reserves."""
    assert transaction.get_connection().in_atomic_block
    _move(
        job,
        Status.STARTING,
        by=by,
        payload={"node": node, "gpus": gpu_uuids},
        guard=Q(cancel_requested_at__isnull=True),
        wait_reason="",
        wait_text="",
        assigned_gpu_indices=gpu_indices,
        assigned_gpu_uuids=gpu_uuids,
        log_path=storage.job_log_path(job),
    )
    attempt = Attempt(job=job, number=job.attempts.count() + 1, node=node)
    attempt.log_path = storage.attempt_log_path(attempt)
    attempt.save(force_insert=True)
    return attempt


@transaction.atomic
def mark_running(
    attempt: Attempt,
    *,
    container_id: str,
    image_digest: str,
    boot_id: str,
    started_at: datetime,
    by: object,
) -> None:
    """starting -> running: the container was seen to be up (or to have been)."""
    moved = _in_phase(attempt, Phase.STARTING).update(
        phase=Phase.RUNNING,
        container_id=container_id,
        image_digest=image_digest,
        boot_id=boot_id,
        started_at=started_at,
    )
    if moved != 1:
        raise TransitionConflict(f"{attempt} is not starting.")
    _move(
        attempt.job,
        Status.RUNNING,
        by=by,
        payload={"attempt": attempt.number, "container": container_id[:12]},
        started_at=Coalesce("started_at", started_at),
    )
    attempt.refresh_from_db()


@transaction.atomic
def request_cancel(job: Job, *, by: User) -> Job:
    """Cancel a queued job at once; of a live one write the wish for its node.

    Raises TransitionConflict for a job that has ended.
    """
    reason = _cancel_reason(job, by)
    now = timezone.now()
    wish = {"cancel_requested_at": now, "cancel_requested_by": by}
    queued = Job.objects.filter(pk=job.pk, status=Status.QUEUED)
    if queued.update(**wish) == 1:
        _end_job(job, reason, "Cancelled before it started.", by=by)
        return job
    fresh = Job.objects.filter(
        pk=job.pk, status__in=LIVE, cancel_requested_at__isnull=True
    )
    if fresh.update(**wish) == 1:
        note(job, "cancel_requested", by=by)
        for attempt in job.attempts.live():
            _wish(attempt, reason, now)
    job.refresh_from_db()
    if job.is_terminal:
        raise TransitionConflict(f"{job} has already ended: it is {job.status}.")
    return job


def _cancel_reason(job: Job, by: User | None) -> Reason:
    own = by is not None and by.pk == job.owner_id
    return Reason.CANCELLED_BY_USER if own else Reason.CANCELLED_BY_OPERATOR


@transaction.atomic
def request_stop(attempt: Attempt, reason: Reason, *, by: object) -> bool:
    """Write the wish that this attempt ends for `reason`; False if one stands."""
    if not _wish(attempt, reason, timezone.now()):
        return False
    note(attempt.job, "stop_requested", by=by, attempt=attempt.number, reason=reason)
    return True


def _wish(attempt: Attempt, reason: Reason, at: datetime) -> bool:
    rows = Attempt.objects.live().filter(pk=attempt.pk, stop_reason="")
    return rows.update(stop_reason=reason, stop_requested_at=at) == 1


def _in_phase(attempt: Attempt, *phases: Phase) -> QuerySet[Attempt]:
    return Attempt.objects.live().filter(pk=attempt.pk, phase__in=phases)


@transaction.atomic
def see_exit(attempt: Attempt, *, by: object) -> bool:
    """starting or running -> collecting; False if it was seen before."""
    seen = _in_phase(attempt, Phase.STARTING, Phase.RUNNING)
    if seen.update(phase=Phase.COLLECTING) != 1:
        return False
    note(attempt.job, "exit_seen", by=by, attempt=attempt.number)
    attempt.refresh_from_db()
    return True


@transaction.atomic
def record_evidence(
    attempt: Attempt,
    *,
    exit_code: int | None,
    evidence: dict[str, Any],
    mean_utilisation: dict[str, float],
) -> bool:
    """collecting -> judging: after this the container is no longer needed."""
    moved = _in_phase(attempt, Phase.COLLECTING).update(
        phase=Phase.JUDGING,
        exit_code=exit_code,
        evidence=evidence,
        mean_utilisation=mean_utilisation,
    )
    attempt.refresh_from_db()
    return moved == 1


@transaction.atomic
def finish(
    attempt: Attempt, reason: Reason, text: str, *, usage: Usage, by: object
) -> Job:
    """End the attempt, then its job, or put the job back in the queue.

    An infra ending goes back to the queue unless a cancel wish stands; the fifth in a
    row fails the job with the story. `usage` is recorded, charged or not.
    """
    now = timezone.now()
    ended = Attempt.objects.live().filter(pk=attempt.pk)
    ended_at = Coalesce(Greatest("started_at", now), now)
    if ended.update(phase="", reason=reason, ended_at=ended_at) != 1:
        raise TransitionConflict(f"{attempt} has already ended.")
    attempt.refresh_from_db()
    job = Job.objects.get(pk=attempt.job_id)
    UsageRecord.objects.create(
        owner=job.owner.email,
        job=str(job.pk),
        attempt_number=attempt.number,
        gpu_seconds=usage.gpu_seconds,
        vram_mb_seconds=usage.vram_mb_seconds,
        fault=reason.fault,
    )
    if reason.fault is Fault.INFRA:
        if not job.cancel_requested:
            return _requeue_or_give_up(job, attempt, reason, text, by=by)
        reason = _cancel_reason(job, job.cancel_requested_by)
    _end_job(job, reason, text, exit_code=attempt.exit_code, by=by)
    return job


def _requeue_or_give_up(
    job: Job, attempt: Attempt, reason: Reason, text: str, *, by: object
) -> Job:
    recent = job.attempts.order_by("-number")[:MOST_INFRA_ENDINGS]
    story = [a.reason for a in recent if Reason(a.reason).fault is Fault.INFRA]
    if len(story) == MOST_INFRA_ENDINGS:
        told = ", ".join(reversed(story))
        text = (
            f"{len(story)} attempts in a row ended without your doing: {told}. {text}"
        )
        _end_job(job, Reason.LAUNCH_FAULT, text, exit_code=None, by=by)
        return job
    _move(
        job,
        Status.QUEUED,
        by=by,
        event_type="requeued",
        payload={"attempt": attempt.number, "reason": reason, "text": text},
        guard=Q(cancel_requested_at__isnull=True),
        assigned_gpu_indices=[],
        assigned_gpu_uuids=[],
    )
    _announce_queued()
    return job


@transaction.atomic
def fail_queued(job: Job, reason: Reason, text: str, *, by: object) -> None:
    """End a job that can not be started: no image, or nowhere it could ever fit."""
    _end_job(job, reason, text, by=by, guard=Q(status=Status.QUEUED))


def _end_job(
    job: Job,
    reason: Reason,
    text: str,
    *,
    by: object,
    exit_code: int | None = None,
    guard: Q | None = None,
) -> None:
    now = timezone.now()
    _move(
        job,
        reason.status,
        by=by,
        payload={"reason": reason, "text": text, "exit_code": exit_code},
        guard=guard,
        reason=reason,
        reason_text=text,
        exit_code=exit_code,
        wait_reason="",
        wait_text="",
        # Clamped: a clock set back must not keep a job from ending.
        finished_at=Coalesce(Greatest("started_at", now), now),
    )


def explain_wait(job: Job, reason: WaitReason, text: str) -> None:
    """Tell why a job waits; written only when it changed, and only while it waits."""
    if (job.wait_reason, job.wait_text) != (reason, text):
        Job.objects.filter(pk=job.pk, status=Status.QUEUED).update(
            wait_reason=reason, wait_text=text
        )


@transaction.atomic
def delete(job: Job, *, by: User) -> None:
    """Remove a job and its story; a queued one is cancelled first.

    Raises TransitionConflict while it is starting or running. The audit stays.
    """
    if job.status == Status.QUEUED:
        request_cancel(job, by=by)
    job.refresh_from_db()
    if not job.is_terminal:
        raise TransitionConflict(f"{job} is {job.status}: cancel it first.")
    audit.record("job.deleted", target=job.pk, by=by, status=job.status)
    transaction.on_commit(partial(storage.remove_files, job.pk))
    with audit.purge_door("events"):
        job.delete()
