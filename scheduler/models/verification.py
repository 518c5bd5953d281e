"""What the supervisors found when they checked the invariants last."""

from django.db import models
from django.utils import timezone


class Verification(models.Model):
    """The newest check of one node. Findings are those of scheduler.invariants:
    [{"invariant", "code", "what", "rows", "do", "is_information"}]."""

    node = models.CharField(max_length=100, unique=True)
    at = models.DateTimeField(default=timezone.now)
    findings = models.JSONField(default=list, blank=True)

    class Meta:
        ordering = ["node"]

    def __str__(self) -> str:
        return f"{self.node}: {len(self.findings)} findings"
