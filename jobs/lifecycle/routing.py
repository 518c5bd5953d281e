"""Back to the queue: as it was, or with what a routing decision says to try next."""

from collections.abc import Mapping
from typing import Any

from django.db import transaction
from django.db.models import F, Q

from jobs.exceptions import TransitionConflict
from jobs.lifecycle.moves import announce_queued, lock, move, note
from jobs.models import Attempt, Job, RoutingDecision
from jobs.status import Reason, Status
from jobs.waiting import IN_LINE


def requeue(
    job: Job, event_type: str, told: Mapping[str, Any], *, by: object, **changes: Any
) -> None:
    """A live job waits again, at its age; not one that is to be cancelled."""
    move(
        job,
        Status.QUEUED,
        by=by,
        event_type=event_type,
        payload=told,
        guard=Q(cancel_requested_at__isnull=True),
        assigned_gpu_indices=[],
        assigned_gpu_uuids=[],
        wait_reason=IN_LINE[0],
        wait_text=IN_LINE[1],
        reason="",
        **changes,
    )
    announce_queued()


def escalate(
    job: Job,
    attempt: Attempt,
    decision: RoutingDecision,
    ended: tuple[Reason, str],
    *,
    by: object,
) -> Job:
    """After an attempt that ended so, the next: by the decision, which is written."""
    told = {
        "attempt": attempt.number,
        "reason": ended[0],
        "text": ended[1],
        **_written(job, decision),
    }
    changes = _changes(job, decision)
    requeue(job, "escalated", told, by=by, escalations=F("escalations") + 1, **changes)
    return job


@transaction.atomic
def reroute(job: Job, decision: RoutingDecision, *, by: object) -> None:
    """A queued job asks for something else, as what it waited for is gone.

    Raises TransitionConflict if it waits no more.
    """
    lock(job.pk)
    told = _written(job, decision)
    waiting = Job.objects.filter(pk=job.pk, status=Status.QUEUED)
    if waiting.update(**_changes(job, decision)) != 1:
        raise TransitionConflict(f"{job} waits no more.")
    note(job, "rerouted", by=by, **told)
    job.refresh_from_db()
    announce_queued()


def _written(job: Job, decision: RoutingDecision) -> dict[str, Any]:
    decision.job, decision.number = job, job.decisions.count() + 1
    decision.save(force_insert=True)
    told = {"decision": decision.number, "why": decision.text}
    # A tier is all that a policy's decision changes; without one it is some number.
    return {**told, **({"tier": decision.tier} if decision.tier else decision.request)}


def _changes(job: Job, decision: RoutingDecision) -> dict[str, Any]:
    """With what was asked for of each field, as it was before the first change."""
    before = {name: getattr(job, name) for name in decision.request}
    return {
        "tier": decision.tier,
        "asked": {**before, **job.asked},
        **decision.request,
    }
