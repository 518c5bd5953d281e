from datetime import datetime
from typing import Any

from django.db import models
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from jobs import spec
from jobs.api.fields import (
    ENV,
    CommandField,
    EnvField,
    LabelsField,
    ParamsField,
    ParentsField,
    Strict,
    StrictBoolean,
    StrictChar,
    StrictDateTime,
    StrictFloat,
    StrictInteger,
    VolumesField,
)
from jobs.models import Artifact, Attempt, Job, JobDependency, JobEvent, User
from jobs.models.job import DEFAULT_PRIORITY


class DependencySerializer(serializers.ModelSerializer[JobDependency]):
    """`outcome` is how the other job or array ended, empty until it has."""

    job_id = serializers.UUIDField(source="parent_id")

    class Meta:
        model = JobDependency
        fields = ["job_id", "condition", "outcome"]


class JobSerializer(serializers.ModelSerializer[Job]):
    job_id = serializers.UUIDField(source="id", read_only=True)
    owner = serializers.EmailField(source="owner.email", read_only=True)
    command = CommandField(read_only=True)
    params = ParamsField(read_only=True, allow_null=True)
    volumes = VolumesField(read_only=True)
    env = serializers.SerializerMethodField()
    node_labels = LabelsField(read_only=True)
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
            "gpu_count",
            "min_vram_mb",
            "share",
            "gpu_name",
            "cpus",
            "memory_mb",
            "shm_mb",
            "env",
            "volumes",
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


class JobSubmitSerializer(Strict, serializers.ModelSerializer[Job]):
    """A spec: what may be asked for, by the rules of jobs.spec and the model."""

    serializer_field_mapping = {
        **serializers.ModelSerializer.serializer_field_mapping,
        models.IntegerField: StrictInteger,
        models.FloatField: StrictFloat,
        models.BooleanField: StrictBoolean,
        models.CharField: StrictChar,
    }
    command = CommandField(required=False, allow_null=True)
    params = ParamsField(required=False, allow_null=True)
    env = EnvField(required=False)
    volumes = VolumesField(required=False)
    node_labels = LabelsField(required=False)
    begin_at = StrictDateTime(required=False, allow_null=True)
    depends_on = ParentsField(required=False)
    hold = StrictBoolean(required=False)

    class Meta:
        model = Job
        fields = [
            "name",
            "image",
            "command",
            "model_name",
            "params",
            "gpu_count",
            "min_vram_mb",
            "share",
            "gpu_name",
            "cpus",
            "memory_mb",
            "shm_mb",
            "env",
            "volumes",
            "timeout_s",
            "grace_s",
            "priority",
            "group",
            "visibility",
            "node_name",
            "node_labels",
            "array",
            "begin_at",
            "depends_on",
            "hold",
        ]
        extra_kwargs = {"name": {"required": False, "trim_whitespace": True}}

    def validate_name(self, value: str) -> str:
        spec.check_name(value)
        return value

    def validate_gpu_name(self, value: str) -> str:
        spec.check_name(value)
        return value

    def validate_model_name(self, value: str) -> str:
        spec.check_name(value)
        return value

    def validate_image(self, value: str) -> str:
        if value:
            spec.check_image(value)
        return value

    def validate_command(self, value: Any) -> Any:
        spec.check_command(value)
        return value

    def validate_env(self, value: Any) -> dict[str, str]:
        spec.check_env(value)
        return value

    def validate_volumes(self, value: Any) -> list[dict[str, str]]:
        return spec.clean_volumes(value)

    def validate_priority(self, value: int) -> int:
        user = self.context["request"].user
        if not user.has_perm("jobs.raise_priority"):
            spec.check_priority(value, most=DEFAULT_PRIORITY)
        return value

    def validate_node_name(self, value: str) -> str:
        spec.check_name(value)
        return value

    def validate_node_labels(self, value: Any) -> dict[str, str]:
        spec.check_labels(value)
        return value

    def validate_array(self, value: str) -> str:
        if value:
            spec.array.parse(value)
        return value

    def validate_begin_at(self, value: datetime | None) -> datetime | None:
        if value is not None:
            spec.check_begin(value)
        return value

    def validate_depends_on(self, value: Any) -> list[spec.Parent]:
        return spec.clean_parents(value)

    def validate_group(self, value: str) -> str:
        return self.context["request"].user.group_for(value)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        spec.check(attrs)
        group = attrs.get("group") or self.validate_group("")
        spec.check_visibility(attrs.get("visibility", ""), group)
        return {"name": spec.default_name(attrs), **attrs, "group": group}


class EventSerializer(serializers.ModelSerializer[JobEvent]):
    payload = ParamsField(read_only=True)

    class Meta:
        model = JobEvent
        fields = ["id", "job_id", "event_type", "payload", "actor", "created_at"]


class AttemptSerializer(serializers.ModelSerializer[Attempt]):
    evidence = ParamsField(read_only=True)
    peak_vram_mb = ParamsField(read_only=True)
    mean_utilisation = ParamsField(read_only=True)

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
