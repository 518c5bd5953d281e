"""What is free when: the working state of one pass, thrown away with it."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from scheduler.placement.claim import Claim, claim
from scheduler.placement.rules import gpu_refusal, node_refusal
from scheduler.placement.terms import SLACK_S, Gpu, Node, Request, Snapshot

# A holder whose limit has passed is being stopped: it is gone any moment, not now. Not
# longer than the slack, or what passes a head before then could delay it pass by pass.
OVERDUE_S = SLACK_S
Standing = frozenset[tuple[object, ...]]

# What refuses a GPU only for a time.
PASSING = frozenset({"holder", "vram", "foreign_use", "reserved", "node_busy"})


class Span(NamedTuple):
    """VRAM held, or kept, for a time."""

    start: float
    until: float
    mb: int
    is_exclusive: bool


class NodeSpan(NamedTuple):
    start: float
    until: float
    millicpus: int
    memory_mb: int


S = TypeVar("S", Span, NodeSpan)


class Room(NamedTuple):
    """What is there of a GPU over a time."""

    free_mb: int
    is_whole: bool  # nobody holds any of it
    is_exclusive: bool  # one holds all of it


@dataclass(slots=True, eq=False)
class GpuState:
    gpu: Gpu
    usable_mb: int
    spans: list[Span]
    now: Room = field(default=Room(0, True, False))
    # Whether something of it is kept for later.
    is_kept: bool = False

    def takes(self, request: Request) -> int:
        """MiB that the request holds of it: an exclusive one all."""
        return request.vram_mb if request.share else self.usable_mb

    @property
    def is_kept_for_ever(self) -> bool:
        """Kept for a job ahead of which nobody knows when it starts."""
        return any(
            span.until == math.inf and span.start > -math.inf for span in self.spans
        )

    @property
    def kind(self) -> tuple[object, ...]:
        # One of which something is kept is like no other.
        alone = self.gpu.id if self.is_kept else None
        return (*self.hardware, self.gpu.foreign_mb, self.now, alone)

    @property
    def hardware(self) -> tuple[object, ...]:
        """What the standing rules look at, beside the node."""
        gpu = self.gpu
        return gpu.name, self.usable_mb, gpu.state, gpu.state_reason, gpu.is_present

    def over(self, start: float, until: float) -> Room:
        """What is free from `start` to `until` without a break."""
        spans = [s for s in self.spans if s.start < until and s.until > start]
        if any(span.is_exclusive for span in spans):
            return Room(0, False, True)
        free_mb = self.usable_mb - self.gpu.foreign_mb - _peak(spans, start)
        return Room(max(0, free_mb), not spans, False)

    def add(self, span: Span, now: float) -> None:
        self.spans.append(span)
        if span.start > now or span.until == math.inf:
            self.is_kept = True
        self.look(now)

    def look(self, now: float) -> None:
        held = [span for span in self.spans if span.start < now]
        exclusive = any(span.is_exclusive for span in held)
        need_mb = sum(span.mb for span in held)
        free_mb = 0 if exclusive else self.usable_mb - need_mb - self.gpu.foreign_mb
        self.now = Room(max(0, free_mb), not held, exclusive)


def _peak(spans: list[Span], start: float) -> int:
    if all(span.start <= start for span in spans):
        return sum(span.mb for span in spans)
    return max(sum(span.mb for span in some) for some in _at_once(spans, start))


def _at_once(spans: Sequence[S], start: float) -> Iterator[list[S]]:
    """Which of them are there together, at `start` and whenever one begins after it."""
    points = {start, *(span.start for span in spans if span.start > start)}
    for point in points:
        yield [span for span in spans if span.start <= point < span.until]


@dataclass(slots=True, eq=False)
class NodeState:
    node: Node
    gpus: list[GpuState]
    spans: list[NodeSpan]
    usable_mb: int
    # Raised with each change, so that what was worked out for it can be kept.
    version: int = 0
    free_millicpus: int = 0
    # GPUs in the same state: what holds for the first holds for all of a kind.
    kinds: list[list[GpuState]] = field(default_factory=list)

    def changed(self) -> None:
        self.version += 1
        self.sort()

    def sort(self) -> None:
        kinds: dict[tuple[object, ...], list[GpuState]] = {}
        for state in self.gpus:
            kinds.setdefault(state.kind, []).append(state)
        self.kinds = list(kinds.values())

    def over(self, start: float, until: float) -> tuple[int, int]:
        """Thousandths of CPUs and MiB of memory, free from `start` to `until`."""
        spans = [s for s in self.spans if s.start < until and s.until > start]
        held = list(_at_once(spans, start))
        millicpus = max(sum(span.millicpus for span in some) for some in held)
        memory_mb = max(sum(span.memory_mb for span in some) for some in held)
        return self.node.cpus * 1000 - millicpus, self.node.memory_mb - memory_mb

    def claim(self, request: Request, vram_mb: int) -> Claim:
        return claim(self.node, self.usable_mb, request, vram_mb)

    def has_room(self, wanted: Claim, start: float, until: float) -> bool:
        millicpus, memory_mb = self.over(start, until)
        # A node that has not told its memory yet has enough.
        enough = not self.node.memory_mb or wanted.least_memory_mb <= memory_mb
        return enough and wanted.least_millicpus <= millicpus


@dataclass(slots=True, eq=False)
class Board:
    snapshot: Snapshot
    nodes: dict[str, NodeState] = field(default_factory=dict)
    gpus: dict[int, GpuState] = field(default_factory=dict)
    _standing: dict[Request, dict[str, Standing]] = field(default_factory=dict)

    @classmethod
    def of(cls, snapshot: Snapshot) -> "Board":
        board = cls(snapshot)
        # In an order of its own: no result may depend on that of the rows.
        for gpu in sorted(snapshot.gpus.values(), key=lambda g: (g.index, g.uuid)):
            board.gpus[gpu.id] = board._gpu(gpu)
        by_node: dict[str, list[GpuState]] = {name: [] for name in snapshot.nodes}
        for state in board.gpus.values():
            by_node[state.gpu.node].append(state)
        for name in sorted(snapshot.nodes):
            board.nodes[name] = board._node(snapshot.nodes[name], by_node[name])
        return board

    @property
    def now(self) -> float:
        return self.snapshot.now

    def _gpu(self, gpu: Gpu) -> GpuState:
        spans = [
            Span(-math.inf, self.bound(h.until), h.need_mb, h.is_exclusive)
            for h in gpu.holdings
        ]
        state = GpuState(gpu, gpu.usable_mb, spans)
        state.look(self.now)
        return state

    def _node(self, node: Node, gpus: list[GpuState]) -> NodeState:
        spans = [
            NodeSpan(-math.inf, self.bound(t.until), t.millicpus, t.memory_mb)
            for t in node.taken
        ]
        state = NodeState(node, gpus, spans, sum(gpu.usable_mb for gpu in gpus))
        state.free_millicpus = state.over(self.now, self.now + 1)[0]
        state.sort()
        return state

    def bound(self, until: float) -> float:
        return until if until > self.now else self.now + OVERDUE_S

    def standing(self, request: Request) -> dict[str, Standing]:
        """By node, the hardware that no standing rule refuses; nodes that one refuses
        are left out."""
        found = self._standing.get(request)
        if found is None:
            found = {
                name: self._stands(node, request)
                for name, node in self.nodes.items()
                if not node_refusal(node.node, request)[0]
            }
            self._standing[request] = found
        return found

    def _stands(self, node: NodeState, request: Request) -> Standing:
        seen: dict[tuple[object, ...], bool] = {}
        for kind in node.kinds:
            hardware = kind[0].hardware
            if hardware not in seen:
                refused, _ = gpu_refusal(self.snapshot, kind[0].gpu, request)
                seen[hardware] = not refused
        return frozenset(hardware for hardware, stands in seen.items() if stands)

    def able(self, request: Request, node: NodeState) -> list[GpuState]:
        """The GPUs of the node that no standing rule refuses."""
        standing = self.standing(request).get(node.node.name, frozenset())
        return [
            state
            for kind in node.kinds
            if kind[0].hardware in standing
            for state in kind
        ]

    def free(self, request: Request, node: NodeState, start: float) -> list[GpuState]:
        """Those of them that are free for so long from `start`."""
        standing = self.standing(request).get(node.node.name, frozenset())
        if start == self.now:
            return [
                state
                for kind in node.kinds
                if kind[0].hardware in standing
                and not self.busy(kind[0], request, start)
                for state in kind
            ]
        able = self.able(request, node)
        return [state for state in able if not self.busy(state, request, start)]

    def busy(self, state: GpuState, request: Request, start: float) -> str:
        """Which rule refuses the GPU for so long from `start`; empty if none does."""
        if start == self.now:
            rule = self._held(state, state.now, request)
            if rule or not state.is_kept:
                return rule
        room = state.over(start, start + request.lasts_s)
        rule = self._held(state, room, request)
        return "reserved" if rule and start == self.now else rule

    def _held(self, state: GpuState, room: Room, request: Request) -> str:
        if room.is_exclusive or not (request.share or room.is_whole):
            return "holder"
        foreign_mb, missing_mb = state.gpu.foreign_mb, request.vram_mb - room.free_mb
        if not request.share and foreign_mb > self.snapshot.foreign_tolerance_mb:
            return "foreign_use"
        if missing_mb <= 0:
            return ""
        return "foreign_use" if missing_mb <= foreign_mb else "vram"

    def hold(
        self, request: Request, node: str, gpu_ids: tuple[int, ...], start: float
    ) -> None:
        """Take, or keep for later, GPUs for as long as the request may last."""
        state = self.nodes[node]
        forever = start == math.inf
        start = self.now if forever else start
        until = math.inf if forever else start + request.lasts_s
        began = -math.inf if start == self.now and not forever else start
        for gpu_id in gpu_ids:
            gpu = self.gpus[gpu_id]
            mb = gpu.usable_mb if forever else gpu.takes(request)
            alone = forever or not request.share
            gpu.add(Span(began, until, mb, alone), self.now)
        if not forever:
            self._hold_node(state, request, gpu_ids, began, until)
        state.changed()

    def _hold_node(
        self,
        state: NodeState,
        request: Request,
        gpu_ids: tuple[int, ...],
        start: float,
        until: float,
    ) -> None:
        vram_mb = sum(self.gpus[gpu_id].takes(request) for gpu_id in gpu_ids)
        given = state.claim(request, vram_mb).given(*state.over(start, until))
        state.spans.append(NodeSpan(start, until, *given))
        state.free_millicpus = state.over(self.now, self.now + 1)[0]
