"""What people and deadlines ask for: cancel, stop, end."""

from datetime import datetime

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from jobs.exceptions import TransitionConflict
from jobs.failpoints import failpoint
from jobs.lifecycle.moves import (
    announce_queued,
    cancel_reason,
    end_job,
    lock,
    note,
)
from jobs.lifecycle.reviewing import end_parked
from jobs.models import Attempt, Job, User
from jobs.status import IN_REVIEW, Reason, Status


@transaction.atomic
def request_cancel(job: Job, *, by: User) -> Job:
    """Cancel a queued job at once; of a live one write the wish for its node.

    Raises TransitionConflict for a job that has ended.
    """
    lock(job.pk)
    job.refresh_from_db()
    if job.is_terminal:
        raise TransitionConflict(f"{job} has already ended: it is {job.status}.")
    if job.cancel_requested:
        return job
    now = timezone.now()
    reason = cancel_reason(job, by)
    Job.objects.filter(pk=job.pk).update(
        cancel_requested_at=now, cancel_requested_by=by
    )
    if job.status == Status.QUEUED:
        end_job(job, reason, "Cancelled before it started.", by=by)
        # What was kept for it is free for others, and who depends on it must hear.
        announce_queued()
        return job
    note(job, "cancel_requested", by=by)
    if job.reason == IN_REVIEW:  # no container is left that a node would have to stop
        end_parked(job, reason, "Cancelled while its result was in review.", by=by)
        job.refresh_from_db()
        return job
    for attempt in job.attempts.live():
        _wish(attempt, reason, now)
    failpoint("cancel.written")
    job.refresh_from_db()
    return job


@transaction.atomic
def request_stop(
    attempt: Attempt, reason: Reason, *, text: str = "", by: object
) -> bool:
    """Write the wish that this attempt ends for `reason`; False if one stands. `text`
    becomes part of its story."""
    lock(attempt.job_id)
    if not _wish(attempt, reason, timezone.now()):
        return False
    if text:
        attempt.refresh_from_db(fields=["evidence"])
        attempt.evidence["stop_text"] = text
        attempt.save(update_fields=["evidence"])
    note(attempt.job, "stop_requested", by=by, attempt=attempt.number, reason=reason)
    return True


def _wish(attempt: Attempt, reason: Reason, at: datetime) -> bool:
    rows = Attempt.objects.live().filter(pk=attempt.pk, stop_reason="")
    return rows.update(stop_reason=reason, stop_requested_at=at) == 1


@transaction.atomic
def fail_queued(job: Job, reason: Reason, text: str, *, by: object) -> None:
    """End a job that can not be started: no image, or nowhere it could ever fit."""
    end_job(job, reason, text, by=by, guard=Q(status=Status.QUEUED))
