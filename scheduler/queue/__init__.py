"""The queue of tasks, and the one door to django-q2. Nothing else imports it."""

from scheduler.queue.messages import (
    TASKS,
    Claim,
    claim,
    enqueue,
    fail,
    finish,
    forget_dead,
    oldest_unclaimed,
    prune,
    standing,
)

__all__ = [
    "TASKS",
    "Claim",
    "claim",
    "enqueue",
    "fail",
    "finish",
    "forget_dead",
    "oldest_unclaimed",
    "prune",
    "standing",
]
