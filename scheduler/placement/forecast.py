"""All that can be told of one waiting job: its place, why it waits, and until when."""

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass

from jobs.status import FOR_ALL_BEHIND, WaitReason
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
    ESTIMATE = "estimate"  # if all ahead run to their limits and none behind passes it
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    """The job's turn in a walk, or that of the one of its lane that ends the lane."""

    step: Step
    lines: tuple[Line, ...]
    change: Change | None
    # The first of its lane that waits, and its position.
    first: tuple[int, Wait] | None
    # Whether all ahead of it start now: then nobody can come before its reservation.
    is_first: bool


def explain(snapshot: Snapshot, lanes: Sequence[Lane], job_id: str) -> Explanation:
    """The answer of a pass over this line, for one job of it."""
    mine = _find(lanes, job_id)
    place = _place(snapshot, lanes, mine)
    walk = Walk(snapshot, lanes, reservations=snapshot.reservations)
    turn = _turn(walk, mine)
    return Explanation(
        place=place,
        waiting=sum(lane.waiting for lane in lanes),
        decision=_said(turn, mine[1]),
        lines=turn.lines,
        expected=_expected(snapshot, lanes, mine, place, turn),
        change=turn.change if _may_help(turn.step.decision) else None,
    )


def _turn(walk: Walk, mine: tuple[int, int]) -> _Turn:
    first: tuple[int, Wait] | None = None
    is_first = True
    for index, position in walk.turns():
        is_mine = (index, position) == mine
        request = walk.lanes[index].request
        lines = explain_lines(walk.board, request) if index == mine[0] else ()
        change = smallest_change(walk, index) if is_mine else None
        step = walk.step(index, position)
        waits = step.decision if isinstance(step.decision, Wait) else None
        if index == mine[0]:
            first = (position, waits) if waits and first is None else first
            if is_mine or (waits and step.reservation is None):
                return _Turn(
                    step=step,
                    lines=lines,
                    change=change,
                    first=first,
                    is_first=is_first,
                )
        is_first = is_first and waits is None
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


def _said(turn: _Turn, position: int) -> Placement | Wait:
    """Of a job behind the first that waits in its lane: it waits for that one."""
    if turn.first is None or turn.first[0] == position:
        return turn.step.decision
    at, waits = turn.first
    jobs = "A job" if position - at == 1 else f"{position - at} jobs"
    verb = "asks" if position - at == 1 else "ask"
    text = f"{jobs} ahead of it {verb} for the same. The first waits: {waits.text}"
    same = waits.reason in FOR_ALL_BEHIND
    reason = waits.reason if same else WaitReason.PRIORITY
    return Wait(request=waits.request, reason=reason, text=text)


def _expected(
    snapshot: Snapshot,
    lanes: Sequence[Lane],
    mine: tuple[int, int],
    place: int,
    turn: _Turn,
) -> Expected:
    step = turn.step
    if step.position == mine[1]:
        if isinstance(step.decision, Placement):
            return Expected(at=snapshot.now, certainty=Certainty.NOW)
        if step.reservation is not None:
            # Whoever waits ahead of it for something else may come in between.
            sure = Certainty.LATEST if turn.is_first else Certainty.ESTIMATE
            return _known(step.reservation.at, sure)
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
