"""Routing policies with their tiers, and what was decided and judged by them."""

import hashlib
import json
from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator
from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from jobs.models.attempt import Attempt
from jobs.models.bounds import MAX_GPUS, MAX_MB, MAX_TIMEOUT_S, between, choices
from jobs.models.job import Job
from jobs.routing import Policy, Prefer, Review, Risk, RoutingError, Work, parse
from jobs.status import Cause

NAME = RegexValidator(
    r"\A[a-z0-9][a-z0-9._-]{0,62}\Z",
    "Use 1 to 63 small letters, digits, '.', '_' and '-', the first a letter or digit.",
)
# Once a job was routed by a version, none of these changes.
FROZEN = (
    *("name", "version", "description", "work", "prefer", "params", "rules"),
    *("validators", "escalate_on", "max_escalations", "review", "review_within_s"),
    *("release", "digest", "used_at"),
)


class RoutingPolicyQuerySet(models.QuerySet["RoutingPolicy"]):
    def active(self) -> "RoutingPolicyQuerySet":
        """The one version of each policy that new jobs are routed by."""
        return self.filter(is_active=True)


class RoutingPolicy(models.Model):
    """One version of a named kind of model work; its tiers are rows of their own."""

    name = models.CharField(
        max_length=63, validators=[NAME], help_text="What model_name names."
    )
    version = models.PositiveIntegerField(default=1, editable=False)
    description = models.TextField(blank=True, max_length=2000)
    work = models.CharField(
        max_length=20, choices=choices(Work), default=Work.GENERAL.value
    )
    prefer = models.CharField(
        max_length=20, choices=choices(Prefer), default=Prefer.SMALLEST.value
    )
    params = models.JSONField(
        null=True, blank=True, help_text="The JSON Schema that a task must meet."
    )
    rules = models.JSONField(default=list, blank=True)
    validators = models.JSONField(default=list, blank=True)
    escalate_on = models.JSONField(default=list, blank=True)
    max_escalations = models.PositiveIntegerField(default=0)
    review = models.CharField(
        max_length=20, choices=choices(Review), default=Review.NEVER.value
    )
    review_within_s = models.PositiveIntegerField(default=86_400)
    release = models.JSONField(
        default=dict, blank=True, help_text="thresholds and max_regression."
    )
    # Of the whole document, tiers included: the same policy loaded twice is one version.
    digest = models.CharField(max_length=64, blank=True, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    created_by = models.CharField(max_length=254, blank=True, editable=False)
    used_at = models.DateTimeField(null=True, blank=True, editable=False)
    activated_at = models.DateTimeField(null=True, blank=True, editable=False)
    is_active = models.BooleanField(default=False, editable=False)

    objects = RoutingPolicyQuerySet.as_manager()

    class Meta:
        verbose_name_plural = "routing policies"
        ordering = ["name", "-version"]
        constraints = [
            models.UniqueConstraint(fields=["name", "version"], name="policy_version"),
            models.UniqueConstraint(
                fields=["name"], name="policy_one_active", condition=Q(is_active=True)
            ),
            models.CheckConstraint(
                name="policy_active_at",
                condition=Q(is_active=False) | Q(activated_at__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} version {self.version}"

    @property
    def is_frozen(self) -> bool:
        return self.used_at is not None

    def document(self) -> dict[str, Any]:
        """As jobs.routing.parse takes it."""
        tiers = [tier.document() for tier in self.tiers.order_by("position")]
        return {**self.own_document(), "tiers": tiers}

    def own_document(self) -> dict[str, Any]:
        """The same without tiers."""
        names = set(FROZEN) - {"version", "digest", "used_at"}
        told = {name: getattr(self, name) for name in sorted(names)}
        return {name: v for name, v in told.items() if v not in (None, "", [], {})}

    def read(self) -> Policy:
        """Raises ValidationError for rows that are no policy."""
        try:
            return parse(self.document())
        except RoutingError as error:
            raise ValidationError(str(error), "bad_policy") from error


def digest_of(document: Any) -> str:
    told = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(told.encode()).hexdigest()


class ModelTier(models.Model):
    """One size of model of a policy's version; position 0 is the smallest."""

    policy = models.ForeignKey(
        RoutingPolicy, on_delete=models.CASCADE, related_name="tiers"
    )
    position = models.PositiveIntegerField()
    name = models.CharField(max_length=63, validators=[NAME])
    image = models.CharField(max_length=255)
    command = models.JSONField(null=True, blank=True)
    env = models.JSONField(default=dict, blank=True)
    gpu_count = models.IntegerField(default=1, validators=between(0, MAX_GPUS))
    min_vram_mb = models.IntegerField(
        null=True, blank=True, validators=between(1, MAX_MB)
    )
    share = models.BooleanField(default=False)
    gpu_names = models.JSONField(
        default=list, blank=True, help_text="Patterns; the first is tried first."
    )
    cpus = models.FloatField(null=True, blank=True, validators=between(0.01, 1024))
    memory_mb = models.IntegerField(
        null=True, blank=True, validators=between(16, MAX_MB)
    )
    shm_mb = models.IntegerField(null=True, blank=True, validators=between(1, MAX_MB))
    timeout_s = models.IntegerField(default=3600, validators=between(1, MAX_TIMEOUT_S))
    grace_s = models.IntegerField(default=10, validators=between(0, 120))
    model_version = models.CharField(max_length=100)
    prompt_version = models.CharField(max_length=100, blank=True)
    prompt = models.TextField(
        blank=True, max_length=20_000, help_text="{{ name }} stands for a param."
    )
    max_complexity = models.FloatField(
        null=True, blank=True, help_text="Empty: whatever comes."
    )
    max_risk = models.CharField(
        max_length=20, choices=choices(Risk), default=Risk.MEDIUM.value
    )

    class Meta:
        ordering = ["policy", "position"]
        constraints = [
            models.UniqueConstraint(
                fields=["policy", "position"], name="tier_position"
            ),
            models.UniqueConstraint(fields=["policy", "name"], name="tier_name"),
        ]

    def __str__(self) -> str:
        return self.name

    def document(self) -> dict[str, Any]:
        ours = {"id", "policy", "position"}
        names = [f.name for f in self._meta.concrete_fields if f.name not in ours]
        told = {name: getattr(self, name) for name in names}
        return {name: v for name, v in told.items() if v not in (None, "", [], {})}


class RoutingDecision(models.Model):
    """Which tier or how much VRAM a job gets next, with all that was rejected.

    The first is of its submission; each other follows an attempt, or hardware that is
    gone. `ground` and `tried` are what it was decided from: it can be made again.
    """

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="decisions")
    number = models.PositiveIntegerField()
    cause = models.CharField(max_length=20, choices=choices(Cause))
    policy = models.ForeignKey(
        RoutingPolicy, on_delete=models.PROTECT, null=True, related_name="+"
    )
    tier = models.CharField(max_length=100, blank=True)
    gpu_name = models.CharField(max_length=100, blank=True)
    model_version = models.CharField(max_length=100, blank=True)
    prompt_version = models.CharField(max_length=100, blank=True)
    params_digest = models.CharField(max_length=64, blank=True)
    risk = models.CharField(max_length=20, blank=True)
    complexity = models.FloatField(null=True)
    contributions = models.JSONField(default=list)
    candidates = models.JSONField(default=list)
    fallback = models.TextField(blank=True)
    text = models.TextField()
    ground = models.JSONField(default=dict)
    tried = models.JSONField(default=list)
    # What the job asks for from now on, by field.
    request = models.JSONField(default=dict)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["job", "number"]
        constraints = [
            models.UniqueConstraint(fields=["job", "number"], name="decision_number"),
        ]

    def __str__(self) -> str:
        return f"decision {self.number} of {self.job_id}"


class Evaluation(models.Model):
    """The evaluator's word on what an attempt left, and the reviewer's."""

    attempt = models.OneToOneField(
        Attempt, on_delete=models.CASCADE, related_name="evaluation"
    )
    # None while a validator attempt or a reviewer is waited for.
    is_accepted = models.BooleanField(null=True)
    outcomes = models.JSONField(default=list)
    scores = models.JSONField(default=dict)
    gpu_seconds = models.FloatField(default=0)
    created_at = models.DateTimeField(default=timezone.now)
    review_until = models.DateTimeField(null=True, blank=True)
    reviewed_at = models.DateTimeField(null=True, blank=True)
    reviewed_by = models.CharField(max_length=254, blank=True)
    review_accepts = models.BooleanField(null=True)
    review_text = models.TextField(blank=True, max_length=4000)

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.CheckConstraint(
                name="evaluation_reviewed",
                condition=Q(
                    reviewed_at__isnull=True,
                    reviewed_by="",
                    review_accepts__isnull=True,
                )
                | (
                    Q(reviewed_at__isnull=False, review_accepts__isnull=False)
                    & ~Q(reviewed_by="")
                ),
            ),
            models.CheckConstraint(
                name="evaluation_review_was_asked_for",
                condition=Q(reviewed_at__isnull=True) | Q(review_until__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"evaluation of {self.attempt}"


class SuiteRun(models.Model):
    """An evaluation suite run through a policy's version: what its release gate reads."""

    policy = models.ForeignKey(
        RoutingPolicy, on_delete=models.CASCADE, related_name="suite_runs"
    )
    suite = models.CharField(max_length=100)
    suite_digest = models.CharField(max_length=64)
    scores = models.JSONField(default=dict)
    cases = models.JSONField(default=list)
    started_at = models.DateTimeField(default=timezone.now)
    finished_at = models.DateTimeField(null=True, blank=True)
    by = models.CharField(max_length=254)

    class Meta:
        ordering = ["-started_at", "-id"]
        constraints = [
            models.CheckConstraint(
                name="suite_run_times",
                condition=Q(finished_at__isnull=True)
                | Q(started_at__lte=F("finished_at")),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.suite} on {self.policy}"
