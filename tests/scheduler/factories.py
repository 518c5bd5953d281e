"""Rows of the scheduler for tests: plain functions."""

import itertools
from typing import Any

from django.utils import timezone

from jobs.models import Attempt, Job
from scheduler import placement, reservation
from scheduler.models import (
    GPU,
    Allocation,
    ImageState,
    Node,
    NodeImage,
    NodeState,
    TaskMessage,
)
from tests.factories import IMAGE, make_job

GB = 1024
_numbers = itertools.count()


def make_node(name: str = "gauss", **fields: Any) -> Node:
    """A node that is up, was heard of just now, and has the tests' image."""
    defaults = {
        "state": NodeState.UP,
        "heartbeat_at": timezone.now(),
        "cpus": 8,
        "memory_mb": 64 * GB,
    }
    node = Node.objects.create(name=name, **{**defaults, **fields})
    NodeImage.objects.create(node=node, image=IMAGE, state=ImageState.PRESENT)
    return node


def make_gpu(node: Node, total_mb: int = 24 * GB, **fields: Any) -> GPU:
    index = node.gpus.count()
    uuid = f"GPU-{next(_numbers):08d}"
    name = "NVIDIA GeForce RTX 3090"
    return GPU.objects.create(
        **{"node": node, "uuid": uuid, "index": index, "name": name}
        | {"total_mb": total_mb, **fields}
    )


def make_live_attempt(job: Job, number: int = 1, **fields: Any) -> Attempt:
    """A bare row, for tests of what the database refuses."""
    return Attempt.objects.create(job=job, number=number, node="gauss", **fields)


def hold(
    attempt: Attempt, gpu: GPU, vram_mb: int, *, exclusive: bool = False
) -> Allocation:
    return Allocation.objects.create(
        attempt=attempt, gpu=gpu, vram_mb=vram_mb, is_exclusive=exclusive
    )


def make_reserved(**spec: Any) -> Attempt:
    """An attempt that a pass has just placed: its GPUs are held, its launch is asked."""
    return place(make_job(**{"command": ["train"], **spec}))


def place(job: Job) -> Attempt:
    snapshot = reservation.load_snapshot()
    decision = placement.decide(snapshot, reservation.request_of(job))
    assert isinstance(decision, placement.Placement), decision
    return reservation.reserve(str(job.pk), decision)


def asked(name: str) -> list[tuple[str, ...]]:
    """The arguments of each task of that name that waits for the cluster."""
    rows = TaskMessage.objects.filter(function=name, claimed_at=None)
    return [tuple(row.arguments) for row in rows]


def holds(attempt: Attempt) -> bool:
    return Allocation.objects.live().filter(attempt=attempt).exists()
