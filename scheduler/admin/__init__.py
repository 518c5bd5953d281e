"""What the hardware is and who holds it, for operators."""

from scheduler.admin import gpus, history, nodes, tasks, verification

__all__ = ["gpus", "history", "nodes", "tasks", "verification"]
