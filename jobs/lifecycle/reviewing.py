"""A result that waits for a person: it needs no container and no node any more."""

from dataclasses import asdict
from datetime import datetime

from django.db import transaction
from django.utils import timezone

from jobs.exceptions import OperatorsOnly, TransitionConflict
from jobs.lifecycle.attempts import Usage, finish
from jobs.lifecycle.moves import announce_queued, lock, note
from jobs.models import Attempt, Evaluation, Job, User
from jobs.status import IN_REVIEW, Phase, Reason, Status

_EXPIRED = "Nobody looked at its result in time."


@transaction.atomic
def park(attempt: Attempt, until: datetime, *, usage: Usage, by: object) -> None:
    """judging, accepted by the validators -> in review until then at the latest.

    What the attempt used is written now: it uses nothing more.
    """
    job = lock(attempt.job_id)
    judged = Attempt.objects.live().filter(pk=attempt.pk, phase=Phase.JUDGING)
    if job.cancel_requested or not judged.exists():
        raise TransitionConflict(f"{attempt} is not being judged.")
    judged.update(evidence={**attempt.evidence, "used": asdict(usage)})
    # The validators accepted it; the last word is still to come.
    waits = Evaluation.objects.filter(attempt=attempt)
    waits.update(review_until=until, is_accepted=None)
    Job.objects.filter(pk=job.pk, status=Status.RUNNING).update(
        reason=IN_REVIEW,
        reason_text=f"A person must accept its result by {until:%Y-%m-%d %H:%M} UTC.",
    )
    note(job, IN_REVIEW, by=by, attempt=attempt.number, until=until.isoformat())
    attempt.refresh_from_db()


@transaction.atomic
def review(job: Job, *, accepts: bool, text: str = "", by: User) -> Job:
    """An operator's word on a result that waits for it: the job ends.

    Raises OperatorsOnly, and TransitionConflict for a job that is not in review.
    """
    if not by.is_staff:
        raise OperatorsOnly("Only an operator can review a result.")
    lock(job.pk)
    job.refresh_from_db()
    if job.reason != IN_REVIEW:
        raise TransitionConflict(f"{job} has no result that waits for a review.")
    attempt = _parked(job)
    Evaluation.objects.filter(attempt=attempt).update(
        is_accepted=accepts,
        review_accepts=accepts,
        review_text=text,
        reviewed_at=timezone.now(),
        reviewed_by=by.email,
    )
    told = {"attempt": attempt.number, "accepts": accepts, "text": text}
    note(job, "reviewed", by=by, **told)
    if accepts:
        ended = Reason.COMPLETED, f"{by.email} accepted its result."
    else:
        ended = Reason.REVIEW_REJECTED, f"{by.email} rejected its result. {text}"
    return end_parked(job, *ended, by=by)


def expire_reviews(*, by: object) -> int:
    """End what nobody reviewed in time; the number of jobs."""
    late = Job.objects.filter(
        reason=IN_REVIEW,
        status=Status.RUNNING,
        attempts__ended_at=None,
        attempts__evaluation__review_until__lte=timezone.now(),
    )
    return sum(_expire(job, by=by) for job in late)


@transaction.atomic
def _expire(job: Job, *, by: object) -> bool:
    lock(job.pk)
    job.refresh_from_db()
    if job.reason != IN_REVIEW:
        return False
    Evaluation.objects.filter(attempt=_parked(job)).update(is_accepted=False)
    end_parked(job, Reason.REVIEW_EXPIRED, _EXPIRED, by=by)
    return True


def _parked(job: Job) -> Attempt:
    return job.attempts.live().get(phase=Phase.JUDGING)


def end_parked(job: Job, reason: Reason, text: str, *, by: object) -> Job:
    """End the attempt that was parked, and its job with it."""
    attempt = _parked(job)
    usage = Usage(**attempt.evidence["used"])
    ended = finish(attempt, reason, text, usage=usage, by=by)
    # Those that depend on it must hear.
    announce_queued()
    return ended
