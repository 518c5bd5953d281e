"""The queue of tasks: what was asked for and is not done yet."""

from django.db import models
from django.db.models import Q
from django.utils import timezone


class TaskMessage(models.Model):
    """A task that was asked for: a function of scheduler.tasks by name, and its ids.

    Written in the transaction that needs it done, deleted when the task is over. It is
    claimed once: nobody is given it again, as whoever needs it done asks again.
    """

    # The node whose cluster runs it; empty for any cluster.
    queue = models.CharField(max_length=100, blank=True)
    function = models.CharField(max_length=40)
    # Plain texts: who can write this table can name ids, and no code.
    arguments = models.JSONField(default=list, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    claimed_at = models.DateTimeField(null=True, blank=True)
    claimed_by = models.CharField(max_length=160, blank=True)
    # Of one that raised: when, and its traceback.
    failed_at = models.DateTimeField(null=True, blank=True)
    error = models.TextField(blank=True)

    class Meta:
        ordering = ["id"]
        constraints = [
            # Asked for twice and begun by nobody is asked for once. One that is claimed
            # stands in nobody's way: what it looked at may be older than the new ask.
            models.UniqueConstraint(
                fields=["queue", "function", "arguments"],
                name="task_message_unclaimed_once",
                condition=Q(claimed_at__isnull=True),
            ),
            models.CheckConstraint(
                name="task_message_claimed_by_somebody",
                condition=Q(claimed_at__isnull=True, claimed_by="", failed_at=None)
                | (Q(claimed_at__isnull=False) & ~Q(claimed_by="")),
            ),
        ]
        indexes = [
            models.Index(
                fields=["queue", "id"],
                name="task_message_unclaimed",
                condition=Q(claimed_at__isnull=True),
            )
        ]

    def __str__(self) -> str:
        return f"{self.function}({', '.join(self.arguments)})"
