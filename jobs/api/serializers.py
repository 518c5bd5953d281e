from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from jobs.api.fields import (
    ENV,
    CommandField,
    EnvField,
    LabelsField,
    ParamsField,
    VolumesField,
)
from jobs.api.routing import EvaluationSerializer
from jobs.models import Artifact, Attempt, Job, JobDependency, JobEvent, User
from jobs.models.bounds import choices
from jobs.routing import Risk
from jobs.status import IN_REVIEW, Reason, WaitReason


class DependencySerializer(serializers.ModelSerializer[JobDependency]):
    """`outcome` is how the other job or array ended, empty until it has."""

    job_id = serializers.UUIDField(source="parent_id")

    class Meta:
        model = JobDependency
        fields = ["job_id", "condition", "outcome"]


class JobSerializer(serializers.ModelSerializer[Job]):
    job_id = serializers.UUIDField(source="id", read_only=True)
    owner = serializers.EmailField(source="owner.email", read_only=True)
    # Declared: of a read-only field the schema would not say that it may be empty.
    reason = serializers.ChoiceField(
        [*choices(Reason), (IN_REVIEW, IN_REVIEW)], allow_blank=True, read_only=True
    )
    risk = serializers.ChoiceField(choices(Risk), allow_blank=True, read_only=True)
    wait_reason = serializers.ChoiceField(
        choices(WaitReason), allow_blank=True, read_only=True
    )
    command = CommandField(read_only=True)
    params = ParamsField(read_only=True, allow_null=True)
    volumes = VolumesField(read_only=True)
    env = serializers.SerializerMethodField()
    secrets = EnvField(read_only=True, help_text="By variable the name of the secret.")
    node_labels = LabelsField(read_only=True)
    policy_version = serializers.IntegerField(
        source="policy.version", read_only=True, allow_null=True, default=None
    )
    is_held = serializers.BooleanField(read_only=True)
    depends_on = DependencySerializer(source="dependencies", many=True, read_only=True)
    cancel_requested = serializers.BooleanField(read_only=True)
    assigned_gpu_indices = serializers.ListField(
        child=serializers.IntegerField(), read_only=True
    )
    assigned_gpu_uuids = serializers.ListField(
        child=serializers.CharField(), read_only=True
    )

    class Meta:
        model = Job
        fields = read_only_fields = [
            "id",
            "job_id",
            "name",
            "owner",
            "status",
            "reason",
            "reason_text",
            "wait_reason",
            "wait_text",
            "image",
            "command",
            "model_name",
            "params",
            "risk",
            "policy_version",
            "tier",
            "on_oom",
            "on_memory_oom",
            "escalations",
            "gpu_count",
            "min_vram_mb",
            "share",
            "gpu_name",
            "cpus",
            "memory_mb",
            "shm_mb",
            "env",
            "secrets",
            "volumes",
            "network",
            "timeout_s",
            "grace_s",
            "priority",
            "group",
            "visibility",
            "node_name",
            "node_labels",
            "array",
            "array_id",
            "array_index",
            "begin_at",
            "is_held",
            "held_at",
            "depends_on",
            "assigned_gpu_indices",
            "assigned_gpu_uuids",
            "exit_code",
            "created_at",
            "started_at",
            "finished_at",
            "log_path",
            "cancel_requested",
        ]

    @extend_schema_field(ENV)
    def get_env(self, job: Job) -> dict[str, str]:
        """Values often are passwords: only their owner sees them, no operator."""
        if self.context["request"].user.pk == job.owner_id:
            return job.env
        return dict.fromkeys(job.env, "***")


class EventSerializer(serializers.ModelSerializer[JobEvent]):
    payload = ParamsField(read_only=True)

    class Meta:
        model = JobEvent
        fields = ["id", "job_id", "event_type", "payload", "actor", "created_at"]


class AttemptSerializer(serializers.ModelSerializer[Attempt]):
    evidence = ParamsField(read_only=True)
    peak_vram_mb = ParamsField(read_only=True)
    mean_utilisation = ParamsField(read_only=True)
    gpu_uuids = serializers.ListField(child=serializers.CharField(), read_only=True)
    decision = serializers.IntegerField(
        source="decision.number", read_only=True, default=None, allow_null=True
    )
    evaluation = EvaluationSerializer(read_only=True, default=None, allow_null=True)

    class Meta:
        model = Attempt
        # The nonce is left out: it tells our container from a forgery.
        fields = [
            "id",
            "job_id",
            "number",
            "kind",
            "phase",
            "node",
            "tier",
            "decision",
            "validator",
            "gpu_uuids",
            "cpus",
            "memory_mb",
            "shm_mb",
            "image_digest",
            "container_id",
            "stop_reason",
            "created_at",
            "started_at",
            "ended_at",
            "exit_code",
            "reason",
            "evidence",
            "evaluation",
            "peak_vram_mb",
            "mean_utilisation",
            "log_path",
        ]


class ArtifactFileSerializer(serializers.ModelSerializer[Artifact]):
    class Meta:
        model = Artifact
        fields = ["id", "path", "size", "sha256", "mime_type"]


class ResultSerializer(serializers.Serializer[Any]):
    """What the accepted attempt left: `id` is the attempt's."""

    id = serializers.UUIDField()
    job_id = serializers.UUIDField()
    storage_path = serializers.CharField()
    mime_type = serializers.CharField()
    created_at = serializers.DateTimeField()
    files = ArtifactFileSerializer(many=True)


class UserSerializer(serializers.ModelSerializer[User]):
    is_operator = serializers.BooleanField(source="is_staff", read_only=True)

    class Meta:
        model = User
        fields = ["id", "email", "name", "is_operator", "created_at", "time_zone"]
