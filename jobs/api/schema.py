"""Hooks that let the OpenAPI schema say what holds for every operation."""

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension

from jobs.api.problems import CONTENT_TYPE
from jobs.routing import Risk
from jobs.status import OnOom

# Fields of several serializers whose choices are the same have one name in the schema.
RISK = [word.value for word in Risk]
OOM = [word.value for word in OnOom]
PROBLEM = {
    "type": "object",
    "description": "RFC 9457 problem details.",
    "required": ["type", "title", "status", "detail", "instance", "code"],
    "properties": {
        "type": {"type": "string", "format": "uri-reference"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "instance": {"type": "string", "format": "uri-reference"},
        "code": {"type": "string", "description": "Stable, for programs."},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["pointer", "code", "detail"],
                "properties": {
                    "pointer": {"type": "string", "description": "RFC 6901"},
                    "code": {"type": "string"},
                    "detail": {"type": "string"},
                },
            },
        },
    },
}


class BearerScheme(OpenApiAuthenticationExtension):
    target_class = "jobs.api.access.BearerAuthentication"
    name = "bearerAuth"

    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:
        text = "An access token of a login, or a personal API token (gpujobs_...)."
        return {"type": "http", "scheme": "bearer", "description": text}


def of_version_1(endpoints: list[Any]) -> list[Any]:
    """Routes take a closing slash or none; the schema names the latter."""
    return [
        (path.rstrip("/"), *rest)
        for path, *rest in endpoints
        if path.startswith("/api/v1/")
    ]


def with_problems(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Every operation may fail, and fails in one shape."""
    result["components"].setdefault("schemas", {})["Problem"] = PROBLEM
    reference = {"schema": {"$ref": "#/components/schemas/Problem"}}
    answer = {"description": "A problem.", "content": {CONTENT_TYPE: reference}}
    for path in result["paths"].values():
        for operation in path.values():
            operation["responses"]["default"] = answer
    return result
