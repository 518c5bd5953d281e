"""What may be asked for: the rules that serializers and forms share.

Each rule raises Django's ValidationError with a stable code and a sentence that says
what to do. Bounds of plain numbers are validators on the fields of Job instead.
"""

from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ValidationError

from jobs.hostpolicy import HostPolicy
from jobs.spec import array
from jobs.spec.ceiling import ceiling_errors, refusal_of_our_own
from jobs.spec.container import (
    check_command,
    check_env,
    check_image,
    check_network,
    check_secret_name,
    clean_secrets,
    clean_volumes,
)
from jobs.spec.placing import (
    Parent,
    check_begin,
    check_labels,
    clean_parents,
    placing_errors,
)
from jobs.spec.text import (
    MAX_NAME,
    NOT_ONE_LINE,
    UNSTORABLE,
    check_name,
    check_text,
)
from jobs.status import Visibility

# What only a job takes that names a model, and what is its policy's to say.
OF_A_MODEL = ("params", "risk")
OF_AN_IMAGE = (
    *("command", "env", "secrets", "volumes", "gpu_count", "min_vram_mb", "share"),
    *("gpu_name", "cpus", "memory_mb", "shm_mb", "timeout_s", "grace_s"),
    *("on_oom", "on_memory_oom", "network"),
)

__all__ = [
    "NOT_ONE_LINE",
    "UNSTORABLE",
    "Parent",
    "array",
    "check",
    "check_begin",
    "check_command",
    "check_env",
    "check_image",
    "check_labels",
    "check_name",
    "check_network",
    "check_priority",
    "check_secret_name",
    "check_text",
    "check_visibility",
    "clean_parents",
    "clean_secrets",
    "clean_volumes",
    "default_name",
    "refusal_of_our_own",
]


def check_priority(value: int, *, most: int) -> None:
    if value > most:
        text = f"Above {most} an operator must let you: use at most that."
        raise ValidationError(text, "priority_not_allowed")


def check_visibility(visibility: str, group: str) -> None:
    if visibility == Visibility.GROUP and not group:
        text = "You are in no group that could look at it. Leave this out."
        raise ValidationError({"visibility": ValidationError(text, "no_group")})


def check(data: Mapping[str, Any], policy: HostPolicy) -> None:
    """Refuse fields that do not go together, or that the policy does not allow. `data`
    is a cleaned spec."""
    errors = {
        **ceiling_errors(data, policy),
        **_kind_errors(data),
        **_gpu_errors(data),
        **_memory_errors(data),
        **_secret_errors(data),
        **placing_errors(data),
    }
    if errors:
        raise ValidationError(errors)


def _kind_errors(data: Mapping[str, Any]) -> dict[str, ValidationError]:
    if data.get("image") and data.get("model_name"):
        text = "Give an image or a model_name, not both."
        return {"model_name": ValidationError(text, "image_and_model")}
    if not data.get("image") and not data.get("model_name"):
        text = "Give an image to run, or a model_name."
        return {"image": ValidationError(text, "required")}
    kind = "image" if data.get("image") else "model_name"
    foreign = OF_A_MODEL if kind == "image" else OF_AN_IMAGE
    text = f"A job with {kind} does not take this. Leave it out."
    # An empty value says the same as none.
    return {
        name: ValidationError(text, "not_for_this_kind")
        for name in foreign
        if data.get(name)
    }


def _gpu_errors(data: Mapping[str, Any]) -> dict[str, ValidationError]:
    gpu_count, min_vram_mb = data.get("gpu_count", 1), data.get("min_vram_mb")
    if gpu_count == 0 and min_vram_mb is not None:
        text = "A job without GPUs has no VRAM. Leave it out."
        return {"min_vram_mb": ValidationError(text, "vram_without_gpu")}
    if data.get("share") and gpu_count == 0:
        text = "A job without GPUs has none to share."
        return {"share": ValidationError(text, "share_without_gpu")}
    if data.get("share") and min_vram_mb is None:
        text = "To share a GPU, say how much VRAM the job needs at most."
        return {"min_vram_mb": ValidationError(text, "share_needs_vram")}
    return {}


def _memory_errors(data: Mapping[str, Any]) -> dict[str, ValidationError]:
    memory_mb, shm_mb = data.get("memory_mb"), data.get("shm_mb")
    if memory_mb is not None and shm_mb is not None and shm_mb > memory_mb:
        text = (
            "Shared memory counts in memory: ask for at most the job's memory, "
            f"{memory_mb:,} MiB, or for more memory."
        )
        return {"shm_mb": ValidationError(text, "shm_over_memory")}
    return {}


def _secret_errors(data: Mapping[str, Any]) -> dict[str, ValidationError]:
    if both := sorted((data.get("env") or {}).keys() & (data.get("secrets") or {})):
        text = f"{both[0]} is in env as well. Leave one of them out."
        return {"secrets": ValidationError(text, "doubled_variable")}
    return {}


def default_name(data: Mapping[str, Any]) -> str:
    """Name a job after its model or the last part of its image."""
    image = data.get("image", "").partition("@")[0].rpartition("/")[2]
    return data.get("model_name") or image.partition(":")[0][:MAX_NAME]
