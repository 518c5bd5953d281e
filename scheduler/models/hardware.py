"""What the hardware is, as the supervisors saw it last."""

from django.db import models
from django.db.models import Q
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
    # When it was last seen to vanish while something ran on it.
    lost_at = models.DateTimeField(null=True, blank=True)
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
