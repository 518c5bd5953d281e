import secrets
import uuid

from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from jobs.models.bounds import choices, values
from jobs.models.job import Job
from jobs.status import STOP_REASONS, WITH_CONTAINER, Kind, Phase, Reason


def new_nonce() -> str:
    return secrets.token_hex(16)


class AttemptQuerySet(models.QuerySet["Attempt"]):
    def live(self) -> "AttemptQuerySet":
        return self.filter(ended_at__isnull=True)

    def bound(self) -> "AttemptQuerySet":
        """Live ones that their node must still do something about: of one whose result
        is in review nothing is left there."""
        return self.live().exclude(evaluation__review_until__isnull=False)

    def running(self) -> "AttemptQuerySet":
        """Whose container is there or on its way."""
        return self.live().filter(phase__in=WITH_CONTAINER)

    def accepted(self) -> "AttemptQuerySet":
        """Those whose artifacts are a result; of one job, the latest is its result."""
        ended_well = self.filter(kind=Kind.JOB, reason=Reason.COMPLETED)
        return ended_well.order_by("-number")


class Attempt(models.Model):
    """One start of a job. Its container carries its name and its nonce."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="attempts")
    number = models.PositiveIntegerField()
    kind = models.CharField(
        max_length=20, choices=choices(Kind), default=Kind.JOB.value
    )
    phase = models.CharField(
        max_length=20, choices=choices(Phase), default=Phase.STARTING.value, blank=True
    )
    node = models.CharField(max_length=100)
    nonce = models.CharField(max_length=32, unique=True, default=new_nonce)
    tier = models.CharField(max_length=100, blank=True)
    # By which it got what it asked for; None where it is as its job was submitted.
    decision = models.ForeignKey(
        "jobs.RoutingDecision",
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        related_name="attempts",
    )
    gpu_uuids = models.JSONField(default=list, blank=True)
    # Of a validator attempt: whose result it looks at, and for which validator.
    subject = models.ForeignKey(
        "self",
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        related_name="validations",
    )
    validator = models.CharField(max_length=63, blank=True)
    # What it was given of the node: as asked, else the fair share of its GPUs.
    cpus = models.FloatField(null=True, blank=True)
    memory_mb = models.IntegerField(null=True, blank=True)
    shm_mb = models.IntegerField(null=True, blank=True)
    # Its secrets as they were sealed when it was launched; forgotten when it ends.
    sealed = models.JSONField(default=dict, blank=True)
    image_digest = models.CharField(max_length=255, blank=True)
    container_id = models.CharField(max_length=64, null=True, blank=True, unique=True)
    boot_id = models.CharField(max_length=36, blank=True)
    # The wish: written before any signal is sent, so that an exit is judged by it.
    stop_reason = models.CharField(
        max_length=40, choices=choices(STOP_REASONS), blank=True
    )
    stop_requested_at = models.DateTimeField(null=True, blank=True)
    stop_sent_at = models.DateTimeField(null=True, blank=True)
    # The daemon was seen to kill it although no wish stood.
    kill_seen_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    started_at = models.DateTimeField(null=True, blank=True)
    # By the runner's clock, which saw it; the row may end much later.
    exited_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    exit_code = models.IntegerField(null=True, blank=True)
    reason = models.CharField(max_length=40, choices=choices(Reason), blank=True)
    evidence = models.JSONField(default=dict, blank=True)
    peak_vram_mb = models.JSONField(default=dict, blank=True)
    mean_utilisation = models.JSONField(default=dict, blank=True)
    log_path = models.CharField(max_length=255, blank=True)

    objects = AttemptQuerySet.as_manager()

    class Meta:
        ordering = ["job", "number"]
        constraints = [
            models.UniqueConstraint(
                fields=["job", "kind"],
                name="attempt_one_live_of_a_kind",
                condition=Q(ended_at__isnull=True),
            ),
            models.UniqueConstraint(fields=["job", "number"], name="attempt_number"),
            models.CheckConstraint(
                name="attempt_ended_or_in_a_phase",
                condition=Q(ended_at__isnull=True, reason="", phase__in=values(Phase))
                | (Q(ended_at__isnull=False, phase="") & ~Q(reason="")),
            ),
            models.CheckConstraint(
                name="attempt_validates_another",
                condition=Q(kind=Kind.JOB, subject__isnull=True, validator="")
                | (Q(kind=Kind.VALIDATOR, subject__isnull=False) & ~Q(validator="")),
            ),
            models.CheckConstraint(
                name="attempt_started_before_ended",
                condition=Q(started_at__isnull=True)
                | Q(ended_at__isnull=True)
                | Q(started_at__lte=F("ended_at")),
            ),
            models.CheckConstraint(
                name="attempt_stop_reason_and_at",
                condition=Q(stop_reason="", stop_requested_at__isnull=True)
                | Q(
                    stop_reason__in=values(STOP_REASONS),
                    stop_requested_at__isnull=False,
                ),
            ),
        ]

    def __str__(self) -> str:
        return self.container_name

    @property
    def container_name(self) -> str:
        return f"gpujob-{self.job_id}-{self.number}"

    @property
    def container(self) -> str:
        """What its runner knows it by: a name can be changed by hand, an id can not."""
        return self.container_id or self.container_name

    @property
    def is_live(self) -> bool:
        return self.ended_at is None


class Artifact(models.Model):
    """A file that an attempt left in /artifacts, under a name of our making."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    attempt = models.ForeignKey(
        Attempt, on_delete=models.CASCADE, related_name="artifacts"
    )
    path = models.TextField()
    storage_path = models.CharField(max_length=255, unique=True)
    size = models.BigIntegerField()
    sha256 = models.CharField(max_length=64)
    mime_type = models.CharField(max_length=255)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["path"]
        constraints = [
            models.CheckConstraint(name="artifact_size", condition=Q(size__gte=0)),
        ]

    def __str__(self) -> str:
        return self.path
