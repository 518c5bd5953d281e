"""The standing rules: what refuses a GPU or a node whatever runs there, as a table.

What else refuses (who holds how much until when) depends on the state of a pass and is
in `board`.
"""

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import NamedTuple

from scheduler.placement.terms import Gpu, Node, Request, Snapshot


class NodeRule(NamedTuple):
    name: str
    refuses: Callable[[Node, Request], bool]
    text: Callable[[Node, Request], str]


class GpuRule(NamedTuple):
    name: str
    refuses: Callable[[Gpu, Request], bool]
    text: Callable[[Gpu, Request], str]


def image_text(node: Node, request: Request) -> str:
    pull = node.pulls.get(request.image)
    return f"node {node.name} does not have the image yet" + (
        f": {pull}" if pull else ""
    )


def _state_text(what: str, state: str, why: str) -> str:
    return f"{what} is {state}" + (f": {why}" if why else "")


def _too_few_cpus(node: Node, request: Request) -> bool:
    return (request.cpus or 0) > node.cpus


def _too_little_memory(node: Node, request: Request) -> bool:
    # A node that has not told yet refuses nothing.
    wanted = max(request.memory_mb or 0, request.shm_mb or 0)
    return bool(node.memory_mb) and wanted > node.memory_mb


def _is_other(node: Node, request: Request) -> bool:
    return request.node_name not in ("", node.name) or any(
        node.labels.get(key) != value for key, value in request.node_labels
    )


def _other_text(node: Node, request: Request) -> str:
    told = ", ".join(f"{key}={value}" for key, value in request.node_labels)
    wanted = request.node_name or f"one with {told}"
    return f"it is on node {node.name}, not on {wanted}"


# The most lasting cause first: a GPU is refused by the first rule that says no.
NODE_HARDWARE: tuple[NodeRule, ...] = (
    NodeRule("other_node", _is_other, _other_text),
    NodeRule(
        "node_too_small",
        _too_few_cpus,
        lambda node, _: f"node {node.name} has {node.cpus} CPUs",
    ),
    NodeRule(
        "node_too_small",
        _too_little_memory,
        lambda node, _: f"node {node.name} has {node.memory_mb:,} MiB of memory",
    ),
)
NODE_SERVICE: tuple[NodeRule, ...] = (
    NodeRule(
        "node_draining",
        lambda node, _: node.state in ("draining", "quarantined"),
        lambda node, _: _state_text(f"node {node.name}", node.state, node.state_reason),
    ),
    NodeRule(
        "node_down",
        lambda node, _: node.state != "up",
        lambda node, _: f"node {node.name} is {node.state}",
    ),
    NodeRule(
        "image_pull",
        lambda node, request: bool(request.image) and request.image not in node.images,
        image_text,
    ),
)
GPU_HARDWARE: tuple[GpuRule, ...] = (
    GpuRule(
        "gpu_name",
        lambda gpu, request: not names(gpu, request),
        lambda gpu, _: f"it is a {gpu.name}",
    ),
    GpuRule(
        "too_small",
        # At least 1: where nothing is usable not even "any GPU" can be held.
        lambda gpu, request: gpu.usable_mb < max(1, request.vram_mb),
        lambda gpu, _: f"only {gpu.usable_mb:,} MiB are usable",
    ),
)
GPU_SERVICE: tuple[GpuRule, ...] = (
    GpuRule(
        "gone",
        lambda gpu, _: not gpu.is_present,
        lambda gpu, _: "the driver does not list it",
    ),
    GpuRule(
        "draining",
        lambda gpu, _: gpu.state == "draining",
        lambda gpu, _: _state_text("it", gpu.state, gpu.state_reason),
    ),
    GpuRule(
        "quarantined",
        lambda gpu, _: gpu.state == "quarantined",
        lambda gpu, _: _state_text("it", gpu.state, gpu.state_reason),
    ),
)

# The rules that no waiting changes.
HARDWARE = frozenset(
    [rule.name for rule in NODE_HARDWARE] + [rule.name for rule in GPU_HARDWARE]
)


def names(gpu: Gpu, request: Request) -> bool:
    wanted = request.gpu_name or "*"
    return fnmatchcase(gpu.name.lower(), wanted.lower())


def suits(gpu: Gpu, request: Request) -> bool:
    """Whether the GPU's hardware could hold the request."""
    return not any(rule.refuses(gpu, request) for rule in GPU_HARDWARE)


def node_refusal(
    node: Node,
    request: Request,
    rules: tuple[NodeRule, ...] = NODE_HARDWARE + NODE_SERVICE,
) -> tuple[str, str]:
    """The first rule that refuses the node, and its sentence; ("", "") if none does."""
    for rule in rules:
        if rule.refuses(node, request):
            return rule.name, rule.text(node, request)
    return "", ""


def gpu_refusal(snapshot: Snapshot, gpu: Gpu, request: Request) -> tuple[str, str]:
    """The first standing rule that refuses the GPU, or its node for it."""
    node = snapshot.nodes[gpu.node]
    for gpu_rules, node_rules in (
        (GPU_HARDWARE, NODE_HARDWARE),
        (GPU_SERVICE, NODE_SERVICE),
    ):
        for rule in gpu_rules:
            if rule.refuses(gpu, request):
                return rule.name, rule.text(gpu, request)
        refused = node_refusal(node, request, node_rules)
        if refused[0]:
            return refused
    return "", ""


def fits_ever(snapshot: Snapshot, request: Request) -> str:
    """Empty if some node's hardware could hold the request; else the refusal. While
    hardware is not known yet nothing is refused."""
    nodes = snapshot.nodes.values()
    with_gpus = {gpu.node for gpu in snapshot.gpus.values()}
    is_known = [n.state != "joining" or n.name in with_gpus for n in nodes]
    if not nodes or not all(is_known):
        return ""
    if request.node_name and request.node_name not in snapshot.nodes:
        there = ", ".join(sorted(snapshot.nodes))
        return f"There is no node {request.node_name}. There are: {there}."
    refusals = [node_refusal(node, request, NODE_HARDWARE)[1] for node in nodes]
    if all(refusals):
        return f"No node will do for {request}: {'; '.join(refusals)}."
    best = max(_count(snapshot, request, node) for node in nodes)
    return "" if best >= request.gpu_count else _too_few(snapshot, request, best)


def _count(snapshot: Snapshot, request: Request, node: Node) -> int:
    if node_refusal(node, request, NODE_HARDWARE)[0]:
        return 0
    return sum(
        gpu.node == node.name and suits(gpu, request) for gpu in snapshot.gpus.values()
    )


def _too_few(snapshot: Snapshot, request: Request, best: int) -> str:
    gpus = snapshot.gpus.values()
    if not gpus:
        return "No node here has a GPU: an operator sees at each node what it reports."
    if not any(names(gpu, request) for gpu in gpus):
        there = ", ".join(sorted({gpu.name for gpu in gpus}))
        return f"No GPU here is named {request.gpu_name}. There are: {there}."
    largest = max(gpu.usable_mb for gpu in gpus)
    nodes = snapshot.nodes.values()
    refusals = [node_refusal(node, request, NODE_HARDWARE)[1] for node in nodes]
    told = "".join(f"; {text}" for text in refusals if text)
    return (
        f"No node could ever hold {request}: of such GPUs one node has at most {best}, "
        f"and the largest GPU has {largest:,} MiB usable{told}. Ask for less."
    )
