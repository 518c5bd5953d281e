"""The rules that refuse a GPU, each with its numbers and its sentence."""

from collections.abc import Callable
from fnmatch import fnmatchcase

from scheduler.placement.terms import Gpu, Line, Node, Request, Snapshot

Rule = Callable[[Snapshot, Request, Gpu], Line | None]


def _node_rule(snapshot: Snapshot, request: Request, gpu: Gpu) -> Line | None:
    state = snapshot.nodes[gpu.node].state
    if state == "up":
        return None
    rule = "node_draining" if state == "draining" else "node_down"
    return Line(gpu=gpu, blocked_by=rule, text=f"node {gpu.node} is {state}")


def _state_rule(snapshot: Snapshot, request: Request, gpu: Gpu) -> Line | None:
    if not gpu.is_present:
        return Line(gpu=gpu, blocked_by="gone", text="the driver does not list it")
    if gpu.state == "enabled":
        return None
    why = f": {gpu.state_reason}" if gpu.state_reason else ""
    return Line(gpu=gpu, blocked_by=gpu.state, text=f"it is {gpu.state}{why}")


def _name_rule(snapshot: Snapshot, request: Request, gpu: Gpu) -> Line | None:
    wanted = request.gpu_name or "*"
    if fnmatchcase(gpu.name.lower(), wanted.lower()):
        return None
    return Line(gpu=gpu, blocked_by="gpu_name", text=f"it is a {gpu.name}")


def _size_rule(snapshot: Snapshot, request: Request, gpu: Gpu) -> Line | None:
    # At least 1: where nothing is usable not even "any GPU" can be held.
    missing = max(1, request.min_vram_mb or 0) - gpu.usable_mb
    if missing <= 0:
        return None
    text = f"only {gpu.usable_mb:,} MiB are usable"
    return Line(gpu=gpu, blocked_by="too_small", missing_mb=missing, text=text)


def node_refusal(node: Node, request: Request) -> str:
    """Empty if the node's CPUs and memory could hold the request."""
    if (request.cpus or 0) > node.cpus:
        return f"node {node.name} has {node.cpus} CPUs"
    if (request.memory_mb or 0) > node.memory_mb:
        return f"node {node.name} has {node.memory_mb:,} MiB of memory"
    return ""


def _machine_rule(snapshot: Snapshot, request: Request, gpu: Gpu) -> Line | None:
    text = node_refusal(snapshot.nodes[gpu.node], request)
    return Line(gpu=gpu, blocked_by="node_too_small", text=text) if text else None


def image_text(node: Node, image: str) -> str:
    pull = node.pulls.get(image)
    return f"node {node.name} does not have the image yet" + (
        f": {pull}" if pull else ""
    )


def _holder_rule(snapshot: Snapshot, request: Request, gpu: Gpu) -> Line | None:
    exclusive = any(holding.is_exclusive for holding in gpu.holdings)
    if not exclusive and (request.share or not gpu.holdings):
        return None
    text = f"an exclusive job holds all {gpu.usable_mb:,} MiB of it"
    if not exclusive:
        many = len(gpu.holdings)
        jobs = "a shared job holds" if many == 1 else f"{many} shared jobs hold"
        text = f"{jobs} {gpu.need_mb:,} MiB of it"
    missing = max(0, (request.min_vram_mb or 0) - gpu.free_mb)
    return Line(gpu=gpu, blocked_by="holder", missing_mb=missing, text=text)


def _foreign_rule(snapshot: Snapshot, request: Request, gpu: Gpu) -> Line | None:
    wanted = request.min_vram_mb or 0
    missing = max(0, wanted - gpu.free_mb)
    fits_without = wanted <= gpu.free_mb + gpu.foreign_mb
    disturbed = not request.share and gpu.foreign_mb > snapshot.foreign_tolerance_mb
    if not disturbed and not (missing and gpu.foreign_mb and fits_without):
        return None
    text = f"{gpu.foreign_mb:,} MiB are used by processes outside GPU Jobs"
    return Line(gpu=gpu, blocked_by="foreign_use", missing_mb=missing, text=text)


def _vram_rule(snapshot: Snapshot, request: Request, gpu: Gpu) -> Line | None:
    missing = (request.min_vram_mb or 0) - gpu.free_mb
    if missing <= 0:
        return None
    text = f"{gpu.free_mb:,} MiB are free"
    return Line(gpu=gpu, blocked_by="vram", missing_mb=missing, text=text)


def _held_rule(snapshot: Snapshot, request: Request, gpu: Gpu) -> Line | None:
    if gpu.id not in snapshot.held:
        return None
    return Line(gpu=gpu, blocked_by="held", text="it is kept for a job ahead")


def _image_rule(snapshot: Snapshot, request: Request, gpu: Gpu) -> Line | None:
    if not request.image or request.image in snapshot.nodes[gpu.node].images:
        return None
    text = image_text(snapshot.nodes[gpu.node], request.image)
    return Line(gpu=gpu, blocked_by="image_pull", text=text)


# In this order: a GPU is refused by the most lasting cause.
HARDWARE: tuple[Rule, ...] = (_name_rule, _size_rule, _machine_rule)
RULES: tuple[Rule, ...] = (
    *HARDWARE,
    _state_rule,
    _node_rule,
    _image_rule,
    _holder_rule,
    _foreign_rule,
    _vram_rule,
    _held_rule,
)


def examine(snapshot: Snapshot, request: Request, gpu: Gpu) -> Line:
    """What stands between this GPU and the request, by the first rule that says no."""
    for rule in RULES:
        line = rule(snapshot, request, gpu)
        if line is not None:
            return line
    return Line(gpu=gpu, text="it would do")


def fits_ever(snapshot: Snapshot, request: Request) -> str:
    """Empty if some node's hardware could hold the request; else the refusal."""
    nodes = snapshot.nodes.values()
    if not nodes:
        return ""
    if all(node_refusal(node, request) for node in nodes):
        told = "; ".join(node_refusal(node, request) for node in nodes)
        return f"No node is large enough: {told}. Ask for less."
    counts = dict.fromkeys(snapshot.nodes, 0)
    for gpu in snapshot.gpus.values():
        counts[gpu.node] += not any(rule(snapshot, request, gpu) for rule in HARDWARE)
    best = max(counts.values())
    return "" if best >= request.gpu_count else _too_few(snapshot, request, best)


def _too_few(snapshot: Snapshot, request: Request, best: int) -> str:
    gpus = snapshot.gpus.values()
    if not any(_name_rule(snapshot, request, gpu) is None for gpu in gpus):
        names = ", ".join(sorted({gpu.name for gpu in gpus})) or "none at all"
        return f"No GPU here is named {request.gpu_name or '*'}. There are: {names}."
    largest = max(gpu.usable_mb for gpu in gpus)
    return (
        f"No node could ever hold {request}: of such GPUs one node has at most {best}, "
        f"and the largest GPU has {largest:,} MiB usable. Ask for less."
    )
