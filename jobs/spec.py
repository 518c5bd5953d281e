"""What may be asked for: the rules that serializers and forms share.

Each rule raises Django's ValidationError with a stable code and a sentence that says
what to do. Bounds of plain numbers are validators on the fields of Job instead.
"""

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError

MAX_NAME = 100
MAX_IMAGE = 255
MAX_COMMAND_BYTES = 32 * 1024
MAX_COMMAND_ITEMS = 1000
# Linux's MAX_ARG_STRLEN, which counts the closing NUL too.
MAX_ARGUMENT_BYTES = 128 * 1024
MAX_ENV_KEYS = 256
MAX_ENV_VALUE_BYTES = 32 * 1024
MAX_ENV_BYTES = 128 * 1024
MAX_VOLUMES = 20
MAX_PATH = 4096
# Elsewhere a mount could hide what the image needs, or what we put there.
TARGET_ROOTS = ("/data", "/mnt", "/workspace", "/inputs", "/outputs", "/models")

_HOST = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
# A first component is a registry only if it has a dot or a port or is localhost.
_REGISTRY = rf"(?:localhost|{_HOST}(?:\.{_HOST})+|{_HOST}(?=:))(?::[0-9]{{1,5}})?/"
_COMPONENT = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_TAG = r":[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127}"
IMAGE = re.compile(
    rf"(?:{_REGISTRY})?{_COMPONENT}(?:/{_COMPONENT})*"
    rf"(?:{_TAG})?(?:@sha256:[0-9a-f]{{64}})?"
)
ENV_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
RESERVED_ENV = re.compile(
    r"NVIDIA_(?!(?:DISABLE_REQUIRE|TF32_OVERRIDE)$).*"
    r"|CUDA_VISIBLE_DEVICES|CUDA_DEVICE_ORDER|DOCKER_RESOURCE_.*|GPUJOBS_.*"
)
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
# Line separators break a line; direction overrides make a name read as another.
NOT_ONE_LINE = re.compile(
    rf"{CONTROL.pattern}|[\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)
UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")


def check_text(value: str) -> None:
    """Refuse what neither UTF-8 nor PostgreSQL nor an argument of a program can hold."""
    if UNSTORABLE.search(value):
        raise ValidationError(
            "Remove the NUL character or the half of a surrogate pair.", "bad_text"
        )


def check_name(value: str) -> None:
    check_text(value)
    if len(value) > MAX_NAME:
        raise ValidationError(f"Use at most {MAX_NAME} characters.", "max_length")
    if NOT_ONE_LINE.search(value):
        raise ValidationError(
            "Use one line without control characters.", "control_character"
        )


def check_image(value: str) -> None:
    if len(value) > MAX_IMAGE:
        raise ValidationError(f"Use at most {MAX_IMAGE} characters.", "max_length")
    if not IMAGE.fullmatch(value):
        raise ValidationError(
            "Write the image as [registry[:port]/]name[:tag][@sha256:digest], the name "
            "in lower case, for example pytorch/pytorch:2.9.0-cuda12.8-cudnn9-runtime.",
            "bad_image",
        )


def check_command(value: Any) -> None:
    """`value` is null, a string for /bin/sh -c, or a list run as it is."""
    if value is None:
        return
    if isinstance(value, str):
        _check_shell_line(value)
    elif isinstance(value, list) and all(isinstance(item, str) for item in value):
        _check_arguments(value)
    else:
        raise ValidationError("Give a string or a list of strings.", "bad_command")


def _check_shell_line(line: str) -> None:
    check_text(line)
    if not line.strip():
        raise ValidationError(
            "Leave the command out to run the image's own.", "empty_command"
        )
    if _size(line) > MAX_COMMAND_BYTES:
        raise ValidationError(
            "A command as a string may have 32 KiB. Put a longer script in the image "
            "or in a volume.",
            "command_too_long",
        )


def _check_arguments(arguments: list[str]) -> None:
    if not arguments or not arguments[0]:
        raise ValidationError(
            "Name a program, or leave the command out to run the image's own.",
            "empty_command",
        )
    if len(arguments) > MAX_COMMAND_ITEMS:
        raise ValidationError(
            f"A command may have {MAX_COMMAND_ITEMS:,} items.", "command_too_long"
        )
    for argument in arguments:
        check_text(argument)
        if _size(argument) >= MAX_ARGUMENT_BYTES:
            raise ValidationError(
                "Each item must be shorter than 131,072 bytes: Linux starts no "
                "program with a longer one.",
                "command_too_long",
            )


def check_env(value: Any) -> None:
    if not isinstance(value, dict):
        raise ValidationError("Give an object of names and texts.", "bad_env")
    if len(value) > MAX_ENV_KEYS:
        raise ValidationError(f"At most {MAX_ENV_KEYS} variables.", "env_too_large")
    for key, text in value.items():
        _check_variable(key, text)
    if sum(_size(key) + _size(text) for key, text in value.items()) > MAX_ENV_BYTES:
        raise ValidationError(
            "All variables together may have 128 KiB. Put more into a volume.",
            "env_too_large",
        )


def _check_variable(key: Any, text: Any) -> None:
    if not isinstance(key, str) or not ENV_KEY.fullmatch(key):
        raise ValidationError(
            f"{_shown(key)} is no variable name: use letters, digits and _, and no "
            "digit first.",
            "bad_env_name",
        )
    if RESERVED_ENV.fullmatch(key):
        raise ValidationError(
            f"{key} is set by GPU Jobs for each attempt. Remove it.", "env_reserved"
        )
    if not isinstance(text, str):
        raise ValidationError(f"The value of {key} must be a text.", "bad_env")
    check_text(text)
    if _size(text) > MAX_ENV_VALUE_BYTES:
        raise ValidationError(
            f"The value of {key} may have 32 KiB. Put more into a volume.",
            "env_too_large",
        )


def clean_volumes(value: Any) -> list[dict[str, str]]:
    """Return each volume as {"source", "target", "mode"}.

    An item may also be written in Docker's way, "source:target[:ro|rw]".
    """
    if not isinstance(value, list):
        raise ValidationError("Give a list of volumes.", "bad_volume")
    if len(value) > MAX_VOLUMES:
        raise ValidationError(f"At most {MAX_VOLUMES} volumes.", "too_many_volumes")
    volumes = [_clean_volume(item) for item in value]
    _check_targets([PurePosixPath(volume["target"]) for volume in volumes])
    return volumes


def _clean_volume(item: Any) -> dict[str, str]:
    if isinstance(item, str):
        item = dict(zip(("source", "target", "mode"), item.split(":", 2), strict=False))
    if (
        not isinstance(item, Mapping)
        or not {"source", "target"} <= item.keys() <= {"source", "target", "mode"}
        or item.get("mode", "ro") not in ("ro", "rw")
    ):
        raise ValidationError(
            'Write a volume as {"source": "/host/path", "target": "/data", '
            '"mode": "ro" or "rw"}, or as "/host/path:/data:ro".',
            "bad_volume",
        )
    source, target = _clean_path(item["source"]), _clean_path(item["target"])
    _check_source(source)
    return {"source": source, "target": target, "mode": item.get("mode", "ro")}


def _clean_path(path: Any) -> str:
    """Return `path` without a closing slash, or refuse what could mean another path."""
    if not isinstance(path, str) or not path.startswith("/"):
        raise ValidationError(f"{_shown(path)} is no absolute path.", "bad_path")
    parts = path.removesuffix("/").split("/")[1:]
    if (
        not parts
        or len(path) > MAX_PATH
        or not {"", ".", ".."}.isdisjoint(parts)
        or ":" in path
        or CONTROL.search(path)
        or UNSTORABLE.search(path)
    ):
        raise ValidationError(
            f"{_shown(path)}: a path may have {MAX_PATH:,} characters, no '//', '.', "
            "'..' or ':' in it and no control characters.",
            "bad_path",
        )
    return path.removesuffix("/")


def _check_source(source: str) -> None:
    roots = [str(root) for root in settings.VOLUME_ROOTS]
    if not any(PurePosixPath(source).is_relative_to(root) for root in roots):
        allowed = (
            f"Allowed are paths under {', '.join(roots)}."
            if roots
            else "The operator of this site allows none."
        )
        raise ValidationError(
            f"{_shown(source)} may not be mounted. {allowed}", "mount_not_allowed"
        )


def _check_targets(targets: list[PurePosixPath]) -> None:
    for position, target in enumerate(targets):
        if not any(target.is_relative_to(root) for root in TARGET_ROOTS):
            raise ValidationError(
                f"{_shown(str(target))}: mount under one of {', '.join(TARGET_ROOTS)}.",
                "bad_target",
            )
        for other in targets[:position]:
            if target.is_relative_to(other) or other.is_relative_to(target):
                raise ValidationError(
                    f"{_shown(str(other))} and {_shown(str(target))} overlap. Mount "
                    "each volume beside the others.",
                    "nested_target",
                )


def check_priority(value: int, *, most: int) -> None:
    if value > most:
        text = f"Above {most} an operator must let you: use at most that."
        raise ValidationError(text, "priority_not_allowed")


def check(data: Mapping[str, Any]) -> None:
    """Refuse fields that do not go together. `data` is a cleaned spec."""
    errors = {**_kind_errors(data), **_gpu_errors(data)}
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
    foreign = ["params"] if kind == "image" else ["command", "env", "volumes"]
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


def default_name(data: Mapping[str, Any]) -> str:
    """Name a job after its model or the last part of its image."""
    image = data.get("image", "").partition("@")[0].rpartition("/")[2]
    return data.get("model_name") or image.partition(":")[0][:MAX_NAME]


def _size(text: str) -> int:
    return len(text.encode(errors="surrogatepass"))


def _shown(value: Any) -> str:
    """A hostile value, fit to stand in a sentence."""
    return repr(value if len(str(value)) <= 80 else f"{str(value)[:80]}...")
