from scheduler.api.hardware import GPUView, NodeView
from scheduler.api.health import HealthView
from scheduler.api.jobs import JobViewSet

__all__ = ["GPUView", "HealthView", "JobViewSet", "NodeView"]
