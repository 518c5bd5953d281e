"""When a blocked job will start: at the time that the limits of what runs guarantee.

EASY backfill (Mu'alem and Feitelson, TPDS 2001): jobs at the head of the line get a
reservation, and others pass only if they can not delay it. Where nothing guarantees a
time (processes outside GPU Jobs are in the way) the job keeps its best set of GPUs.
"""

import math
from collections.abc import Iterable

from scheduler.placement.board import Board, GpuState, NodeState
from scheduler.placement.choice import Chooser
from scheduler.placement.terms import Request, Reservation

_TEMPORARY = frozenset({"", "holder", "vram", "foreign_use"})


def reserve(
    board: Board, chooser: Chooser, request: Request, *, timed_only: bool = False
) -> Reservation | None:
    """The earliest reservation, put on the board; None where hardware is missing.

    With `timed_only` none for ever: the job may be able to start elsewhere before.
    """
    best: Reservation | None = None
    for name in board.standing(request):
        before = best.at if best else math.inf
        best = _earliest(board, chooser, request, board.nodes[name], before) or best
    if best is None and not timed_only:
        best = _best_set(board, request)
    if best is not None:
        board.hold(request, best.node, best.gpu_ids, best.at)
    return best


def _earliest(
    board: Board, chooser: Chooser, request: Request, node: NodeState, before: float
) -> Reservation | None:
    able = board.able(request, node)
    if len(able) < request.gpu_count:
        return None
    for at in _times(board, able, node):
        if at >= before:
            break
        choice = chooser.fitting(request, node, at)
        if choice is not None:
            ids = tuple(state.gpu.id for state in choice[1])
            return Reservation(request=request, node=node.node.name, gpu_ids=ids, at=at)
    return None


def _times(board: Board, able: Iterable[GpuState], node: NodeState) -> list[float]:
    """When something ends on the node; only then can more become free."""
    ends = {span.until for span in node.spans}
    for state in able:
        ends.update(span.until for span in state.spans)
    return sorted(end for end in ends if board.now < end < math.inf)


def _best_set(board: Board, request: Request) -> Reservation | None:
    """The GPUs of one node that miss least to hold the request."""
    sets = []
    for name in board.standing(request):
        able = [
            (_missing(state, request), state.gpu.index, state.gpu.uuid, state)
            for state in board.able(request, board.nodes[name])
            if board.busy(state, request, board.now) in _TEMPORARY
            and not state.is_kept_for_ever
        ]
        able.sort(key=lambda row: row[:3])
        chosen = able[: request.gpu_count]
        if chosen and len(chosen) == request.gpu_count:
            missing = sum(row[0] for row in chosen)
            sets.append((missing, name, tuple(row[3].gpu.id for row in chosen)))
    if not sets:
        return None
    _, name, ids = min(sets)
    return Reservation(request=request, node=name, gpu_ids=ids, at=math.inf)


def _missing(state: GpuState, request: Request) -> int:
    held = state.usable_mb - state.now.free_mb
    return max(0, request.vram_mb - state.now.free_mb) + held
