"""A spec as the API takes it."""

from datetime import datetime
from typing import Any

from django.db import models
from rest_framework import serializers

from jobs import spec
from jobs.api.fields import (
    CommandField,
    EnvField,
    LabelsField,
    ParamsField,
    ParentsField,
    SecretsField,
    Strict,
    StrictBoolean,
    StrictChar,
    StrictDateTime,
    StrictFloat,
    StrictInteger,
    VolumesField,
)
from jobs.models import Job
from jobs.models.job import DEFAULT_PRIORITY
from jobs.models.secret import refuse_missing
from jobs.models.sitepolicy import told_allowed
from jobs.routing import Risk


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
    secrets = SecretsField(required=False)
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
            "risk",
            "on_oom",
            "on_memory_oom",
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

    def validate_secrets(self, value: Any) -> dict[str, str]:
        cleaned = spec.clean_secrets(value)
        refuse_missing(self.context["request"].user, cleaned.values())
        return cleaned

    def validate_volumes(self, value: Any) -> list[dict[str, str]]:
        return spec.clean_volumes(value)

    def validate_network(self, value: str) -> str:
        spec.check_network(value)
        return value

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
        spec.check(attrs, told_allowed())
        group = attrs.get("group") or self.validate_group("")
        spec.check_visibility(attrs.get("visibility", ""), group)
        if attrs.get("model_name"):
            attrs |= {"params": attrs.get("params") or {}}
            attrs |= {"risk": attrs.get("risk") or Risk.LOW.value}
        return {"name": spec.default_name(attrs), **attrs, "group": group}
