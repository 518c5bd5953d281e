"""Where a task goes: the planner's word on what the cluster is at this moment."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

from django.core.exceptions import ValidationError
from django.db.models import Q

from jobs.exceptions import GpuJobsError
from jobs.models import Job, RoutingDecision, RoutingPolicy, User
from jobs.models.sitepolicy import told_allowed
from jobs.routing import Policy, Prefer, Risk, RoutingError, Tier, check_params
from jobs.spec import ceiling
from jobs.status import Cause
from scheduler import placement, planner
from scheduler.models import GPU, GpuState
from scheduler.placement import Placement, Snapshot
from scheduler.planner import Decision, Ground
from scheduler.reservation.asking import consider, over_limits
from scheduler.reservation.line import request_of
from scheduler.reservation.snapshots import load_hardware

# The fields of a job that its tier decides.
OF_A_TIER = (
    *("image", "command", "env", "gpu_count", "min_vram_mb", "share", "gpu_name"),
    *("cpus", "memory_mb", "shm_mb", "timeout_s", "grace_s"),
)


class Unroutable(GpuJobsError):
    """No tier of the policy will do; says why for each."""


def route(job: Job, row: RoutingPolicy) -> RoutingDecision:
    """The tier that a job which is not saved yet starts with. Raises Unroutable."""
    decision = decide(job, row, Cause.SUBMITTED)
    if not decision.tier:
        raise Unroutable(decision.text)
    return decision


def routed(spec: Mapping[str, Any], row: RoutingPolicy, *, by: User) -> dict[str, Any]:
    """The arguments of lifecycle.submit for a model job: with its tier, and what that
    asks for. Raises Unroutable, and ValidationError of its params."""
    params, risk = spec.get("params") or {}, spec.get("risk") or Risk.LOW
    try:
        check_params(row.read(), params)
    except RoutingError as error:
        wrong = ValidationError(str(error), "bad_params")
        raise ValidationError({"params": wrong}) from error
    own = {**spec, "params": params, "risk": risk, "policy": row}
    decision = route(Job(owner=by, **own), row)
    own |= {"tier": decision.tier, **decision.request}
    return {**own, "decision": decision}


def decide(
    job: Job, row: RoutingPolicy, cause: Cause, *, tried: tuple[str, ...] = ()
) -> RoutingDecision:
    """By the planner; not saved. Its tier is empty where none will do."""
    policy = row.read()
    ground = _ground(policy, job)
    risk = Risk(job.risk)
    made = planner.plan(policy, job.params, risk, ground, tried=tried)
    chosen = policy.tier(made.tier) if made.tier else None
    return RoutingDecision(
        cause=cause,
        policy=row,
        tier=made.tier,
        gpu_name=made.gpu_name,
        model_version=chosen.model_version if chosen else "",
        prompt_version=chosen.prompt_version if chosen else "",
        params_digest=_digest(job.params),
        tried=list(tried),
        request=request_fields(chosen, made.gpu_name) if chosen else {},
        ground=_as_json(ground),
        **told(made),
    )


def told(made: Decision) -> dict[str, Any]:
    """What a decision says, as it is kept: the same inputs must give the same."""
    return {
        "risk": made.risk.value,
        "complexity": made.score.complexity,
        "contributions": [asdict(each) for each in made.score.contributions],
        "candidates": [asdict(each) for each in made.candidates],
        "fallback": made.fallback,
        "text": made.text,
    }


def request_fields(tier: Tier, gpu_name: str) -> dict[str, Any]:
    """What a job asks for that runs on this tier, as fields of Job."""
    command = list(tier.command) if isinstance(tier.command, tuple) else tier.command
    fields = {name: getattr(tier, name) for name in OF_A_TIER if name != "gpu_name"}
    own = {"command": command, "env": dict(tier.env), "gpu_name": gpu_name}
    return {**fields, **own}


def _digest(params: Any) -> str:
    text = json.dumps(params, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


# --- The ground ----------------------------------------------------------------------


def _ground(policy: Policy, job: Job) -> Ground:
    snapshot = healthy(load_hardware())
    never: dict[tuple[str, str], str] = {}
    over: dict[tuple[str, str], str] = {}
    busy: list[tuple[str, str]] = []
    for key, trial in _trials(policy, job):
        if refusal := _not_here(trial, snapshot):
            never[key] = refusal
        elif refusal := over_limits(trial, snapshot):
            over[key] = refusal
        elif policy.prefer is Prefer.SOONEST and not _starts_now(trial):
            busy.append(key)
    return Ground(never=never, over_quota=over, busy=tuple(busy))


def _trials(policy: Policy, job: Job) -> Iterator[tuple[tuple[str, str], Job]]:
    for tier in policy.tiers:
        for gpu_name in tier.gpu_names or ("",):
            trial = Job(
                owner=job.owner,
                group=job.group,
                priority=job.priority,
                node_name=job.node_name,
                node_labels=job.node_labels,
                **request_fields(tier, gpu_name),
            )
            yield (tier.name, gpu_name), trial


def _not_here(trial: Job, snapshot: Snapshot) -> str:
    asked = {name: getattr(trial, name) for name in OF_A_TIER}
    if errors := ceiling.ceiling_errors(asked, told_allowed()):
        return " ".join(ValidationError(errors).messages)
    return placement.fits_ever(snapshot, request_of(trial))


def _starts_now(trial: Job) -> bool:
    _, explained = consider(trial)
    return explained is not None and isinstance(explained.decision, Placement)


def healthy(snapshot: Snapshot) -> Snapshot:
    """Without GPUs that are gone, or quarantined with no time at which they come back.
    What is drained or only down for now is waited for."""
    gone = Q(is_present=False) | Q(state=GpuState.QUARANTINED, state_until=None)
    ids = set(GPU.objects.filter(gone).values_list("pk", flat=True))
    gpus = {gpu_id: gpu for gpu_id, gpu in snapshot.gpus.items() if gpu_id not in ids}
    return replace(snapshot, gpus=gpus)


def is_stranded(job: Job) -> bool:
    """Whether no healthy GPU could ever hold what it asks for."""
    return bool(placement.fits_ever(healthy(load_hardware()), request_of(job)))


def _as_json(ground: Ground) -> dict[str, Any]:
    return {
        "never": _rows(ground.never),
        "over_quota": _rows(ground.over_quota),
        "busy": sorted(map(list, ground.busy)),
    }


def _rows(refusals: Mapping[tuple[str, str], str]) -> list[list[str]]:
    return sorted([*key, text] for key, text in refusals.items())


# --- Making it again -----------------------------------------------------------------


def replayed(row: RoutingDecision) -> dict[str, tuple[Any, Any]]:
    """Decide again from what was recorded; by field what was said and is said now where
    they differ. Raises ValueError for a decision that no policy made."""
    if row.policy is None:
        raise ValueError(f"{row} was made by no policy.")
    ground = Ground(
        never={(tier, gpu): text for tier, gpu, text in row.ground["never"]},
        over_quota={(tier, gpu): text for tier, gpu, text in row.ground["over_quota"]},
        busy=tuple((tier, gpu) for tier, gpu in row.ground["busy"]),
    )
    policy, risk = row.policy.read(), Risk(row.risk)
    made = planner.plan(policy, row.job.params, risk, ground, tried=tuple(row.tried))
    again = {**told(made), "tier": made.tier, "gpu_name": made.gpu_name}
    again = json.loads(json.dumps(again))
    return {
        name: (getattr(row, name), value)
        for name, value in again.items()
        if getattr(row, name) != value
    }
