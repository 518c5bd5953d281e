"""All that can be told of one waiting job: its place, why it waits, and until when."""

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass

from jobs.status import WaitReason
from scheduler.placement.change import Change, smallest_change
from scheduler.placement.order import LineUp
from scheduler.placement.passing import Step, Walk
from scheduler.placement.terms import Lane, Line, Placement, Snapshot, Wait
from scheduler.placement.why import explain_lines

# With more jobs ahead a forecast is a guess that costs much: none is made.
MOST_AHEAD = 200


class Certainty(enum.StrEnum):
    """How sure an expected time of start is."""

    NOW = "now"  # with the next pass
    LATEST = "latest"  # by then, if no more urgent job comes and no hardware fails
    ESTIMATE = "estimate"  # if all ahead run to their limits; likely sooner
    UNKNOWN = "unknown"  # nothing guarantees a time, and none is made up


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """When a job starts, in seconds since the epoch; None where it is unknown."""

    at: float | None = None
    certainty: Certainty = Certainty.UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    place: int
    waiting: int  # how many are in line
    decision: Placement | Wait
    lines: tuple[Line, ...]
    expected: Expected
    change: Change | None = None


def explain(snapshot: Snapshot, lanes: Sequence[Lane], job_id: str) -> Explanation:
    """The answer of a pass over this line, for one job of it."""
    mine = _find(lanes, job_id)
    place = _place(snapshot, lanes, mine)
    walk = Walk(snapshot, lanes, reservations=snapshot.reservations)
    request = lanes[mine[0]].request
    first: tuple[int, Wait] | None = None
    for index, position in walk.turns():
        if index != mine[0]:
            walk.step(index, position)
            continue
        lines = explain_lines(walk.board, request)
        change = smallest_change(walk, request) if position == mine[1] else None
        step = walk.step(index, position)
        if isinstance(step.decision, Wait) and first is None:
            first = position, step.decision
        ends_here = isinstance(step.decision, Wait) and step.reservation is None
        if position == mine[1] or ends_here:
            return Explanation(
                place=place,
                waiting=sum(lane.waiting for lane in lanes),
                decision=_said(step, first, mine[1]),
                lines=lines,
                expected=_expected(snapshot, lanes, mine, place, step),
                change=change if _may_help(step.decision) else None,
            )
    raise AssertionError("every lane has its turn")


def _find(lanes: Sequence[Lane], job_id: str) -> tuple[int, int]:
    for index, lane in enumerate(lanes):
        for position, (other, _) in enumerate(lane.jobs):
            if other == job_id:
                return index, position
    raise KeyError(job_id)


def _place(snapshot: Snapshot, lanes: Sequence[Lane], mine: tuple[int, int]) -> int:
    """Its place in line, from 1: each one ahead counts as if it was served."""
    line = LineUp(snapshot, lanes)
    for place, (index, position) in enumerate(line, 1):
        if (index, position) == mine:
            return place
        line.advance(index, position)
    raise AssertionError("every job has a place")


def _may_help(decision: Placement | Wait) -> bool:
    """A change of the request does not help against a limit or a missing image."""
    return isinstance(decision, Wait) and decision.reason not in (
        WaitReason.QUOTA,
        WaitReason.IMAGE_PULL,
    )


def _said(
    step: Step, first: tuple[int, Wait] | None, position: int
) -> Placement | Wait:
    """Of a job behind the first that waits in its lane: it waits for that one."""
    if first is None or first[0] == position:
        return step.decision
    ahead = position - first[0]
    jobs = "A job" if ahead == 1 else f"{ahead} jobs"
    verb = "asks" if ahead == 1 else "ask"
    text = f"{jobs} ahead of it {verb} for the same. The first waits: {first[1].text}"
    return Wait(request=first[1].request, reason=WaitReason.PRIORITY, text=text)


def _expected(
    snapshot: Snapshot,
    lanes: Sequence[Lane],
    mine: tuple[int, int],
    place: int,
    step: Step,
) -> Expected:
    if step.position == mine[1]:
        if isinstance(step.decision, Placement):
            return Expected(at=snapshot.now, certainty=Certainty.NOW)
        if step.reservation is not None:
            return _known(step.reservation.at, Certainty.LATEST)
    if place > MOST_AHEAD:
        return Expected()
    return _forecast(snapshot, lanes, mine)


def _known(at: float, certainty: Certainty) -> Expected:
    return Expected(at=at, certainty=certainty) if at < math.inf else Expected()


def _forecast(
    snapshot: Snapshot, lanes: Sequence[Lane], mine: tuple[int, int]
) -> Expected:
    """As if everybody ahead had a reservation and ran to its limit."""
    walk = Walk(snapshot, lanes, reservations=None)
    for index, position in walk.turns():
        step = walk.step(index, position)
        if (index, position) != mine:
            continue
        if step.reservation is not None:
            return _known(step.reservation.at, Certainty.ESTIMATE)
        break
    return Expected()
