"""Jobs that wait for other jobs: how those ended, and what follows from it."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db.models import Q, QuerySet
from django.utils import timezone

from jobs.exceptions import TransitionConflict
from jobs.lifecycle.moves import announce_queued
from jobs.lifecycle.requests import fail_queued
from jobs.lifecycle.waits import explain_waits
from jobs.models import Job, JobDependency, User
from jobs.spec import Parent
from jobs.status import (
    BAD_OUTCOMES,
    DELETED,
    TERMINAL,
    Condition,
    Reason,
    Status,
    WaitReason,
)
from jobs.waiting import IN_LINE, outside_line

# So many at once; the rest wait for the next pass, which is asked for.
MOST_ENDED = 500
# From the best to the worst: of several, an array ended with the worst.
_RANK = (Status.SUCCEEDED, Status.CANCELLED, Status.FAILED)


def outcome_of(statuses: Collection[str]) -> str:
    """How a parent ended whose jobs have these statuses; empty while one has not.

    Nothing at all is left of a job that was deleted before anybody looked.
    """
    if any(status not in (*TERMINAL, DELETED) for status in statuses):
        return ""
    worst = (bad for bad in BAD_OUTCOMES if bad in statuses)
    return next(worst, Status.SUCCEEDED if statuses else DELETED)


def check_parents(parents: Sequence[Parent], *, by: User) -> dict[UUID, str]:
    """How each parent ended, empty where it has not.

    Raises ValidationError of depends_on for one that `by` may not see, and for one
    that did not succeed though it had to.
    """
    if not parents:
        return {}
    ids = [parent.job_id for parent in parents]
    found = _statuses(Job.objects.visible_to(by), ids)
    for parent in parents:
        if refusal := _refusal(parent, found.get(parent.job_id, set())):
            raise ValidationError({"depends_on": refusal})
    return {job_id: outcome_of(found[job_id]) for job_id in ids}


def _refusal(parent: Parent, statuses: Collection[str]) -> ValidationError | None:
    if not statuses:
        text = f"There is no job {parent.job_id}, or it is not yours."
        return ValidationError(text, "no_such_job")
    outcome = outcome_of(statuses)
    if parent.condition == Condition.AFTER_OK and outcome in BAD_OUTCOMES:
        text = (
            f"Job or array {parent.job_id} has ended already: it is {outcome}. Leave it "
            "out, or ask for after_any."
        )
        return ValidationError(text, "parent_failed")
    return None


def _statuses(jobs: QuerySet[Job], ids: Any) -> dict[UUID | None, set[str]]:
    """By the id of a job or of an array; that of an array is its first task's too."""
    found: dict[UUID | None, set[str]] = defaultdict(set)
    single = jobs.filter(pk__in=ids).values_list("pk", "status")
    tasks = jobs.filter(array_id__in=ids).values_list("array_id", "status").distinct()
    for one, status in (*single.order_by(), *tasks.order_by()):
        found[one].add(status)
    return found


def remember_deleted(job: Job) -> None:
    """Keep for those that wait how the job ended that is about to be deleted.

    Of an array that still runs, this is all that will tell of its deleted task.
    """
    parents = {job.pk, job.array_id or job.pk}
    better = ("", *_RANK[: _RANK.index(Status(job.status))])
    rows = JobDependency.objects.filter(parent_id__in=parents, outcome="")
    if rows.filter(deleted_outcome__in=better).update(deleted_outcome=job.status):
        announce_queued()


def resolve_dependencies(*, by: object) -> int:
    """Settle what waits for jobs that have ended; the number of jobs that this moved.

    A job whose parent did not succeed though it had to ends, and with it those that
    wait for it in turn. For the scheduling pass; each step may be cut short and is
    taken up by the next call.
    """
    now, ended, freed = timezone.now(), 0, 0
    while True:
        settled = _write_outcomes()
        ended += _end_the_spoiled(MOST_ENDED - ended, by=by)
        freed += _tell_the_others(settled, now)
        if ended >= MOST_ENDED:
            announce_queued()
            return ended + freed
        if not settled:
            return ended + freed


def _write_outcomes() -> set[UUID]:
    """The parents that were found to have ended."""
    waited = JobDependency.objects.filter(outcome="").order_by()
    rows = set(waited.values_list("parent_id", "deleted_outcome").distinct())
    if not rows:
        return set()
    found = _statuses(Job.objects.all(), waited.values("parent_id"))
    settled = set()
    for parent_id, deleted in rows:
        statuses = found.get(parent_id, set()) | ({deleted} - {""})
        # One that was deleted since we looked does not match, and comes next time.
        same = waited.filter(parent_id=parent_id, deleted_outcome=deleted)
        outcome = outcome_of(statuses)
        if outcome and same.update(outcome=outcome):
            settled.add(parent_id)
    return settled


def _end_the_spoiled(most: int, *, by: object) -> int:
    spoiled = JobDependency.objects.filter(
        job__status=Status.QUEUED,
        condition=Condition.AFTER_OK,
        outcome__in=BAD_OUTCOMES,
    )
    rows = {row.job_id: row for row in spoiled.select_related("job")[:most]}
    names = _names(row.parent_id for row in rows.values())
    ended = 0
    for row in rows.values():
        named = names.get(row.parent_id, "a job")
        text = (
            f"It was to start after {named} ({row.parent_id}) had succeeded, and that "
            f"is {row.outcome}. Mend that first, then submit both again."
        )
        # Cancelled meanwhile, it has ended as well.
        with suppress(TransitionConflict):
            fail_queued(row.job, Reason.DEPENDENCY_FAILED, text, by=by)
            ended += 1
    return ended


def _names(ids: Iterable[UUID]) -> dict[UUID, str]:
    wanted = set(ids)
    if not wanted:
        return {}
    jobs = Job.objects.filter(pk__in=wanted).values_list("pk", "name", "array")
    return {pk: f"array {name}" if array else name for pk, name, array in jobs}


def _tell_the_others(settled: Collection[UUID], now: datetime) -> int:
    """Correct what is told of jobs whose parents or whose time have come; the number
    of those that nothing keeps out of the line any more."""
    began = Q(wait_reason=WaitReason.BEGIN_TIME, begin_at__lte=now)
    told = Job.objects.queued().filter(began | Q(wait_reason=WaitReason.DEPENDENCY))
    reason, text = IN_LINE
    freed = told.order_by().independent().update(wait_reason=reason, wait_text=text)
    touched = began | Q(dependencies__parent_id__in=settled)
    said: dict[tuple[WaitReason, str], list[UUID]] = defaultdict(list)
    for job in told.filter(touched).distinct().prefetch_related("dependencies"):
        if still := outside_line(job, job.open_parents, now):
            said[still].append(job.pk)
    for (reason, text), job_ids in said.items():
        explain_waits(job_ids, reason, text)
    return freed
