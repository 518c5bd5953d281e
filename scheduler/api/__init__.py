from scheduler.api.hardware import GPUView, NodeView
from scheduler.api.jobs import JobViewSet

__all__ = ["GPUView", "JobViewSet", "NodeView"]
