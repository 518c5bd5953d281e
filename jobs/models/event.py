from django.db import models
from django.utils import timezone

from jobs.models.job import Job


class JobEvent(models.Model):
    """One line of a job's story, in the past tense; never updated."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="events")
    event_type = models.CharField(max_length=40)
    payload = models.JSONField(default=dict)
    actor = models.CharField(max_length=254)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.event_type} by {self.actor}"
