"""What people change of a job that waits: hold, release, move to the top."""

from typing import Protocol

from django.db import transaction
from django.utils import timezone

from jobs.exceptions import GpuJobsError, OperatorsOnly, TransitionConflict
from jobs.lifecycle.moves import announce_queued, lock, note
from jobs.models import Job, User
from jobs.status import TERMINAL, Status
from jobs.waiting import IN_LINE, outside_line


class Verb(Protocol):
    def __call__(self, job: Job, *, by: User) -> Job: ...


@transaction.atomic
def hold(job: Job, *, by: User) -> Job:
    """Keep a queued job from starting until it is released.

    An operator's hold takes the place of the owner's own, and not the other way
    round. Raises TransitionConflict for a job that is not queued.
    """
    _lock_queued(job, "held")
    is_owners = job.held_by_id == job.owner_id
    if job.held_at is None or (is_owners and by.pk != job.owner_id):
        _set_hold(job, by)
        note(job, "held", by=by)
        # What was kept for it is free for others.
        announce_queued()
    return job


@transaction.atomic
def release_hold(job: Job, *, by: User) -> Job:
    """Let a held job into the line again, at its age; nothing if it is not held.

    Raises OperatorsOnly for an operator's hold on somebody else's job, and
    TransitionConflict for a job that is not queued.
    """
    _lock_queued(job, "released")
    if job.held_at is None:
        return job
    if not job.may_be_released_by(by):
        raise OperatorsOnly(
            f"An operator holds {job}: ask an operator of this site to release it."
        )
    _set_hold(job, None)
    note(job, "released", by=by)
    announce_queued()
    return job


@transaction.atomic
def move_to_top(job: Job, *, by: User) -> Job:
    """Put a queued job before all others, also before those put there earlier.

    Raises OperatorsOnly, and TransitionConflict for a job that is not queued.
    """
    if not by.is_staff:
        raise OperatorsOnly("Only an operator can move a job to the top of the queue.")
    _lock_queued(job, "moved to the top")
    Job.objects.filter(pk=job.pk).update(topped_at=timezone.now())
    note(job, "moved_to_top", by=by)
    job.refresh_from_db()
    announce_queued()
    return job


def each_task(verb: Verb, job: Job, *, by: User) -> Job:
    """Do it to every task of the job's array that it can be done to.

    The last one goes first: a cancel would else free places for those that it comes
    to next. Raises what the last refusal was if there was nothing but refusals.
    """
    assert job.array_id is not None
    refusal: GpuJobsError = TransitionConflict(
        "Every task of this array has already ended."
    )
    done = 0
    tasks = Job.objects.tasks_of(job.array_id).exclude(status__in=TERMINAL)
    for task in tasks.reverse():
        try:
            verb(task, by=by)
            done += 1
        except (TransitionConflict, OperatorsOnly) as error:
            refusal = error
    if not done:
        raise refusal
    job.refresh_from_db()
    return job


def _lock_queued(job: Job, participle: str) -> None:
    lock(job.pk)
    job.refresh_from_db()
    if job.status != Status.QUEUED:
        raise TransitionConflict(
            f"{job} can not be {participle}: it is {job.status}, and no longer queued."
        )


def _set_hold(job: Job, by: User | None) -> None:
    """Set or end the hold, and tell what keeps the job out of the line then."""
    now = timezone.now()
    job.held_at, job.held_by = (now, by) if by else (None, None)
    reason, text = outside_line(job, job.open_parents, now) or IN_LINE
    job.wait_reason, job.wait_text = reason, text
    job.save(update_fields=["held_at", "held_by", "wait_reason", "wait_text"])
