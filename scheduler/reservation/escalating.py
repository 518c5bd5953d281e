"""What follows an attempt that came to no result: the next tier, the next rung, the end."""

from collections.abc import Iterator

from jobs.models import Attempt, Job, RoutingDecision
from jobs.routing import Trouble
from jobs.status import Cause, Kind, OnOom, Reason
from scheduler import ladder, placement
from scheduler.reservation.line import request_of
from scheduler.reservation.routing import decide, healthy
from scheduler.reservation.snapshots import load_hardware

Ending = tuple[Reason, str]
# Either what is tried next, or how the job ends where that is not how the attempt did.
Next = tuple[RoutingDecision | None, Ending | None]

_TROUBLES = {
    Reason.VALIDATOR_REJECTED: Trouble.REJECTED,
    Reason.CUDA_OOM: Trouble.CUDA_OOM,
    Reason.MEMORY_OOM: Trouble.MEMORY_OOM,
    Reason.TIMED_OUT: Trouble.TIMED_OUT,
}


def next_try(attempt: Attempt, reason: Reason, text: str) -> Next:
    """After the attempt ended so. Writes nothing."""
    trouble = _TROUBLES.get(reason)
    if trouble is None:
        return None, None
    if attempt.job.policy is not None:
        return _next_tier(attempt, trouble, (reason, text))
    return _next_rung(attempt, trouble, (reason, text))


# --- Tiers ---------------------------------------------------------------------------


def _next_tier(attempt: Attempt, trouble: Trouble, ended: Ending) -> Next:
    job = attempt.job
    assert job.policy is not None
    policy = job.policy.read()
    if trouble not in policy.escalate_on:
        return None, None
    if job.escalations >= policy.max_escalations:
        why = f"Its policy lets it escalate {policy.max_escalations} times."
        return None, _exhausted(attempt, ended, why)
    tried = tuple(dict.fromkeys(each.tier for each in _own_attempts(job)))
    decision = decide(job, job.policy, Cause(trouble), tried=tried)
    if not decision.tier:
        return None, _exhausted(attempt, ended, decision.text)
    return decision, None


def _exhausted(attempt: Attempt, ended: Ending, why: str) -> Ending:
    """With what became of each attempt: infra faults are no tier's doing."""
    told = "; ".join(_stories(attempt, ended))
    return Reason.TIERS_EXHAUSTED, f"{why} What was tried: {told}."


def _stories(attempt: Attempt, ended: Ending) -> Iterator[str]:
    for each in _own_attempts(attempt.job):
        if each.pk == attempt.pk:
            yield f"{each.tier}, {ended[0]} ({ended[1].rstrip('.')})"
        elif each.decision_id != attempt.decision_id and each.reason in _TROUBLES:
            why = str(each.evidence.get("text", "")).rstrip(".")
            yield f"{each.tier}, {each.reason} ({why})"


def _own_attempts(job: Job) -> list[Attempt]:
    return list(job.attempts.filter(kind=Kind.JOB).order_by("number"))


# --- Rungs ---------------------------------------------------------------------------


def _next_rung(attempt: Attempt, trouble: Trouble, ended: Ending) -> Next:
    job = attempt.job
    if trouble is Trouble.CUDA_OOM and job.gpu_count:
        field, word, rung = "on_oom", job.on_oom, _more_vram(attempt)
    elif trouble is Trouble.MEMORY_OOM:
        field, word, rung = "on_memory_oom", job.on_memory_oom, _more_memory(attempt)
    else:
        return None, None
    if text := _why_not(job, field, word, rung):
        return None, (ended[0], f"{ended[1]} {text}")
    cause = Cause(trouble)
    return RoutingDecision(cause=cause, request=rung.changes, text=rung.text), None


def _why_not(job: Job, field: str, word: str, rung: ladder.Rung) -> str:
    """Why the rung is not tried, and what it would be; empty if it is tried."""
    if not rung.changes:
        return rung.text
    if word != OnOom.ESCALATE:
        told = ", ".join(f"{name} {value}" for name, value in rung.changes.items())
        return f"Ask for {told}, or for {field}: escalate, which tries that by itself."
    if job.escalations >= ladder.MOST_RUNGS:
        return f"It was tried with more {ladder.MOST_RUNGS} times."
    return ""


def _more_memory(attempt: Attempt) -> ladder.Rung:
    nodes = load_hardware().nodes.values()
    given = attempt.memory_mb or attempt.job.memory_mb
    return ladder.more_memory(given, (node.memory_mb for node in nodes))


def _more_vram(attempt: Attempt) -> ladder.Rung:
    job, snapshot = attempt.job, healthy(load_hardware())
    request = request_of(job)
    had = [gpu for gpu in snapshot.gpus.values() if gpu.uuid in attempt.gpu_uuids]
    sizes = [g.usable_mb for g in snapshot.gpus.values() if placement.suits(g, request)]
    return ladder.more_vram(
        job.min_vram_mb,
        is_shared=job.share,
        had_mb=min((gpu.usable_mb for gpu in had), default=0),
        sizes_mb=sizes,
    )
