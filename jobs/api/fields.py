"""Fields that take a value of their own type only, and their OpenAPI shapes."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail

from jobs.spec.placing import MAX_PARENTS
from jobs.status import Condition

VOLUME = {
    "type": "object",
    "properties": {
        "source": {"type": "string"},
        "target": {"type": "string"},
        "mode": {"type": "string", "enum": ["ro", "rw"]},
    },
}
COMMAND = {
    "nullable": True,
    "oneOf": [
        {"type": "string", "description": 'Run by ["/bin/sh", "-c", command].'},
        {"type": "array", "items": {"type": "string"}, "minItems": 1},
    ],
}
PARENTS = {
    "type": "array",
    "maxItems": MAX_PARENTS,
    "items": {
        "oneOf": [
            {"type": "string", "format": "uuid", "description": "As after_ok."},
            {
                "type": "object",
                "required": ["job_id"],
                "properties": {
                    "job_id": {"type": "string", "format": "uuid"},
                    "condition": {"type": "string", "enum": list(Condition)},
                },
            },
        ]
    },
}
ENV = {"type": "object", "additionalProperties": {"type": "string"}}
SECRETS = {
    "oneOf": [
        {"type": "array", "items": {"type": "string"}, "description": "Names."},
        {**ENV, "description": "By variable the name of the secret."},
    ]
}
OBJECT = {"type": "object", "additionalProperties": {}}


class StrictInteger(serializers.IntegerField):
    def to_internal_value(self, data: Any) -> int:
        if type(data) is not int:  # True is an int to isinstance
            self.fail("invalid")
        return super().to_internal_value(data)


class StrictFloat(serializers.FloatField):
    def to_internal_value(self, data: Any) -> float:
        if type(data) not in (int, float):
            self.fail("invalid")
        return super().to_internal_value(data)


class StrictBoolean(serializers.BooleanField):
    def to_internal_value(self, data: Any) -> bool:
        if not isinstance(data, bool):
            self.fail("invalid", input=data)
        return data


class StrictChar(serializers.CharField):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"trim_whitespace": False, **kwargs})

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return super().to_internal_value(data)


class StrictDateTime(serializers.DateTimeField):
    """Says its time zone itself: ours is not the sender's."""

    default_error_messages = {
        "no_time_zone": "Add the time zone, for example 2026-12-01T08:00:00Z.",
    }

    def to_internal_value(self, value: Any) -> datetime:
        if not isinstance(value, str):
            self.fail("invalid", format="2026-12-01T08:00:00Z")
        return super().to_internal_value(value)

    def enforce_timezone(self, value: datetime) -> datetime:
        if value.tzinfo is None:
            self.fail("no_time_zone")
        return super().enforce_timezone(value)


@extend_schema_field(COMMAND)
class CommandField(serializers.JSONField):
    pass


@extend_schema_field(ENV)
class EnvField(serializers.JSONField):
    pass


@extend_schema_field(SECRETS)
class SecretsField(serializers.JSONField):
    pass


@extend_schema_field(ENV)
class LabelsField(serializers.JSONField):
    pass


@extend_schema_field(PARENTS)
class ParentsField(serializers.JSONField):
    pass


@extend_schema_field({"type": "array", "items": VOLUME})
class VolumesField(serializers.JSONField):
    pass


@extend_schema_field(OBJECT)
class ParamsField(serializers.DictField):
    pass


class Strict(serializers.Serializer[Any]):
    """Refuses what it does not know or only shows, rather than ignore it."""

    unknown_code = "unknown_field"

    def to_internal_value(self, data: Mapping[str, Any]) -> Any:
        taken = {str(field.field_name) for field in self._writable_fields}
        error = ErrorDetail(
            f"This can not be set. What can: {', '.join(sorted(taken))}.",
            self.unknown_code,
        )
        if unknown := [name for name in data if name not in taken]:
            raise serializers.ValidationError({name: [error] for name in unknown})
        return super().to_internal_value(data)
