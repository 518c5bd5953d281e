"""Which GPUs, and why not: a pure decider. Sizes are integer MiB.

A snapshot goes in; a `Placement` or a `Wait` comes out, with one `Line` per GPU that
tells by which rule it was refused and how much was missing. Two ledgers count on each
GPU: what was promised to its attempts, and what was measured; the larger one is need.
"""

from collections.abc import Iterable
from dataclasses import replace

from jobs.status import WaitReason
from scheduler.placement.rules import examine, fits_ever, image_text, node_refusal
from scheduler.placement.terms import (
    Gpu,
    Holding,
    Line,
    Node,
    Placement,
    Request,
    Snapshot,
    Wait,
)

__all__ = [
    "Gpu",
    "Holding",
    "Line",
    "Node",
    "Placement",
    "Request",
    "Snapshot",
    "Wait",
    "decide",
    "examine",
    "fits_ever",
    "plan",
]


def decide(snapshot: Snapshot, request: Request) -> Placement | Wait:
    """Place one request now, or say why not."""
    if not request.gpu_count:
        return _decide_without_gpu(snapshot, request)
    lines = tuple(examine(snapshot, request, gpu) for gpu in snapshot.gpus.values())
    sets = [
        chosen
        for node in snapshot.nodes
        if (chosen := _best_fit(request, node, lines)) is not None
    ]
    if not sets:
        reason, text = _why(snapshot, request, lines)
        return Wait(request=request, reason=reason, text=text, lines=lines)
    gpus = min(sets, key=lambda some: (sum(g.free_mb for g in some), some[0].node))
    return Placement(
        request=request,
        node=gpus[0].node,
        gpus=gpus,
        vram_mb=tuple(_takes(request, gpu) for gpu in gpus),
        lines=lines,
    )


def _takes(request: Request, gpu: Gpu) -> int:
    return (request.min_vram_mb or 0) if request.share else gpu.usable_mb


def _best_fit(
    request: Request, node: str, lines: Iterable[Line]
) -> tuple[Gpu, ...] | None:
    """The sufficient GPUs of one node that leave least over; all or none."""
    eligible = [
        line.gpu for line in lines if line.gpu.node == node and not line.blocked_by
    ]
    if len(eligible) < request.gpu_count:
        return None
    eligible.sort(key=lambda gpu: (gpu.free_mb, gpu.index))
    return tuple(eligible[: request.gpu_count])


def _decide_without_gpu(snapshot: Snapshot, request: Request) -> Placement | Wait:
    refusal = fits_ever(snapshot, request)
    if refusal:
        return Wait(request=request, reason=WaitReason.NEVER_FITS, text=refusal)
    up = [
        node
        for node in snapshot.nodes.values()
        if node.state == "up" and not node_refusal(node, request)
    ]
    ready = [node for node in up if not request.image or request.image in node.images]
    room = [node for node in ready if node.cpus_free > 0]
    if room:
        node = max(room, key=lambda node: (node.cpus_free, node.name))
        return Placement(request=request, node=node.name, gpus=(), vram_mb=())
    cpus = sum(node.cpus for node in ready)
    reason = WaitReason.RESOURCES
    text = f"Jobs without a GPU take one CPU each, and all {cpus} are taken."
    if not up:
        reason, text = WaitReason.NODE_DOWN, "No node is up."
    elif not ready:
        told = "; ".join(image_text(node, request.image) for node in up)
        reason, text = WaitReason.IMAGE_PULL, f"It waits for its image: {told}."
    return Wait(request=request, reason=reason, text=text)


_PASSING = frozenset({"holder", "vram", "held", "image_pull", "foreign_use"})
# What would have to be lifted for the request to fit, and what the wait is then
# called; the first that would be enough is the reason.
_LIFTS: tuple[tuple[frozenset[str], WaitReason, str], ...] = (
    (frozenset({"image_pull"}), WaitReason.IMAGE_PULL, "The image is not there yet"),
    (frozenset({"held"}), WaitReason.PRIORITY, "What is free is kept for a job ahead"),
    (
        frozenset({"foreign_use"}),
        WaitReason.FOREIGN_USE,
        "Processes outside GPU Jobs use what would",
    ),
    (
        _PASSING,
        WaitReason.RESOURCES,
        "Others hold what would",
    ),
    (
        frozenset({"draining", "node_draining", "quarantined", "gone", *_PASSING}),
        WaitReason.DRAINING,
        "What would is out of service",
    ),
)


def _why(
    snapshot: Snapshot, request: Request, lines: tuple[Line, ...]
) -> tuple[WaitReason, str]:
    if not any(node.state in ("up", "draining") for node in snapshot.nodes.values()):
        return WaitReason.NODE_DOWN, f"Needs {request}; no node is up."
    refusal = fits_ever(snapshot, request)
    if refusal:
        return WaitReason.NEVER_FITS, refusal
    free = max(_count(lines, node, frozenset()) for node in snapshot.nodes)
    would = f"only {free}" if free else "none"
    needs = f"Needs {request} on one node; {would} would do now."
    told = " ".join(f"{line.gpu}: {line.text}." for line in lines if line.blocked_by)
    for lifted, reason, text in _LIFTS:
        if any(_count(lines, n, lifted) >= request.gpu_count for n in snapshot.nodes):
            return reason, f"{needs} {text}. {told}"
    return WaitReason.NODE_DOWN, f"{needs} {told}"


def _count(lines: Iterable[Line], node: str, lifted: frozenset[str]) -> int:
    return sum(
        line.gpu.node == node and (not line.blocked_by or line.blocked_by in lifted)
        for line in lines
    )


def plan(snapshot: Snapshot, queue: Iterable[Request]) -> list[Placement | Wait]:
    """Decide for the whole queue, in its order, each on what the ones before left.

    The first job that waits for GPUs keeps its best set of them: nothing passes onto
    those, so that a large job is not overtaken for ever by small ones.
    """
    decisions = []
    for request in queue:
        decision = decide(snapshot, request)
        decisions.append(decision)
        if isinstance(decision, Placement):
            snapshot = _consume(snapshot, decision)
        elif not snapshot.held and decision.reason in _HOLDING:
            snapshot = replace(snapshot, held=_best_set(decision))
    return decisions


_HOLDING = (WaitReason.RESOURCES, WaitReason.FOREIGN_USE)
_TEMPORARY = frozenset({"", "holder", "vram", "foreign_use"})


def _best_set(wait: Wait) -> frozenset[int]:
    """The GPUs of one node that miss least to hold the request."""
    sets = []
    for node in {line.gpu.node for line in wait.lines}:
        lines = [
            line
            for line in wait.lines
            if line.gpu.node == node and line.blocked_by in _TEMPORARY
        ]
        lines.sort(key=lambda line: (line.missing_mb, line.gpu.need_mb, line.gpu.id))
        chosen = lines[: wait.request.gpu_count]
        if len(chosen) == wait.request.gpu_count:
            missing = sum(line.missing_mb + line.gpu.need_mb for line in chosen)
            sets.append((missing, node, frozenset(line.gpu.id for line in chosen)))
    return min(sets)[2] if sets else frozenset()


def _consume(snapshot: Snapshot, placement: Placement) -> Snapshot:
    gpus = dict(snapshot.gpus)
    for gpu, vram_mb in zip(placement.gpus, placement.vram_mb, strict=True):
        taken = Holding(promised_mb=vram_mb, is_exclusive=not placement.request.share)
        gpus[gpu.id] = replace(gpu, holdings=(*gpu.holdings, taken))
    nodes = dict(snapshot.nodes)
    if not placement.gpus:
        node = nodes[placement.node]
        nodes[placement.node] = replace(node, cpus_free=node.cpus_free - 1)
    return replace(snapshot, gpus=gpus, nodes=nodes)
