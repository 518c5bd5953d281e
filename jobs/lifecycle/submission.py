"""Submit: from a spec to a queued job, or to one for each task of an array."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from jobs.exceptions import OverQuota
from jobs.failpoints import failpoint
from jobs.lifecycle.dependencies import check_parents
from jobs.lifecycle.moves import announce_queued, note_each
from jobs.models import (
    Job,
    JobDependency,
    Quota,
    RoutingDecision,
    RoutingPolicy,
    User,
)
from jobs.spec import Parent, array
from jobs.status import Status
from jobs.waiting import IN_LINE, outside_line

# Where no operator has set a limit: more rows than a person means to make.
MOST_QUEUED = 10_000


@transaction.atomic
def submit(
    *,
    by: User,
    idempotency_key: str | None = None,
    depends_on: Sequence[Parent] = (),
    hold: bool = False,
    decision: RoutingDecision | None = None,
    **spec: Any,
) -> Job:
    """Queue a job owned by `by`, or all tasks of an array; the first is returned.

    `spec` is validated field values of Job; of a model job `decision` is how it was
    routed, from which moment on its policy's version is frozen. Raises OverQuota, and ValidationError of
    depends_on for a parent that `by` may not see or that has failed.
    """
    now = timezone.now()
    outcomes = check_parents(depends_on, by=by)
    jobs = _tasks({"owner": by, **spec}, now)
    refuse_over_quota(by, spec.get("group", ""), len(jobs))
    first = jobs[0]
    first.idempotency_key = idempotency_key
    waited = [parent_id for parent_id, outcome in outcomes.items() if not outcome]
    for job in jobs:
        if hold:
            job.held_at, job.held_by = now, by
        job.wait_reason, job.wait_text = outside_line(job, waited, now) or IN_LINE
    Job.objects.bulk_create(jobs)
    JobDependency.objects.bulk_create(
        JobDependency(
            job=job,
            parent_id=parent.job_id,
            condition=parent.condition,
            outcome=outcomes[parent.job_id],
        )
        for job in jobs
        for parent in depends_on
    )
    asked = {"image": first.image, "gpu_count": first.gpu_count}
    if decision is not None:
        _write_decisions(decision, jobs, now)
        asked |= {"model": first.model_name, "tier": decision.tier}
        asked["why"] = decision.text
    # A later release would hide that it was asked for; the story keeps it.
    note_each(jobs, Status.QUEUED, by=by, **asked, **({"hold": True} if hold else {}))
    announce_queued()
    failpoint("submit.written")
    return first


def _write_decisions(
    decision: RoutingDecision, jobs: Sequence[Job], now: datetime
) -> None:
    used = RoutingPolicy.objects.filter(pk=decision.policy_id or 0, used_at=None)
    used.update(used_at=now)
    told = {
        field.attname: getattr(decision, field.attname)
        for field in decision._meta.concrete_fields
        if field.name not in ("id", "job", "number")
    }
    RoutingDecision.objects.bulk_create(
        RoutingDecision(job=job, number=1, **told) for job in jobs
    )


def _tasks(fields: dict[str, Any], now: datetime) -> list[Job]:
    if not fields.get("array"):
        return [Job(**fields, created_at=now)]
    jobs: list[Job] = []
    for position, index in enumerate(array.parse(fields["array"]).indices):
        # Jobs of one age have no order of their own: a task is older than the next.
        created_at = now + timedelta(microseconds=position)
        job = Job(**fields, array_index=index, created_at=created_at)
        job.array_id = jobs[0].pk if jobs else job.pk
        jobs.append(job)
    return jobs


@transaction.atomic
def refuse_over_quota(by: User, group: str, count: int) -> None:
    """Raise OverQuota if the queue may not take so many more jobs.

    Two submissions at once would each see the other's jobs missing: the owner's row is
    held from the count to the commit, and then that of the group's limit.
    """
    User.objects.select_for_update(no_key=True).get(pk=by.pk)
    users, groups, default = Quota.objects.concerning(by, group).limits()
    own = users.get(by.email, default)
    limit = own.queued_jobs if own else MOST_QUEUED
    queued = Job.objects.filter(status=Status.QUEUED)
    if limit is not None:
        _refuse_over("You have", queued.filter(owner=by).count(), count, limit)
    shared = groups.get(group)
    if shared and shared.queued_jobs is not None:
        Quota.objects.select_for_update(no_key=True).get(pk=shared.pk)
        present = queued.filter(group=group).count()
        _refuse_over(f"The group {group} has", present, count, shared.queued_jobs)


def _refuse_over(who: str, present: int, count: int, limit: int) -> None:
    if present + count > limit:
        raise OverQuota(
            f"{who} {present:,} queued jobs of at most {limit:,}: {count:,} more are too "
            "many. Wait until some have started, or cancel some."
        )
