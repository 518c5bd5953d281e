"""Who holds what of the hardware, and what the scheduling passes remember."""

from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from jobs.models import Attempt
from scheduler.models.hardware import GPU


class AllocationQuerySet(models.QuerySet["Allocation"]):
    def live(self) -> "AllocationQuerySet":
        return self.filter(released_at__isnull=True)


class Allocation(models.Model):
    """This attempt holds this much VRAM of this GPU. Opened once, released once."""

    attempt = models.ForeignKey(
        Attempt, on_delete=models.CASCADE, related_name="allocations"
    )
    gpu = models.ForeignKey(GPU, on_delete=models.PROTECT, related_name="allocations")
    vram_mb = models.IntegerField()
    is_exclusive = models.BooleanField()
    # What the supervisor last saw the attempt use on this GPU.
    measured_mb = models.IntegerField(default=0)
    reserved_at = models.DateTimeField(default=timezone.now)
    released_at = models.DateTimeField(null=True, blank=True)

    objects = AllocationQuerySet.as_manager()

    class Meta:
        ordering = ["id"]
        constraints = [
            models.CheckConstraint(
                name="allocation_sizes",
                condition=Q(vram_mb__gt=0, measured_mb__gte=0),
            ),
            models.CheckConstraint(
                name="allocation_reserved_before_released",
                condition=Q(released_at__isnull=True)
                | Q(reserved_at__lte=F("released_at")),
            ),
            models.UniqueConstraint(
                fields=["attempt", "gpu"], name="allocation_once_per_gpu"
            ),
            models.UniqueConstraint(
                fields=["gpu"],
                name="allocation_exclusive_alone",
                condition=Q(released_at__isnull=True, is_exclusive=True),
            ),
        ]
        indexes = [
            models.Index(
                fields=["gpu"],
                name="allocation_live",
                condition=Q(released_at__isnull=True),
            )
        ]

    def __str__(self) -> str:
        return f"{self.vram_mb} MiB of {self.gpu_id}"

    @property
    def over_promise_mb(self) -> int:
        """What a shared attempt uses beyond what it was promised; an exclusive one has
        the GPU for itself."""
        return 0 if self.is_exclusive else max(0, self.measured_mb - self.vram_mb)


class Lane(models.Model):
    """When a lane of the queue (the jobs of one owner that ask for the same) was last
    served: its first job ages from here, so that a flood does not age as one."""

    key = models.CharField(max_length=40, unique=True)
    served_at = models.DateTimeField()

    class Meta:
        ordering = ["key"]

    def __str__(self) -> str:
        return self.key


class DecisionRecord(models.Model):
    """What a pass that placed something considered, and what came of it: replayable."""

    at = models.DateTimeField(default=timezone.now)
    # JSON, zlib-compressed; the hash is SHA-256 of the JSON.
    inputs = models.BinaryField()
    inputs_hash = models.CharField(max_length=64)
    outcome = models.JSONField()

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["at"], name="decision_at")]

    def __str__(self) -> str:
        return f"decision {self.pk}"


class PassLease(models.Model):
    """One scheduling pass at a time over all processes; one row (id 1).

    A wake raises `wakes`; a pass serves the number it read when it began, so a wake
    that comes during a pass is never absorbed by it.
    """

    wakes = models.BigIntegerField(default=0)
    served = models.BigIntegerField(default=0)
    holder = models.CharField(max_length=160, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    # When the first wake came that is not served yet: silence is counted from here.
    woken_at = models.DateTimeField(null=True, blank=True)
    passed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = "pass lease"
        constraints = [
            models.CheckConstraint(name="pass_lease_one_row", condition=Q(id=1))
        ]

    def __str__(self) -> str:
        return f"{self.served} of {self.wakes} wakes served"
