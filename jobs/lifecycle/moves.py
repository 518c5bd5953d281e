"""The one write to `Job.status`, with the event and the audit record of each move."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Coalesce, Greatest
from django.utils import timezone

from jobs import audit
from jobs.exceptions import TransitionConflict
from jobs.models import Job, JobEvent, User
from jobs.signals import job_queued
from jobs.status import SOURCES, Reason, Status


def lock(job_id: UUID) -> Job:
    """The job's row, held to the end of the transaction. Whoever touches a job and its
    attempts takes it first: in another order two of them wait for each other."""
    return Job.objects.select_for_update().get(pk=job_id)


def move(
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
    note_each([job], event_type, by=by, **payload)


def note_each(
    jobs: Sequence[Job], event_type: str, *, by: object, **payload: Any
) -> None:
    """The same of several jobs, by two statements."""
    JobEvent.objects.bulk_create(
        JobEvent(job=job, event_type=event_type, payload=payload, actor=str(by))
        for job in jobs
    )
    targets = [job.pk for job in jobs]
    audit.record_each(f"job.{event_type}", targets=targets, by=by, **payload)


def cancel_reason(job: Job, by: User | None) -> Reason:
    own = by is not None and by.pk == job.owner_id
    return Reason.CANCELLED_BY_USER if own else Reason.CANCELLED_BY_OPERATOR


def announce_queued() -> None:
    """After the commit, let the scheduler look at the line: it has changed."""
    # The job is queued whatever comes of the wake: the supervisor wakes again.
    transaction.on_commit(_send_queued, robust=True)


# No partial: of a hook that fails Django tells the name, and a partial has none.
def _send_queued() -> None:
    job_queued.send(sender=Job)


def end_job(
    job: Job,
    reason: Reason,
    text: str,
    *,
    by: object,
    exit_code: int | None = None,
    at: datetime | None = None,
    guard: Q | None = None,
) -> None:
    at = at or timezone.now()
    move(
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
        finished_at=Coalesce(Greatest("started_at", at), at),
    )
