"""Why a job waits: GPU by GPU with numbers, and the one reason of them all."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from jobs.status import WaitReason
from scheduler.placement.board import PASSING, Board, GpuState
from scheduler.placement.claim import Claim
from scheduler.placement.rules import (
    HARDWARE,
    fits_ever,
    gpu_refusal,
    node_refusal,
)
from scheduler.placement.terms import Line, Request, Wait

MOST_TOLD = 4
# What would have to be lifted for the request to fit, and what the wait is then
# called; the first that would be enough is the reason.
_LIFTS: tuple[tuple[frozenset[str], WaitReason, str], ...] = (
    (
        frozenset(),
        WaitReason.RESOURCES,
        "Each would do alone; for all of them the node has too few CPUs or memory.",
    ),
    (
        frozenset({"image_pull"}),
        WaitReason.IMAGE_PULL,
        "The image is not there yet.",
    ),
    (
        frozenset({"reserved"}),
        WaitReason.PRIORITY,
        "What is free is kept for a job ahead, which it would delay.",
    ),
    (
        frozenset({"foreign_use"}),
        WaitReason.FOREIGN_USE,
        "Processes outside GPU Jobs use what would.",
    ),
    (
        frozenset({"image_pull", *PASSING}),
        WaitReason.RESOURCES,
        "Others hold what would.",
    ),
    (
        frozenset(
            {"draining", "quarantined", "gone", "node_draining", "image_pull", *PASSING}
        ),
        WaitReason.DRAINING,
        "What would is out of service.",
    ),
)


def at(time: float) -> str:
    """A time as people write it, in UTC."""
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M UTC")


class Refusal(NamedTuple):
    """What stands between the request and these GPUs, which are in the same state."""

    states: Sequence[GpuState]
    rule: str  # empty where nothing does
    missing_mb: int

    @property
    def node(self) -> str:
        return self.states[0].gpu.node


def explain_lines(board: Board, request: Request) -> tuple[Line, ...]:
    """One line per GPU: what stands between it and the request now."""
    if not request.gpu_count:
        return ()
    return tuple(
        _line(board, request, state)
        for node in board.nodes.values()
        for state in node.gpus
    )


def _refusals(board: Board, request: Request) -> list[Refusal]:
    found = []
    for node in board.nodes.values():
        for kind in node.kinds:
            rule = _rule(board, request, kind[0])
            missing_mb = _missing(kind[0], rule, request)
            found.append(Refusal(kind, rule, missing_mb))
    return found


def _rule(board: Board, request: Request, state: GpuState) -> str:
    standing = board.standing(request).get(state.gpu.node, frozenset())
    if state.hardware not in standing:
        return gpu_refusal(board.snapshot, state.gpu, request)[0]
    rule = board.busy(state, request, board.now)
    return rule or _node_line(board, request, state)[0]


def _missing(state: GpuState, rule: str, request: Request) -> int:
    if rule not in ("too_small", "holder", "vram", "foreign_use"):
        return 0
    size_mb = state.usable_mb if rule == "too_small" else state.now.free_mb
    return max(0, request.vram_mb - size_mb)


def _line(board: Board, request: Request, state: GpuState) -> Line:
    rule = _rule(board, request, state)
    _, text = gpu_refusal(board.snapshot, state.gpu, request)
    text = text or _busy_text(board, state, rule, request)
    if not text and rule:
        _, text = _node_line(board, request, state)
    return Line(
        gpu=state.gpu,
        blocked_by=rule,
        missing_mb=_missing(state, rule, request),
        free_mb=state.now.free_mb,
        until=_gone_by(state) if rule in ("holder", "vram") else math.inf,
        text=text or "it would do",
    )


def _gone_by(state: GpuState) -> float:
    return max((s.until for s in state.spans if s.start == -math.inf), default=math.inf)


def _busy_text(board: Board, state: GpuState, rule: str, request: Request) -> str:
    gpu = state.gpu
    if rule == "holder":
        return _holder_text(board, state)
    if rule == "foreign_use":
        whose = f" ({gpu.foreign_by})" if gpu.foreign_by else ""
        return f"{gpu.foreign_mb:,} MiB are used by processes outside GPU Jobs{whose}"
    if rule == "vram":
        return f"{state.now.free_mb:,} MiB are free"
    if rule == "reserved" and state.is_kept:
        kept = [span.start for span in state.spans if span.start > board.now]
        since = f" from {at(min(kept))}" if kept else ""
        return f"it is kept for a job ahead{since}"
    return ""


def _holder_text(board: Board, state: GpuState) -> str:
    held = [span for span in state.spans if span.start < board.now]
    if any(span.is_exclusive for span in held):
        text = f"an exclusive job holds all {state.usable_mb:,} MiB of it"
    else:
        jobs = (
            "a shared job holds" if len(held) == 1 else f"{len(held)} shared jobs hold"
        )
        text = f"{jobs} {sum(span.mb for span in held):,} MiB of it"
    until = _gone_by(state)
    return text if until == math.inf else f"{text}, until {at(until)} at the latest"


def _node_line(board: Board, request: Request, state: GpuState) -> tuple[str, str]:
    node = board.nodes[state.gpu.node]
    wanted = _claim(board, request, state)
    if node.has_room(wanted, board.now, board.now + request.lasts_s):
        return "", ""
    name = node.node.name
    if node.has_room(wanted, board.now, board.now + 1):
        return "reserved", f"CPUs or memory of node {name} are kept for a job ahead"
    millicpus, memory_mb = node.over(board.now, board.now + 1)
    return "node_busy", (
        f"node {name} has {_cpus(millicpus)} and {max(0, memory_mb):,} "
        f"MiB of memory free; it takes {wanted.least_millicpus / 1000:g} and "
        f"{wanted.least_memory_mb:,}"
    )


def _cpus(millicpus: int) -> str:
    return "1 CPU" if millicpus == 1000 else f"{max(0, millicpus) / 1000:g} CPUs"


def _claim(board: Board, request: Request, state: GpuState) -> Claim:
    vram_mb = state.takes(request) * request.gpu_count
    return board.nodes[state.gpu.node].claim(request, vram_mb)


def why(board: Board, request: Request) -> Wait:
    """The reason and the sentence."""
    nodes = board.snapshot.nodes
    if not any(node.state in _THERE for node in nodes.values()):
        text = f"Needs {request}; no node is up."
        return Wait(request=request, reason=WaitReason.NODE_DOWN, text=text)
    if not request.gpu_count:
        return _why_without_gpu(board, request)
    refusals = _refusals(board, request)
    lasting = [r for r in refusals if r.rule not in HARDWARE]
    if max(_sizes(lasting).values(), default=0) < request.gpu_count:
        return _never(board, request)
    free = max(_counts(refusals, frozenset()).values(), default=0)
    would = f"only {free}" if free else "none"
    needs = f"Needs {request}"
    needs += f"; on one node {would} would do now." if request.gpu_count > 1 else "."
    reason, text = _lifted(request, refusals)
    told = _told(board, request, refusals)
    text = " ".join(part for part in (needs, text, told) if part)
    return Wait(request=request, reason=reason, text=text)


def _never(board: Board, request: Request) -> Wait:
    text = fits_ever(board.snapshot, request)
    return Wait(request=request, reason=WaitReason.NEVER_FITS, text=text)


_THERE = ("up", "draining", "quarantined")


def _lifted(request: Request, refusals: Sequence[Refusal]) -> tuple[WaitReason, str]:
    for lifted, reason, text in _LIFTS:
        if max(_counts(refusals, lifted).values(), default=0) >= request.gpu_count:
            return reason, text
    return WaitReason.NODE_DOWN, "What would is on a node that is down."


def _counts(refusals: Iterable[Refusal], lifted: frozenset[str]) -> Counter[str]:
    """By node, the GPUs that would do if these rules were lifted."""
    return _sizes(r for r in refusals if not r.rule or r.rule in lifted)


def _sizes(refusals: Iterable[Refusal]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for refusal in refusals:
        counts[refusal.node] += len(refusal.states)
    return counts


def _told(board: Board, request: Request, refusals: Iterable[Refusal]) -> str:
    """The GPUs that are nearest to being enough, and how many more there are."""
    blocked = sorted(
        (refusal for refusal in refusals if refusal.rule),
        key=lambda refusal: (
            refusal.rule not in PASSING,
            refusal.missing_mb,
            refusal.node,
            refusal.states[0].gpu.index,
        ),
    )
    states = [state for refusal in blocked for state in refusal.states]
    lines = [_line(board, request, state) for state in states[:MOST_TOLD]]
    told = " ".join(f"{line.gpu}: {line.text}." for line in lines)
    counts = Counter(
        {
            rule: sum(len(r.states) for r in blocked if r.rule == rule)
            for rule in {refusal.rule for refusal in blocked}
        }
    )
    counts -= Counter(line.blocked_by for line in lines)
    if not counts:
        return told
    more = ", ".join(f"{n} {rule}" for rule, n in sorted(counts.items()))
    return f"{told} And {counts.total()} more: {more}."


def _why_without_gpu(board: Board, request: Request) -> Wait:
    refusals = {
        name: node_refusal(node.node, request) for name, node in board.nodes.items()
    }
    rules = {rule for rule, _ in refusals.values()}
    if rules <= HARDWARE:
        return _never(board, request)
    told = "; ".join(text for _, text in refusals.values() if text)
    reason, text = WaitReason.NODE_DOWN, told
    if "" in rules:
        reason, text = _why_no_cpu(board, request)
    elif "image_pull" in rules:
        reason, text = WaitReason.IMAGE_PULL, f"It waits for its image: {told}"
    elif "node_draining" in rules:
        reason = WaitReason.DRAINING
    return Wait(request=request, reason=reason, text=f"{text}.")


def _why_no_cpu(board: Board, request: Request) -> tuple[WaitReason, str]:
    told, is_kept = [], False
    for name in board.standing(request):
        node = board.nodes[name]
        wanted = node.claim(request, 0)
        millicpus, memory_mb = node.over(board.now, board.now + 1)
        is_kept |= node.has_room(wanted, board.now, board.now + 1)
        told.append(
            f"node {name} has {max(0, millicpus) / 1000:g} of {node.node.cpus} CPUs "
            f"and {max(0, memory_mb):,} MiB of memory free"
        )
    wanted_cpus = f"Needs {_cpus(wanted.least_millicpus)} and "
    text = f"{wanted_cpus}{wanted.least_memory_mb:,} MiB of memory: {'; '.join(told)}"
    if is_kept:
        return WaitReason.PRIORITY, f"{text}, which are kept for a job ahead"
    return WaitReason.RESOURCES, text
