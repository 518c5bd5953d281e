"""The pass itself: load, decide outside any transaction, apply each placement guarded."""

import logging
from collections import defaultdict
from collections.abc import Mapping
from time import monotonic, sleep

from django.utils import timezone

from jobs import lifecycle
from jobs.models import Job
from jobs.status import WaitReason
from jobs.waiting import behind
from scheduler import placement
from scheduler.placement import Lane, Placement, Wait
from scheduler.queue import enqueue
from scheduler.reservation.decisions import keep
from scheduler.reservation.holding import BY, ReservationLost, reserve
from scheduler.reservation.line import Line, lane_key, load_lanes
from scheduler.reservation.rerouting import reroute_waiting
from scheduler.reservation.snapshots import load_snapshot
from scheduler.reservation.waking import the_only_pass, wake

logger = logging.getLogger(__name__)

# Of the passes that one task makes, one after another.
LONGEST_S = 10.0
LONGEST_REST_S = 0.2


def run_passes() -> int:
    """Serve every wake there is, unless another process is at it; jobs placed."""
    placed, until = 0, monotonic() + LONGEST_S
    while monotonic() < until:
        with the_only_pass() as wakes:
            if wakes is None:
                return placed
            placed += _pass_and_rest()
    # A task must not run for ever, however many wakes come: another one goes on.
    enqueue("schedule")
    return placed


def _pass_and_rest() -> int:
    """After a pass that could start nothing, as long a rest, with the lease held: a
    crowd that goes on submitting costs fewer passes, and never a whole core."""
    began = monotonic()
    placed = one_pass()
    if not placed:
        sleep(min(LONGEST_REST_S, monotonic() - began))
    return placed


def one_pass() -> int:
    """Decide for the whole line and apply; the number of jobs placed."""
    lifecycle.resolve_dependencies(by=BY)
    now = timezone.now()
    line = load_lanes(now)
    if not line.lanes:
        return 0
    snapshot = load_snapshot(now, line.lanes)
    made = placement.plan(snapshot, line.lanes)
    placed = _apply(line.lanes, made.placements)
    if placed:
        keep(snapshot, line.lanes, made)
    _tell(line, made)
    reroute_waiting(made.waits)
    if not made.is_whole:
        wake()
    return placed


def _apply(lanes: list[Lane], placements: Mapping[str, Placement]) -> int:
    lane_of = {
        job_id: lane
        for lane in lanes
        for job_id, _ in lane.jobs
        if job_id in placements
    }
    return sum(
        _reserve(job_id, placed, lane_of[job_id])
        for job_id, placed in placements.items()
    )


def _reserve(job_id: str, placed: Placement, lane: Lane) -> bool:
    try:
        reserve(job_id, placed, lane_key=lane_key(lane))
    except ReservationLost as lost:
        logger.info("reservation lost", extra={"job": job_id, "why": str(lost)})
        return False
    return True


def _tell(line: Line, made: placement.Plan) -> None:
    """Write why they wait: of the first of each lane by its own reason, of those
    behind it in general. What is written already stays untouched."""
    told: dict[tuple[WaitReason, str], list[str]] = defaultdict(list)
    # Of a plan that is not whole those behind were not all looked at.
    for lane in line.lanes if made.is_whole else ():
        waiting = [one for one, _ in lane.jobs if one not in made.placements]
        reasons = (made.waits[one].reason for one in waiting if one in made.waits)
        said = behind(next(reasons, WaitReason.PRIORITY))
        others = (one for one in waiting if one not in made.waits)
        told[said].extend(one for one in others if line.reasons[one] != said[0])
    for (reason, text), ids in (*told.items(), *_changed(made.waits).items()):
        lifecycle.explain_waits(ids, reason, text)


def _changed(waits: Mapping[str, Wait]) -> dict[tuple[WaitReason, str], list[str]]:
    written: dict[str, tuple[str, str]] = {}
    for some in _chunks(list(waits)):
        rows = Job.objects.filter(pk__in=some)
        for pk, *told in rows.values_list("pk", "wait_reason", "wait_text"):
            written[str(pk)] = told[0], told[1]
    changed: dict[tuple[WaitReason, str], list[str]] = defaultdict(list)
    for job_id, wait in waits.items():
        if written.get(job_id) != (wait.reason, wait.text):
            changed[wait.reason, wait.text].append(job_id)
    return changed


def _chunks(ids: list[str], size: int = 1000) -> list[list[str]]:
    return [ids[i : i + size] for i in range(0, len(ids), size)]
