"""Jobs of policies that wait for what is gone, or need not wait: routed again."""

from collections.abc import Mapping
from contextlib import suppress

from django.core.exceptions import ValidationError

from jobs import lifecycle
from jobs.exceptions import TransitionConflict
from jobs.models import Job, RoutingDecision
from jobs.routing import Prefer
from jobs.status import Cause, WaitReason
from scheduler.placement import Wait
from scheduler.reservation.holding import BY
from scheduler.reservation.routing import decide, is_stranded

# Of the heads of lanes, in one pass: each is a decision with the whole cluster in view.
AT_ONCE = 10
_MAY_BE_GONE = (WaitReason.NEVER_FITS, WaitReason.DRAINING, WaitReason.NODE_DOWN)


def reroute_waiting(waits: Mapping[str, Wait]) -> int:
    """Look at those that the pass said must wait; the number that was routed anew."""
    rows = Job.objects.filter(pk__in=list(waits)[:1000], policy__isnull=False)
    rows = rows.select_related("owner", "policy").order_by("created_at")[:AT_ONCE]
    return sum(_reroute(job, waits[str(job.pk)].reason) for job in rows)


def _reroute(job: Job, reason: WaitReason) -> bool:
    decision = _better(job, reason)
    if decision is None:
        return False
    with suppress(TransitionConflict):
        lifecycle.reroute(job, decision, by=BY)
        return True
    return False


def _better(job: Job, reason: WaitReason) -> RoutingDecision | None:
    assert job.policy is not None
    is_soonest = job.policy.prefer == Prefer.SOONEST
    if not is_soonest and not (reason in _MAY_BE_GONE and is_stranded(job)):
        return None
    last = job.decisions.order_by("number").last()
    tried = tuple(last.tried) if last else ()
    try:
        decision = decide(job, job.policy, Cause.FALLBACK, tried=tried)
    except ValidationError:  # rows that are no policy any more: an operator sees it
        return None
    chosen = [decision.tier, decision.gpu_name]
    if not decision.tier or chosen == [job.tier, job.gpu_name]:
        return None
    # Of tiers that are all busy one is as good as another: it waits where it is.
    return decision if chosen not in decision.ground["busy"] else None
