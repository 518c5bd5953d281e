"""What happens to an attempt, from its start to its end."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Coalesce
from django.utils import timezone

from jobs import storage
from jobs.exceptions import TransitionConflict
from jobs.lifecycle.moves import cancel_reason, end_job, lock, move, note
from jobs.lifecycle.routing import escalate, requeue
from jobs.models import Attempt, Job, RoutingDecision, UsageRecord
from jobs.routing import ExecutionCheck
from jobs.status import NODE_FAULTS, Fault, Kind, Phase, Reason, Status

# Infra endings in a row after which a job fails, with the story. A node's own trouble
# does not count: the node pauses, and the job waits.
MOST_INFRA_ENDINGS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What an attempt held: seconds summed over its GPUs, and MiB times seconds."""

    gpu_seconds: float = 0.0
    vram_mb_seconds: float = 0.0


def start(
    job: Job,
    *,
    node: str,
    gpu_indices: list[int],
    gpu_uuids: list[str],
    by: object,
    cpus: float | None = None,
    memory_mb: int | None = None,
    shm_mb: int | None = None,
    why: str = "",
) -> Attempt:
    """queued -> starting, with a new attempt. The caller's transaction reserves.

    `cpus`, `memory_mb` and `shm_mb` are what it gets of the node, None for no limit;
    `why` it was placed there then is told in the job's story.
    """
    assert transaction.get_connection().in_atomic_block
    move(
        job,
        Status.STARTING,
        by=by,
        payload={"node": node, "gpus": gpu_uuids, **({"why": why} if why else {})},
        guard=Q(cancel_requested_at__isnull=True, held_at__isnull=True),
        wait_reason="",
        wait_text="",
        assigned_gpu_indices=gpu_indices,
        assigned_gpu_uuids=gpu_uuids,
        log_path=storage.job_log_path(job),
    )
    attempt = Attempt(
        job=job,
        number=job.attempts.count() + 1,
        node=node,
        tier=job.tier,
        decision=_last_decision(job),
        gpu_uuids=gpu_uuids,
        cpus=cpus,
        memory_mb=memory_mb,
        shm_mb=shm_mb,
    )
    attempt.log_path = storage.attempt_log_path(attempt)
    attempt.save(force_insert=True)
    return attempt


def _last_decision(job: Job) -> RoutingDecision | None:
    if job.policy_id is None and not job.escalations:
        return None
    return job.decisions.order_by("number").last()


@transaction.atomic
def start_validation(subject: Attempt, check: ExecutionCheck, *, by: object) -> Attempt:
    """A validator attempt that looks at what `subject` left, on its node, with no GPU.

    Raises TransitionConflict if the subject is not being judged, or is cancelled.
    """
    job = lock(subject.job_id)
    if job.cancel_requested or not _in_phase(subject, Phase.JUDGING).exists():
        raise TransitionConflict(f"{subject} is not being judged.")
    attempt = Attempt(
        job=job,
        kind=Kind.VALIDATOR,
        number=job.attempts.count() + 1,
        node=subject.node,
        tier=subject.tier,
        subject=subject,
        validator=check.name,
        cpus=check.cpus,
        memory_mb=check.memory_mb,
    )
    attempt.log_path = storage.attempt_log_path(attempt)
    attempt.save(force_insert=True)
    told = {"attempt": attempt.number, "validator": check.name}
    note(job, "validating", by=by, of=subject.number, **told)
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
    lock(attempt.job_id)
    moved = _in_phase(attempt, Phase.STARTING).update(
        phase=Phase.RUNNING,
        container_id=container_id,
        image_digest=image_digest,
        boot_id=boot_id,
        started_at=started_at,
    )
    if moved != 1:
        raise TransitionConflict(f"{attempt} is not starting.")
    if attempt.kind == Kind.JOB:
        move(
            attempt.job,
            Status.RUNNING,
            by=by,
            payload={"attempt": attempt.number, "container": attempt.container_name},
            started_at=Coalesce("started_at", started_at),
        )
    attempt.refresh_from_db()


@transaction.atomic
def see_exit(
    attempt: Attempt,
    *,
    exited_at: datetime | None = None,
    evidence: dict[str, Any] | None = None,
    by: object,
) -> bool:
    """starting or running -> collecting; False if it was seen before.

    `exited_at` is when it exited by the runner's account, None if that is not known;
    `evidence` what can be seen only now and decides how it ended.
    """
    lock(attempt.job_id)
    seen = _in_phase(attempt, Phase.STARTING, Phase.RUNNING)
    told = evidence or {}
    if seen.update(phase=Phase.COLLECTING, exited_at=exited_at, evidence=told) != 1:
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
    attempt: Attempt,
    reason: Reason,
    text: str,
    *,
    usage: Usage,
    by: object,
    again: RoutingDecision | None = None,
    ends_as: tuple[Reason, str] | None = None,
) -> Job:
    """End the attempt, then its job, or put the job back in the queue.

    An infra ending goes back to the queue unless a cancel wish stands; the fifth in a
    row fails the job with the story. With a decision of what to try next, so does any
    other; `ends_as` is how the job ends where that is not how its attempt did. The end
    of a validator attempt ends nothing else. `usage` is recorded, charged or not.
    """
    job = lock(attempt.job_id)
    ended = Attempt.objects.live().filter(pk=attempt.pk)
    ended_at = _ended_at(attempt)
    if ended.update(phase="", reason=reason, ended_at=ended_at, sealed={}) != 1:
        raise TransitionConflict(f"{attempt} has already ended.")
    attempt.refresh_from_db()
    _account(job, attempt, usage)
    if attempt.kind == Kind.VALIDATOR:
        told = {"attempt": attempt.number, "reason": reason, "text": text}
        note(job, "validated", by=by, validator=attempt.validator, **told)
        return job
    if job.cancel_requested:
        if reason.fault is Fault.INFRA:
            reason = cancel_reason(job, job.cancel_requested_by)
    elif reason.fault is Fault.INFRA and ends_as is None:
        return _requeue_or_give_up(job, attempt, reason, text, by=by)
    elif again is not None:
        return escalate(job, attempt, again, (reason, text), by=by)
    reason, text = ends_as or (reason, text)
    end_job(job, reason, text, exit_code=attempt.exit_code, at=ended_at, by=by)
    return job


def _account(job: Job, attempt: Attempt, usage: Usage) -> None:
    UsageRecord.objects.create(
        owner=job.owner.email,
        group=job.group,
        job=str(job.pk),
        attempt_number=attempt.number,
        gpu_seconds=usage.gpu_seconds,
        vram_mb_seconds=usage.vram_mb_seconds,
        fault=Reason(attempt.reason).fault,
    )


def _ended_at(attempt: Attempt) -> datetime:
    """When it exited, not when we came to see it. Clamped: a clock set back must not
    keep an attempt from ending."""
    now = timezone.now()
    ended_at = min(attempt.exited_at or now, now)
    return max(ended_at, attempt.started_at or ended_at)


def _requeue_or_give_up(
    job: Job, attempt: Attempt, reason: Reason, text: str, *, by: object
) -> Job:
    counted = job.attempts.exclude(reason__in=NODE_FAULTS)
    recent = counted.order_by("-number")[:MOST_INFRA_ENDINGS]
    story = [a.reason for a in recent if Reason(a.reason).fault is Fault.INFRA]
    if len(story) == MOST_INFRA_ENDINGS:
        told = ", ".join(reversed(story))
        text = f"{len(story)} attempts in a row were cut short: {told}. {text}"
        end_job(job, Reason.LAUNCH_FAULT, text, exit_code=None, by=by)
        return job
    ended = {"attempt": attempt.number, "reason": reason, "text": text}
    requeue(job, "requeued", ended, by=by)
    return job


def _in_phase(attempt: Attempt, *phases: Phase) -> QuerySet[Attempt]:
    return Attempt.objects.live().filter(pk=attempt.pk, phase__in=phases)
