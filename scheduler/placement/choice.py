"""Which of the GPUs that would do: pack, do not spread, and strand nothing.

What is stranded is counted as in "Beware of Fragmentation" (Weng et al., USENIX ATC
2023): the free VRAM that the requests to come could not use, by how many ask for what.
"""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations

from scheduler.placement.board import Board, GpuState, NodeState, Room
from scheduler.placement.terms import Lane, Request, Snapshot

# Beyond these the rare requests are noise, and cost time.
MOST_SHAPES = 12
# Stranded VRAM is told apart by tenths of a GPU; of what is nearer the better fit is
# taken. Told apart more finely it packs worse (bench/replay.py).
GRAIN = 10

Demand = tuple[tuple[Request, int], ...]
Key = tuple[object, ...]
Choice = tuple[Key, tuple[GpuState, ...]]


def demand(snapshot: Snapshot, lanes: Iterable[Lane]) -> Demand:
    """What is asked for most, with how many ask: the queue, and what runs. Somebody
    may always come who wants a whole GPU."""
    asking: dict[Request, int] = dict(snapshot.running)
    for lane in lanes:
        asking[lane.request] = asking.get(lane.request, 0) + lane.waiting
    counts: dict[Request, int] = {}
    for request, count in asking.items():
        if request.gpu_count:
            # An image can be pulled, and how long it lasts is all one to the room.
            kind = replace(request, image="", timeout_s=1, grace_s=0, shm_mb=None)
            counts[kind] = counts.get(kind, 0) + count
    asked = counts.items()
    most = heapq.nsmallest(MOST_SHAPES, asked, key=lambda a: (-a[1], repr(a[0])))
    total = sum(count for _, count in most)
    return (*most, (Request(gpu_count=1), max(1, total // 4)))


class Chooser:
    """Finds the best set of GPUs of each node; keeps what did not change."""

    def __init__(self, board: Board, wanted: Demand) -> None:
        self._board = board
        self._wanted = wanted
        self._kept: dict[tuple[Request, str], tuple[int, Choice | None]] = {}
        self._stranded: dict[str, tuple[int, int]] = {}

    def now(self, request: Request) -> tuple[str, tuple[GpuState, ...]] | None:
        """The node and the GPUs to start on now, or None."""
        best: tuple[Key, str, tuple[GpuState, ...]] | None = None
        for name in self._board.standing(request):
            choice = self._of_node(request, name)
            if choice is not None and (best is None or choice[0] < best[0]):
                best = choice[0], name, choice[1]
        return None if best is None else best[1:]

    def _of_node(self, request: Request, name: str) -> Choice | None:
        node = self._board.nodes[name]
        version, choice = self._kept.get((request, name), (-1, None))
        if version != node.version:
            choice = self.fitting(request, node, self._board.now)
            self._kept[request, name] = node.version, choice
        return choice

    def fitting(self, request: Request, node: NodeState, start: float) -> Choice | None:
        """The best set of the node's GPUs that is free from `start` for long enough."""
        board = self._board
        able = board.free(request, node, start)
        if len(able) < request.gpu_count:
            return None
        choice = self.best(request, node, able)
        wanted = node.claim(request, sum(state.takes(request) for state in choice[1]))
        has_room = node.has_room(wanted, start, start + request.lasts_s)
        return choice if has_room else None

    def best(
        self, request: Request, node: NodeState, able: Sequence[GpuState]
    ) -> Choice:
        if not request.gpu_count:
            return (-node.free_millicpus, node.node.name), ()
        if request.gpu_count == 1:
            return min(
                (self._single_key(request, node, state), (state,))
                for state in _different(able)
            )
        chosen = _linked_set(able, request.gpu_count)
        key = (
            -_links(chosen),
            sum(state.usable_mb for state in chosen),
            sum(state.now.free_mb for state in chosen),
            self._strands(request, node, chosen),
            node.node.name,
        )
        return key, chosen

    def _single_key(self, request: Request, node: NodeState, state: GpuState) -> Key:
        strands = self._strands(request, node, (state,))
        free = state.now.free_mb
        where = (node.node.name, state.gpu.index, state.gpu.uuid)
        if request.share:
            return (strands, free, *where)
        # The smallest sufficient GPU, on the node that it fragments least.
        return (state.usable_mb, strands, *where)

    def stranded(self) -> float:
        """The part of all VRAM that is free and of no use to the requests to come."""
        nodes = self._board.nodes.values()
        free = sum(self._count_stranded(n, {}, n.free_millicpus) for n in nodes)
        weight = sum(count for _, count in self._wanted)
        return free / max(1, weight * sum(node.usable_mb for node in nodes))

    def _strands(
        self, request: Request, node: NodeState, chosen: tuple[GpuState, ...]
    ) -> int:
        """By how much the free VRAM grows that the requests to come could not use."""
        if not self._wanted:
            return 0
        version, before = self._stranded.get(node.node.name, (-1, 0))
        if version != node.version:
            before = self._count_stranded(node, {}, node.free_millicpus)
            self._stranded[node.node.name] = node.version, before
        after = {id(state): _after(request, state) for state in chosen}
        cpus = node.free_millicpus - round((request.cpus or 0) * 1000)
        more = self._count_stranded(node, after, cpus) - before
        whole = max(1, node.usable_mb * sum(count for _, count in self._wanted))
        return more * GRAIN * len(node.gpus) // whole

    def _count_stranded(
        self, node: NodeState, after: dict[int, Room], free_millicpus: int
    ) -> int:
        rooms = [(state, after.get(id(state), state.now)) for state in node.gpus]
        rooms = [(state, room) for state, room in rooms if room.free_mb]
        free_mb = sum(room.free_mb for _, room in rooms)
        total = 0
        for request, count in self._wanted:
            if (request.cpus or 0) * 1000 > free_millicpus:
                total += count * free_mb
            else:
                total += count * self._stranded_for(request, node, rooms, free_mb)
        return total

    def _stranded_for(
        self,
        request: Request,
        node: NodeState,
        rooms: list[tuple[GpuState, Room]],
        free_mb: int,
    ) -> int:
        standing = self._board.standing(request).get(node.node.name, frozenset())
        fitting = [
            room.free_mb
            for state, room in rooms
            if state.hardware in standing
            and room.free_mb >= request.vram_mb
            and (room.is_whole or (request.share and not room.is_exclusive))
        ]
        return free_mb if len(fitting) < request.gpu_count else free_mb - sum(fitting)


def _after(request: Request, state: GpuState) -> Room:
    if not request.share:
        return Room(0, False, True)
    return Room(max(0, state.now.free_mb - request.vram_mb), False, False)


def _different(able: Sequence[GpuState]) -> list[GpuState]:
    """Of GPUs in the same state the first one stands for all."""
    seen: dict[tuple[object, ...], GpuState] = {}
    for state in able:
        seen.setdefault((state.gpu.name, state.usable_mb, state.now), state)
    return list(seen.values())


def _links(chosen: Iterable[GpuState]) -> int:
    return sum(b.gpu.uuid in a.gpu.peers for a, b in combinations(chosen, 2))


def _linked_set(able: Sequence[GpuState], count: int) -> tuple[GpuState, ...]:
    """As many GPUs with the most NVLink pairs among them, the smallest ones first."""

    def order(state: GpuState) -> tuple[object, ...]:
        return state.usable_mb, state.now.free_mb, state.gpu.index, state.gpu.uuid

    ordered = sorted(able, key=order)
    if not any(state.gpu.peers for state in ordered):
        return tuple(ordered[:count])
    sets = [_grow(seed, ordered, count) for seed in ordered]
    return min(
        sets, key=lambda some: (-_links(some), sorted(order(state) for state in some))
    )


def _grow(
    seed: GpuState, ordered: Sequence[GpuState], count: int
) -> tuple[GpuState, ...]:
    chosen = [seed]
    while len(chosen) < count:
        rest = [state for state in ordered if state not in chosen]
        chosen.append(
            max(rest, key=lambda state: sum(_links((state, had)) for had in chosen))
        )
    return tuple(chosen)
