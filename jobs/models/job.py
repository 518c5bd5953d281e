import uuid
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import Exists, F, OuterRef, Q
from django.utils import timezone

from jobs.models.bounds import MAX_GPUS, MAX_MB, MAX_TIMEOUT_S, between, choices
from jobs.models.jobconstraints import CONSTRAINTS
from jobs.routing import Risk
from jobs.status import (
    BAD_OUTCOMES,
    IN_REVIEW,
    LIVE,
    TERMINAL,
    Condition,
    OnOom,
    Reason,
    Status,
    Visibility,
    WaitReason,
)

DEFAULT_PRIORITY = 50


class JobQuerySet(models.QuerySet["Job"]):
    def visible_to(self, user: Any) -> "JobQuerySet":
        """Jobs of `user`, and those that their group may look at; an operator sees all.
        Others' jobs do not exist."""
        if user.is_staff:
            return self
        groups = list(user.groups.values_list("name", flat=True))
        shown = Q(visibility=Visibility.GROUP, group__in=groups)
        return self.filter(Q(owner=user) | shown if groups else Q(owner=user))

    def queued(self) -> "JobQuerySet":
        """Waiting jobs, the head of the line first."""
        return self.filter(status=Status.QUEUED).order_by(
            "-priority", "created_at", "id"
        )

    def ready(self, now: datetime) -> "JobQuerySet":
        """Queued jobs that nothing keeps out of the line: no hold, no time, no job."""
        began = Q(begin_at__isnull=True) | Q(begin_at__lte=now)
        return self.queued().filter(began, held_at__isnull=True).independent()

    def independent(self) -> "JobQuerySet":
        """Those that wait for no other job, and do not end because of one."""
        in_the_way = Q(dependencies__outcome="") | Q(
            dependencies__condition=Condition.AFTER_OK,
            dependencies__outcome__in=BAD_OUTCOMES,
        )
        kept = Job.objects.filter(in_the_way, pk=OuterRef("pk"))
        return self.filter(~Exists(kept))

    def tasks_of(self, array_id: uuid.UUID) -> "JobQuerySet":
        return self.filter(array_id=array_id).order_by("array_index")


class Job(models.Model):
    """One request with its whole story."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="jobs"
    )
    name = models.CharField(max_length=100)
    # An image; of a model job it is that of its tier.
    image = models.CharField(max_length=255, blank=True)
    command = models.JSONField(null=True, blank=True)
    model_name = models.CharField(max_length=100, blank=True)
    params = models.JSONField(null=True, blank=True)
    risk = models.CharField(max_length=20, choices=choices(Risk), blank=True)
    policy = models.ForeignKey(
        "jobs.RoutingPolicy",
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="jobs",
    )
    tier = models.CharField(max_length=100, blank=True)
    on_oom = models.CharField(
        max_length=20, choices=choices(OnOom), default=OnOom.FAIL.value
    )
    on_memory_oom = models.CharField(
        max_length=20, choices=choices(OnOom), default=OnOom.FAIL.value
    )
    escalations = models.PositiveIntegerField(default=0)
    # What was asked for, of the fields that an escalation has changed since.
    asked = models.JSONField(default=dict, blank=True)
    gpu_count = models.IntegerField(default=1, validators=between(0, MAX_GPUS))
    min_vram_mb = models.IntegerField(
        null=True, blank=True, validators=between(1, MAX_MB)
    )
    share = models.BooleanField(default=False)
    gpu_name = models.CharField(max_length=100, blank=True)
    cpus = models.FloatField(null=True, blank=True, validators=between(0.01, 1024))
    memory_mb = models.IntegerField(
        null=True, blank=True, validators=between(16, MAX_MB)
    )
    shm_mb = models.IntegerField(null=True, blank=True, validators=between(1, MAX_MB))
    env = models.JSONField(default=dict, blank=True)
    # By variable the name of the owner's secret whose value it gets.
    secrets = models.JSONField(default=dict, blank=True)
    volumes = models.JSONField(default=list, blank=True)
    # Empty: as GPUJOBS_NETWORK says.
    network = models.CharField(max_length=63, blank=True)
    timeout_s = models.IntegerField(default=3600, validators=between(1, MAX_TIMEOUT_S))
    grace_s = models.IntegerField(default=10, validators=between(0, 120))
    priority = models.IntegerField(default=DEFAULT_PRIORITY, validators=between(0, 100))
    # Which of the owner's groups it is accounted to; text, as in the usage records.
    group = models.CharField(max_length=150, blank=True)
    # Who may look at it, beside its owner and operators.
    visibility = models.CharField(
        max_length=20,
        choices=choices(Visibility),
        default=Visibility.OWNER.value,
    )
    # Where it may run: one node by its name, nodes by their labels.
    node_name = models.CharField(max_length=100, blank=True)
    node_labels = models.JSONField(default=dict, blank=True)
    # "0-99%4" as it was asked; each task is a job, the first one's id is the array's.
    array = models.CharField(max_length=200, blank=True)
    array_id = models.UUIDField(null=True, blank=True)
    array_index = models.IntegerField(null=True, blank=True)
    begin_at = models.DateTimeField(null=True, blank=True)
    held_at = models.DateTimeField(null=True, blank=True)
    held_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
    )
    # An operator moved it to the top of the queue; the latest one is first.
    topped_at = models.DateTimeField(null=True, blank=True)
    idempotency_key = models.CharField(max_length=100, null=True, blank=True)  # noqa: DJ001 - unique where set

    status = models.CharField(
        max_length=20, choices=choices(Status), default=Status.QUEUED.value
    )
    # Of a job that runs: empty, or that a person must look at its result.
    reason = models.CharField(
        max_length=40, choices=[*choices(Reason), (IN_REVIEW, IN_REVIEW)], blank=True
    )
    reason_text = models.TextField(blank=True)
    wait_reason = models.CharField(
        max_length=40, choices=choices(WaitReason), blank=True
    )
    wait_text = models.TextField(blank=True)
    exit_code = models.IntegerField(null=True, blank=True)
    cancel_requested_at = models.DateTimeField(null=True, blank=True)
    cancel_requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
    )
    created_at = models.DateTimeField(default=timezone.now)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    log_path = models.CharField(max_length=255, blank=True)
    assigned_gpu_indices = models.JSONField(default=list, blank=True)
    assigned_gpu_uuids = models.JSONField(default=list, blank=True)

    objects = JobQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at", "id"]
        permissions = [("raise_priority", "May raise a priority above the default")]
        indexes = [
            models.Index(
                F("priority").desc(),
                "created_at",
                name="job_queue",
                condition=Q(status=Status.QUEUED.value),
            ),
            models.Index(fields=["owner", "-created_at"], name="job_of_owner"),
            models.Index(fields=["-created_at"], name="job_newest"),
            models.Index(
                fields=["group", "-created_at"],
                name="job_of_group",
                condition=Q(visibility=Visibility.GROUP.value),
            ),
            models.Index(
                fields=["array_id", "array_index"],
                name="job_of_array",
                condition=Q(array_id__isnull=False),
            ),
        ]
        constraints = CONSTRAINTS

    def __str__(self) -> str:
        return f"{self.name} ({str(self.id)[:8]})"

    @property
    def is_terminal(self) -> bool:
        return self.status in TERMINAL

    @property
    def is_live(self) -> bool:
        return self.status in LIVE

    @property
    def cancel_requested(self) -> bool:
        return self.cancel_requested_at is not None

    @property
    def is_held(self) -> bool:
        return self.held_at is not None

    def may_be_changed_by(self, user: Any) -> bool:
        """Who sees it as one of its group only looks."""
        return self.owner_id == user.pk or user.is_staff

    def may_be_released_by(self, user: Any) -> bool:
        """An operator's hold on somebody else's job is an operator's to end."""
        return self.held_by_id == self.owner_id or user.is_staff

    @property
    def open_parents(self) -> list[uuid.UUID]:
        """The jobs and arrays that it still waits for."""
        return [d.parent_id for d in self.dependencies.all() if not d.outcome]
