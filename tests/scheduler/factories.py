"""Rows of the scheduler for tests: plain functions."""

import itertools
from typing import Any

from django.utils import timezone

from jobs.models import Attempt, Job
from scheduler.models import GPU, Allocation, ImageState, Node, NodeImage, NodeState
from tests.factories import IMAGE

GB = 1024
_numbers = itertools.count()


def make_node(name: str = "gauss", **fields: Any) -> Node:
    """A node that is up, was heard of just now, and has the tests' image."""
    defaults = {"state": NodeState.UP, "heartbeat_at": timezone.now(), "cpus": 8}
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
