"""One walk along the line: who starts now, who waits and why, who gets a reservation."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from jobs.status import WaitReason
from scheduler.placement.backfill import reserve
from scheduler.placement.board import Board, GpuState
from scheduler.placement.choice import Chooser, demand
from scheduler.placement.limits import Ledger
from scheduler.placement.order import LineUp
from scheduler.placement.terms import (
    Lane,
    Placement,
    Request,
    Reservation,
    Snapshot,
    Wait,
)
from scheduler.placement.why import why

# Whoever waits for these may be given a reservation; other waits no time ends.
RESERVABLE = (
    WaitReason.RESOURCES,
    WaitReason.FOREIGN_USE,
    WaitReason.PRIORITY,
    WaitReason.IMAGE_PULL,
)
# In one pass; the next one goes on. A pass must end before its lease does.
MOST_PLACED = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What was decided for one job: the `position`-th of the lane `index`."""

    index: int
    position: int
    job_id: str
    decision: Placement | Wait
    reservation: Reservation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a pass comes to, by job id. Of each lane only the first job that is not
    placed has a wait: those behind it wait for it."""

    placements: Mapping[str, Placement]
    waits: Mapping[str, Wait]
    reservations: Mapping[str, Reservation]
    is_whole: bool = True  # False where another pass is to go on


class Walk:
    """A pass under way. The board shows what is left after the steps so far.

    `turns` gives the next job's place, and `step` decides for it: between the two the
    board is as the decision will find it.
    """

    def __init__(
        self, snapshot: Snapshot, lanes: Sequence[Lane], *, reservations: int | None
    ) -> None:
        """`reservations` of None gives one to every job that waits for GPUs."""
        self.lanes = lanes
        self.board = Board.of(snapshot)
        self._chooser = Chooser(self.board, demand(snapshot, lanes))
        self._ledger = Ledger(snapshot)
        self._line = LineUp(snapshot, lanes)
        self._left = reservations
        # The board only fills: a request that was refused stays refused.
        self._refused: dict[Request, Wait] = {}

    def turns(self) -> Iterator[tuple[int, int]]:
        """Lane and position of one job after another, the head of the line first."""
        return iter(self._line)

    def decide(self, request: Request) -> Placement | Wait:
        """Place one request on what is left, or say why not; nothing is taken."""
        refused = self._refused.get(request)
        if refused is not None:
            return refused
        chosen = self._chooser.now(request)
        if chosen is None:
            wait = why(self.board, request)
            self._refused[request] = wait
            return wait
        return self._placement(request, *chosen)

    def would_start(self, index: int, request: Request) -> bool:
        """Whether a job of the lane would start now if it asked for this instead."""
        lane = replace(self.lanes[index], request=request)
        return isinstance(self._decide_within_limits(lane), Placement)

    def step(self, index: int, position: int) -> Step:
        """Decide for the job, and take or keep what it gets."""
        lane = self.lanes[index]
        job_id = lane.jobs[position][0]
        decision = self._decide_within_limits(lane)
        reservation = None
        if isinstance(decision, Placement):
            self._take(decision)
            self._ledger.add(lane, sum(decision.vram_mb))
            self._line.advance(index, position)
        elif decision.reason in RESERVABLE and self._left != 0:
            reservation = self._reserve(lane, decision.reason)
            if reservation is not None:
                self._line.advance(index, position)
        return Step(
            index=index,
            position=position,
            job_id=job_id,
            decision=decision,
            reservation=reservation,
        )

    def _decide_within_limits(self, lane: Lane) -> Placement | Wait:
        refusal = self._ledger.refusal(lane)
        if not refusal:
            decision = self.decide(lane.request)
            if not isinstance(decision, Placement):
                return decision
            refusal = self._ledger.over_vram(lane, sum(decision.vram_mb))
            if not refusal:
                return decision
        return Wait(request=lane.request, reason=WaitReason.QUOTA, text=refusal)

    def _take(self, placed: Placement) -> None:
        ids = tuple(gpu.id for gpu in placed.gpus)
        self.board.hold(placed.request, placed.node, ids, self.board.now)

    def _reserve(self, lane: Lane, reason: WaitReason) -> Reservation | None:
        # Where only the image is missing it may start elsewhere as soon as that is there.
        timed_only = reason == WaitReason.IMAGE_PULL
        reservation = reserve(
            self.board, self._chooser, lane.request, timed_only=timed_only
        )
        if reservation is not None:
            gpus = (self.board.gpus[gpu_id] for gpu_id in reservation.gpu_ids)
            self._ledger.add(lane, sum(state.takes(lane.request) for state in gpus))
            self._left = None if self._left is None else self._left - 1
            # What is kept now stands in others' way, which their reasons must tell.
            self._refused.clear()
        return reservation

    def _placement(
        self, request: Request, name: str, chosen: tuple[GpuState, ...]
    ) -> Placement:
        node = self.board.nodes[name]
        vram_mb = tuple(state.takes(request) for state in chosen)
        wanted = node.claim(request, sum(vram_mb))
        until = self.board.now + request.lasts_s
        millicpus, memory_mb = wanted.given(*node.over(self.board.now, until))
        knows_memory = bool(node.node.memory_mb) and memory_mb > 0
        return Placement(
            request=request,
            node=name,
            gpus=tuple(state.gpu for state in chosen),
            vram_mb=vram_mb,
            cpus=millicpus / 1000 if millicpus else None,
            memory_mb=memory_mb if knows_memory else request.memory_mb,
            shm_mb=request.shm_mb or (memory_mb // 2 if knows_memory else None),
            text=_chosen_text(request, chosen),
        )


def _chosen_text(request: Request, chosen: tuple[GpuState, ...]) -> str:
    """Why there: what the best of those that would do leaves over."""
    if not chosen:
        return "the node with most CPUs free"
    told = []
    for state in chosen:
        left = state.now.free_mb - request.vram_mb
        fit = f"leaves {left:,} MiB to others" if request.share else "whole"
        told.append(f"{state.gpu} ({fit}, {state.now.free_mb:,} MiB free)")
    return "best fit: " + ", ".join(told)


def plan(snapshot: Snapshot, lanes: Sequence[Lane]) -> Plan:
    """Decide for the whole line, in its order, each on what the ones before left."""
    placements: dict[str, Placement] = {}
    waits: dict[str, Wait] = {}
    reservations: dict[str, Reservation] = {}
    told: set[int] = set()
    walk = Walk(snapshot, lanes, reservations=snapshot.reservations)
    is_whole = True
    for index, position in walk.turns():
        if len(placements) >= MOST_PLACED:
            is_whole = False
            break
        step = walk.step(index, position)
        if isinstance(step.decision, Placement):
            placements[step.job_id] = step.decision
        elif step.index not in told:
            told.add(step.index)
            waits[step.job_id] = step.decision
        if step.reservation is not None:
            reservations[step.job_id] = step.reservation
    return Plan(
        placements=placements,
        waits=waits,
        reservations=reservations,
        is_whole=is_whole,
    )


def decide(snapshot: Snapshot, request: Request) -> Placement | Wait:
    """Place one request as if nobody else waited."""
    lane = Lane(request=request, jobs=(("", snapshot.now),), aged_from=snapshot.now)
    walk = Walk(snapshot, [lane], reservations=0)
    return walk.decide(request)
