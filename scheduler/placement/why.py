"""Why a job waits: GPU by GPU with numbers, and the one reason of them all."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from jobs.status import WaitReason
from scheduler.placement.board import PASSING, Board, GpuState
from scheduler.placement.claim import Claim
from scheduler.placement.rules import fits_ever, gpu_refusal, node_refusal
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


def explain_lines(board: Board, request: Request) -> tuple[Line, ...]:
    """One line per GPU: what stands between it and the request now."""
    if not request.gpu_count:
        return ()
    return tuple(_line(board, request, state) for state in board.gpus.values())


def _line(board: Board, request: Request, state: GpuState) -> Line:
    rule, text = gpu_refusal(board.snapshot, state.gpu, request)
    free_mb = state.now.free_mb
    if not rule:
        rule = board.busy(state, request, board.now)
        text = _busy_text(board, state, rule, request)
    if not rule:
        rule, text = _node_line(board, request, state)
    size_mb = state.usable_mb if rule == "too_small" else free_mb
    is_short = rule in ("too_small", "holder", "vram", "foreign_use")
    return Line(
        gpu=state.gpu,
        blocked_by=rule,
        missing_mb=max(0, request.vram_mb - size_mb) if is_short else 0,
        free_mb=free_mb,
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
    if rule == "reserved":
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
        f"node {name} has {max(0, millicpus) / 1000:g} CPUs and {max(0, memory_mb):,} "
        f"MiB of memory free; it takes {wanted.least_millicpus / 1000:g} and "
        f"{wanted.least_memory_mb:,}"
    )


def _claim(board: Board, request: Request, state: GpuState) -> Claim:
    each_mb = request.vram_mb if request.share else state.usable_mb
    return board.nodes[state.gpu.node].claim(request, each_mb * request.gpu_count)


def why(board: Board, request: Request, lines: Sequence[Line]) -> Wait:
    """The reason and the sentence, from the lines."""
    nodes = board.snapshot.nodes
    if not any(node.state in _THERE for node in nodes.values()):
        text = f"Needs {request}; no node is up."
        return Wait(request=request, reason=WaitReason.NODE_DOWN, text=text)
    refusal = fits_ever(board.snapshot, request)
    if refusal:
        return Wait(request=request, reason=WaitReason.NEVER_FITS, text=refusal)
    if not request.gpu_count:
        return _why_without_gpu(board, request)
    free = max(_count(lines, node, frozenset()) for node in nodes)
    would = f"only {free}" if free else "none"
    needs = f"Needs {request}"
    needs += f"; on one node {would} would do now." if request.gpu_count > 1 else "."
    reason, text = _lifted(request, lines, nodes)
    text = " ".join(part for part in (needs, text, _told(lines)) if part)
    return Wait(request=request, reason=reason, text=text)


_THERE = ("up", "draining", "quarantined")


def _lifted(
    request: Request, lines: Sequence[Line], nodes: Iterable[str]
) -> tuple[WaitReason, str]:
    for lifted, reason, text in _LIFTS:
        if any(_count(lines, node, lifted) >= request.gpu_count for node in nodes):
            return reason, text
    return WaitReason.NODE_DOWN, "What would is on a node that is down."


def _count(lines: Iterable[Line], node: str, lifted: frozenset[str]) -> int:
    return sum(
        line.gpu.node == node and (not line.blocked_by or line.blocked_by in lifted)
        for line in lines
    )


def _told(lines: Sequence[Line]) -> str:
    """The GPUs that are nearest to being enough, and how many more there are."""
    blocked = [line for line in lines if line.blocked_by]
    nearest = sorted(
        blocked,
        key=lambda line: (
            line.blocked_by not in PASSING,
            line.missing_mb,
            line.gpu.node,
            line.gpu.index,
        ),
    )
    told = " ".join(f"{line.gpu}: {line.text}." for line in nearest[:MOST_TOLD])
    counts = Counter(line.blocked_by for line in nearest[MOST_TOLD:])
    if not counts:
        return told
    more = ", ".join(f"{n} {rule}" for rule, n in sorted(counts.items()))
    return f"{told} And {counts.total()} more: {more}."


def _why_without_gpu(board: Board, request: Request) -> Wait:
    refusals = {
        name: node_refusal(node.node, request) for name, node in board.nodes.items()
    }
    rules = {rule for rule, _ in refusals.values()}
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
    wanted_cpus = f"Needs {wanted.least_millicpus / 1000:g} CPUs and "
    text = f"{wanted_cpus}{wanted.least_memory_mb:,} MiB of memory: {'; '.join(told)}"
    if is_kept:
        return WaitReason.PRIORITY, f"{text}, which are kept for a job ahead"
    return WaitReason.RESOURCES, text
