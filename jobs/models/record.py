from django.db import models
from django.db.models import Q
from django.utils import timezone

from jobs.models.bounds import choices
from jobs.status import Fault


class AuditRecord(models.Model):
    """Who did what, to what. Text only, so that it outlives what it tells of."""

    actor = models.CharField(max_length=254)
    action = models.CharField(max_length=60)
    target = models.CharField(max_length=254)
    details = models.JSONField(default=dict)
    address = models.CharField(max_length=64, blank=True)
    at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["id"]
        indexes = [models.Index(fields=["target"], name="audit_target")]

    def __str__(self) -> str:
        return f"{self.actor} {self.action} {self.target}"


class UnsealedRecord(models.Model):
    """Names an audit record that waits for its seal. A trigger writes it in the
    transaction of the record, so that one which commits late is never overlooked."""

    record_id = models.BigIntegerField(primary_key=True)

    class Meta:
        ordering = ["record_id"]

    def __str__(self) -> str:
        return f"record {self.record_id}"


class AuditSeal(models.Model):
    """One link of the chain over the audit records, in the order of its own numbers.

    `hash` covers the record, the rest of this row and the hash before (jobs.sealing).
    Anchored is the last of each sealing: it is told to the file outside the database.
    """

    number = models.BigIntegerField(primary_key=True)
    # No foreign key: whoever deletes the record must not take its seal along.
    record_id = models.BigIntegerField(unique=True)
    previous = models.CharField(max_length=64)
    hash = models.CharField(max_length=64)
    sealed_at = models.DateTimeField()
    is_anchored = models.BooleanField()

    class Meta:
        ordering = ["number"]

    def __str__(self) -> str:
        return f"seal {self.number} of record {self.record_id}"


class UsageRecord(models.Model):
    """What an attempt used; outlives its job, so keys are text."""

    owner = models.CharField(max_length=254)
    group = models.CharField(max_length=150, blank=True)
    job = models.CharField(max_length=36)
    attempt_number = models.PositiveIntegerField()
    gpu_seconds = models.FloatField()
    vram_mb_seconds = models.FloatField()
    fault = models.CharField(max_length=20, choices=choices(Fault))
    ended_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["id"]
        indexes = [
            models.Index(fields=["owner", "ended_at"], name="usage_of_owner"),
            models.Index(fields=["ended_at"], name="usage_recent"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["job", "attempt_number"], name="usage_once_per_attempt"
            ),
            models.CheckConstraint(
                name="usage_not_negative",
                condition=Q(gpu_seconds__gte=0, vram_mb_seconds__gte=0),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.owner}: {self.gpu_seconds:.0f} GPU-seconds"
