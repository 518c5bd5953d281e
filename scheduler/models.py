from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from jobs.models import Attempt


class NodeState(models.TextChoices):
    JOINING = "joining", "joining"
    UP = "up", "up"
    DRAINING = "draining", "draining"
    QUARANTINED = "quarantined", "quarantined"
    DOWN = "down", "down"


class GpuState(models.TextChoices):
    ENABLED = "enabled", "enabled"
    DRAINING = "draining", "draining"
    QUARANTINED = "quarantined", "quarantined"


# An operator's states, which the supervisor leaves as they are until their time is over.
OUT_OF_SERVICE = ("draining", "quarantined")


class ImageState(models.TextChoices):
    WANTED = "wanted", "wanted"
    PULLING = "pulling", "pulling"
    PRESENT = "present", "present"
    FAILED = "failed", "failed"


class Node(models.Model):
    """A host with a supervisor. Up only after its first full reconcile."""

    name = models.CharField(max_length=100, unique=True)
    state = models.CharField(
        max_length=20, choices=NodeState.choices, default=NodeState.JOINING.value
    )
    # Of a node that an operator (or the supervisor) took out: why, who, until when.
    state_reason = models.CharField(max_length=255, blank=True)
    state_by = models.CharField(max_length=254, blank=True)
    state_until = models.DateTimeField(null=True, blank=True)
    labels = models.JSONField(default=dict, blank=True)
    heartbeat_at = models.DateTimeField(null=True, blank=True)
    boot_id = models.CharField(max_length=36, blank=True)
    versions = models.JSONField(default=dict, blank=True)
    cpus = models.PositiveIntegerField(default=1)
    memory_mb = models.PositiveIntegerField(default=0)
    # What stands in the way on this node, as sentences an operator can act on.
    reports = models.JSONField(default=list, blank=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class GPU(models.Model):
    """A device, known by its UUID; the index is for display only."""

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="gpus")
    uuid = models.CharField(max_length=96, unique=True)
    index = models.IntegerField()
    name = models.CharField(max_length=100)
    total_mb = models.IntegerField()
    reserved_mb = models.IntegerField(default=0)
    headroom_mb = models.IntegerField(default=0)
    state = models.CharField(
        max_length=20, choices=GpuState.choices, default=GpuState.ENABLED.value
    )
    state_reason = models.CharField(max_length=255, blank=True)
    state_by = models.CharField(max_length=254, blank=True)
    state_until = models.DateTimeField(null=True, blank=True)
    # False while the inventory does not list it: it takes no new job.
    is_present = models.BooleanField(default=True)
    pci_bus_id = models.CharField(max_length=32, blank=True)
    nvlink_peers = models.JSONField(default=list, blank=True)
    # The newest sample, kept here so that a pass reads one table.
    used_mb = models.IntegerField(null=True, blank=True)
    foreign_mb = models.IntegerField(default=0)
    # Whose that is: [{"pid", "user", "process", "used_mb", "container"}].
    foreign_processes = models.JSONField(default=list, blank=True)
    utilisation = models.IntegerField(null=True, blank=True)
    temperature = models.IntegerField(null=True, blank=True)
    power_w = models.IntegerField(null=True, blank=True)
    sampled_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["node__name", "index"]
        verbose_name = "GPU"
        constraints = [
            models.CheckConstraint(
                name="gpu_sizes",
                condition=Q(
                    total_mb__gt=0,
                    reserved_mb__gte=0,
                    headroom_mb__gte=0,
                    foreign_mb__gte=0,
                ),
            )
        ]

    def __str__(self) -> str:
        return f"{self.node.name} GPU {self.index}"

    @property
    def usable_mb(self) -> int:
        return max(0, self.total_mb - self.reserved_mb - self.headroom_mb)


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


class NodeImage(models.Model):
    """Whether a node has an image, and how far a pull has come (sizes in bytes)."""

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="images")
    image = models.CharField(max_length=255)
    digest = models.CharField(max_length=255, blank=True)
    bytes_done = models.BigIntegerField(default=0)
    bytes_total = models.BigIntegerField(default=0)
    state = models.CharField(
        max_length=20, choices=ImageState.choices, default=ImageState.WANTED.value
    )
    text = models.TextField(blank=True)
    updated_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["node", "image"]
        constraints = [
            models.UniqueConstraint(fields=["node", "image"], name="node_image_once")
        ]

    def __str__(self) -> str:
        return f"{self.image} on {self.node_id}: {self.state}"


class GpuSample(models.Model):
    """What a GPU looked like at a time; with an attempt, what that attempt used."""

    gpu = models.ForeignKey(GPU, on_delete=models.CASCADE, related_name="samples")
    attempt = models.ForeignKey(
        Attempt,
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        related_name="samples",
    )
    at = models.DateTimeField(default=timezone.now)
    used_mb = models.IntegerField(null=True, blank=True)
    foreign_mb = models.IntegerField(default=0)
    utilisation = models.IntegerField(null=True, blank=True)
    temperature = models.IntegerField(null=True, blank=True)
    power_w = models.IntegerField(null=True, blank=True)

    class Meta:
        ordering = ["id"]
        indexes = [models.Index(fields=["gpu", "-at"], name="gpu_sample_newest")]

    def __str__(self) -> str:
        return f"{self.gpu_id} at {self.at:%H:%M:%S}"


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
    # Up to which wake the cluster was asked for a pass, and when.
    asked = models.BigIntegerField(default=0)
    asked_at = models.DateTimeField(null=True, blank=True)
    holder = models.CharField(max_length=32, blank=True)
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
]
