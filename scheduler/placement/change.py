"""The smallest change to a request with which it would start now."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from scheduler.placement.claim import LEAST_MB
from scheduler.placement.passing import Walk
from scheduler.placement.terms import SLACK_S, Request

# To drop a wish counts as much as to halve a number.
DROPPED = 0.5
LEAST_TIMEOUT_S = 60
MOST_SIZES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One field of the job, and the value with which it would start now."""

    field: str
    before: Any
    after: Any

    @property
    def text(self) -> str:
        if self.after in (None, "", ()):
            return f"Without {self.field} it would start now."
        after = self.after if self.field != "share" else "true"
        shown = f"{after:,}" if isinstance(after, int) else after
        return f"With {self.field} {shown} it would start now."


def smallest_change(walk: Walk, index: int) -> Change | None:
    """To what the lane asks for, tried one field at a time, the least loss first; None
    if none is enough."""
    request = walk.lanes[index].request
    tries = sorted(_candidates(walk, request), key=lambda one: (one[0], one[1]))
    for _, field, value in tries:
        if walk.would_start(index, replace(request, **{field: value})):
            before = getattr(request, field)
            return Change(field=field, before=before, after=value)
    return None


def _candidates(walk: Walk, request: Request) -> Iterator[tuple[float, str, Any]]:
    """Loss (0 to 1), field, and value."""
    yield from _less_vram(walk, request)
    yield from _less_of_the_node(walk, request)
    yield from _shorter(walk, request)
    for gpu_count in range(request.gpu_count - 1, 0, -1):
        loss = (request.gpu_count - gpu_count) / request.gpu_count
        yield loss, "gpu_count", gpu_count
    if request.gpu_count and not request.share and request.min_vram_mb:
        yield DROPPED, "share", True
    for field, nothing in (
        ("gpu_name", ""),
        ("node_name", ""),
        ("node_labels", ()),
        ("cpus", None),
        ("memory_mb", None),
        ("shm_mb", None),
    ):
        if getattr(request, field) != nothing:
            yield DROPPED, field, nothing


def _less_vram(walk: Walk, request: Request) -> Iterator[tuple[float, str, Any]]:
    """What some GPU still has: one of these is the most that would do."""
    if not request.min_vram_mb or not request.gpu_count:
        return
    free = {state.now.free_mb for state in walk.board.gpus.values()}
    less = sorted((mb for mb in free if 0 < mb < request.min_vram_mb), reverse=True)
    for free_mb in less[:MOST_SIZES]:
        yield 1 - free_mb / request.min_vram_mb, "min_vram_mb", free_mb


def _less_of_the_node(walk: Walk, request: Request) -> Iterator[tuple[float, str, Any]]:
    """As many CPUs and as much memory as some node still has."""
    now = walk.board.now
    cpus = request.cpus or (0 if request.gpu_count else 1)
    for node in walk.board.nodes.values():
        millicpus, memory_mb = node.over(now, now + request.lasts_s)
        tenths = millicpus // 100
        if 0 < tenths < cpus * 10:
            yield 1 - tenths / 10 / cpus, "cpus", tenths / 10
        if LEAST_MB <= memory_mb < (request.memory_mb or 0):
            yield 1 - memory_mb / (request.memory_mb or 1), "memory_mb", memory_mb


def _shorter(walk: Walk, request: Request) -> Iterator[tuple[float, str, Any]]:
    """To end before what is kept for a job ahead."""
    now = walk.board.now
    gpus, nodes = walk.board.gpus.values(), walk.board.nodes.values()
    starts = {span.start for state in gpus for span in state.spans}
    starts |= {span.start for node in nodes for span in node.spans}
    for start in starts:
        if not now < start < math.inf:
            continue
        # To whole minutes, and one less: who reads it needs a while to submit it.
        timeout_s = int((start - now - SLACK_S - request.grace_s) // 60 - 1) * 60
        if LEAST_TIMEOUT_S <= timeout_s < request.timeout_s:
            yield 1 - timeout_s / request.timeout_s, "timeout_s", timeout_s
