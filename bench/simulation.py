"""A queue and its hardware in simulated time: events call the very pass of the product.

Nothing here places anything: `plan` does, from the same snapshots as in a pass.
"""

import heapq
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from scheduler.placement import (
    SLACK_S,
    Account,
    Gpu,
    Holding,
    Lane,
    Placement,
    Plan,
    Request,
    Snapshot,
    Taken,
    plan,
)

Planner = Callable[[Snapshot, Sequence[Lane]], Plan]
Key = tuple[str, str, int, Request]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A job to come. It ends after `lasts_s`, or is ended at its limit."""

    id: str
    arrives_at: float
    request: Request
    lasts_s: float
    owner: str = "alice"
    group: str = ""
    priority: int = 50


@dataclass(frozen=True, slots=True)
class Started:
    work: Work
    at: float
    placement: Placement

    @property
    def until(self) -> float:
        return self.at + self.work.request.lasts_s


@dataclass(slots=True)
class Simulation:
    """`cluster` is a snapshot with nothing in it; its settings are those of all passes."""

    cluster: Snapshot
    planner: Planner = plan
    now: float = 0.0
    started: dict[str, Started] = field(default_factory=dict)
    # When a reservation was first made, and for when.
    promised: dict[str, float] = field(default_factory=dict)
    _waiting: dict[Key, list[Work]] = field(default_factory=dict)
    _served_at: dict[Key, float] = field(default_factory=dict)
    _running: dict[str, Started] = field(default_factory=dict)
    _usage: dict[str, float] = field(default_factory=dict)
    _events: list[tuple[float, int, str, Work]] = field(default_factory=list)
    _watch: Callable[["Simulation", Snapshot, Plan], None] | None = None

    def run(self, works: Iterable[Work], until: float = math.inf) -> None:
        """Events up to `until`; those of one moment are seen by one pass."""
        for number, work in enumerate(works):
            heapq.heappush(self._events, (work.arrives_at, number, "arrive", work))
        while self._events and self._events[0][0] <= until:
            self.now = self._events[0][0]
            while self._events and self._events[0][0] == self.now:
                _, _, what, work = heapq.heappop(self._events)
                self._happen(what, work)
            self._pass()

    def _happen(self, what: str, work: Work) -> None:
        if what == "arrive":
            self._waiting.setdefault(_key(work), []).append(work)
            return
        started = self._running.pop(work.id)
        vram_mb = sum(started.placement.vram_mb)
        used = self._usage.get(work.owner, 0.0)
        self._usage[work.owner] = used + vram_mb * (self.now - started.at)

    def _pass(self) -> None:
        lanes = self.lanes()
        snapshot = self.snapshot(lanes)
        made = self.planner(snapshot, lanes)
        if self._watch is not None:
            self._watch(self, snapshot, made)
        for job_id, kept in made.reservations.items():
            self.promised.setdefault(job_id, kept.at)
        for job_id, placement in made.placements.items():
            self._start(job_id, placement)

    def _start(self, job_id: str, placement: Placement) -> None:
        key, work = next(
            (key, work)
            for key, works in self._waiting.items()
            for work in works
            if work.id == job_id
        )
        self._waiting[key].remove(work)
        if not self._waiting[key]:
            del self._waiting[key]
        self._served_at[key] = self.now
        started = Started(work, self.now, placement)
        self.started[job_id] = self._running[job_id] = started
        ends_at = self.now + min(work.lasts_s, work.request.limit_s + SLACK_S)
        heapq.heappush(self._events, (ends_at, len(self.started), "end", work))

    def running(self) -> list[Started]:
        return list(self._running.values())

    def lanes(self) -> list[Lane]:
        return [
            Lane(
                request=key[3],
                jobs=tuple((work.id, work.arrives_at) for work in works),
                owner=key[0],
                group=key[1],
                priority=key[2],
                aged_from=max(works[0].arrives_at, self._served_at.get(key, -math.inf)),
            )
            for key, works in self._waiting.items()
        ]

    def snapshot(self, lanes: Sequence[Lane]) -> Snapshot:
        holdings: dict[int, list[Holding]] = {}
        taken: dict[str, list[Taken]] = {}
        for started in self._running.values():
            _hold(started, holdings, taken)
        owners = {lane.owner for lane in lanes}
        return replace(
            self.cluster,
            now=self.now,
            gpus={
                id_: replace(gpu, holdings=tuple(holdings.get(id_, ())))
                for id_, gpu in self.cluster.gpus.items()
            },
            nodes={
                name: replace(node, taken=tuple(taken.get(name, ())))
                for name, node in self.cluster.nodes.items()
            },
            owners={
                name: Account(usage=self._usage.get(name, 0.0))
                for name in sorted(owners)
            },
        )


def _key(work: Work) -> Key:
    return work.owner, work.group, work.priority, work.request


def _hold(
    started: Started, holdings: dict[int, list[Holding]], taken: dict[str, list[Taken]]
) -> None:
    placed = started.placement
    for gpu, vram_mb in zip(placed.gpus, placed.vram_mb, strict=True):
        holdings.setdefault(gpu.id, []).append(
            Holding(
                promised_mb=vram_mb,
                is_exclusive=not placed.request.share,
                until=started.until,
            )
        )
    taken.setdefault(placed.node, []).append(
        Taken(
            millicpus=round((placed.cpus or 0) * 1000),
            memory_mb=placed.memory_mb or 0,
            until=started.until,
        )
    )


def over_allocated(gpu: Gpu) -> bool:
    """Whether more is held of it than there is, or an exclusive holding is not alone."""
    exclusive = any(holding.is_exclusive for holding in gpu.holdings)
    shared_out = sum(holding.promised_mb for holding in gpu.holdings)
    return shared_out > gpu.usable_mb or (exclusive and len(gpu.holdings) > 1)
