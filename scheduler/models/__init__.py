from scheduler.models.hardware import (
    GPU,
    OUT_OF_SERVICE,
    GpuSample,
    GpuState,
    ImageState,
    Node,
    NodeImage,
    NodeState,
)
from scheduler.models.queue import TaskMessage
from scheduler.models.scheduling import Allocation, DecisionRecord, Lane, PassLease
from scheduler.models.verification import Verification

__all__ = [
    "GPU",
    "OUT_OF_SERVICE",
    "Allocation",
    "DecisionRecord",
    "GpuSample",
    "GpuState",
    "ImageState",
    "Lane",
    "Node",
    "NodeImage",
    "NodeState",
    "PassLease",
    "TaskMessage",
    "Verification",
]
