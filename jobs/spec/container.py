"""What runs in the container: its image, command, environment and volumes."""

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from django.core.exceptions import ValidationError

from jobs.hostpolicy import VOLUME_NAME
from jobs.spec.text import CONTROL, UNSTORABLE, check_text, shown, size_of

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
NETWORK = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
SECRET_NAME = re.compile(r"[A-Za-z0-9_]{1,64}")
RESERVED_ENV = re.compile(
    r"NVIDIA_(?!(?:DISABLE_REQUIRE|TF32_OVERRIDE)$).*"
    r"|CUDA_VISIBLE_DEVICES|CUDA_DEVICE_ORDER|DOCKER_RESOURCE_.*|GPUJOBS_.*"
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
    if size_of(line) > MAX_COMMAND_BYTES:
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
        if size_of(argument) >= MAX_ARGUMENT_BYTES:
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
    if sum(size_of(key) + size_of(text) for key, text in value.items()) > MAX_ENV_BYTES:
        raise ValidationError(
            "All variables together may have 128 KiB. Put more into a volume.",
            "env_too_large",
        )


def _check_variable(key: Any, text: Any) -> None:
    if not isinstance(key, str) or not ENV_KEY.fullmatch(key):
        raise ValidationError(
            f"{shown(key)} is no variable name: use letters, digits and _, and no "
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
    if size_of(text) > MAX_ENV_VALUE_BYTES:
        raise ValidationError(
            f"The value of {key} may have 32 KiB. Put more into a volume.",
            "env_too_large",
        )


def clean_secrets(value: Any) -> dict[str, str]:
    """Return by variable the name of a secret. An item of a list is both."""
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        value = {name: name for name in value}
    if not isinstance(value, dict):
        raise ValidationError(
            'Give names of secrets, as ["WANDB_API_KEY"], or {"VARIABLE": "name"}.',
            "bad_secrets",
        )
    # The rules of variables; what is no text is no name.
    check_env(value)
    for name in value.values():
        check_secret_name(name)
    return value


def check_secret_name(name: str) -> None:
    if not SECRET_NAME.fullmatch(name):
        raise ValidationError(
            f"{shown(name)} is no name of a secret: use 1 to 64 letters, digits and _.",
            "bad_secret_name",
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
            'Write a volume as {"source": "/host/path" or a name, "target": "/data", '
            '"mode": "ro" or "rw"}, or as "/host/path:/data:ro".',
            "bad_volume",
        )
    source, target = _clean_source(item["source"]), _clean_path(item["target"])
    return {"source": source, "target": target, "mode": item.get("mode", "ro")}


def _clean_source(source: Any) -> str:
    """A path of the host, or the name of a volume that an operator declared."""
    if isinstance(source, str) and VOLUME_NAME.fullmatch(source):
        return source
    return _clean_path(source)


def check_network(value: str) -> None:
    """Whether it may be a name; which there are the policy says."""
    if value and not NETWORK.fullmatch(value):
        raise ValidationError(
            f"{shown(value)} is no name of a network: use 1 to 63 letters, digits, '.', "
            "'_' and '-'.",
            "bad_network",
        )


def _clean_path(path: Any) -> str:
    """Return `path` without a closing slash, or refuse what could mean another path."""
    if not isinstance(path, str) or not path.startswith("/"):
        raise ValidationError(f"{shown(path)} is no absolute path.", "bad_path")
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
            f"{shown(path)}: a path may have {MAX_PATH:,} characters, no '//', '.', "
            "'..' or ':' in it and no control characters.",
            "bad_path",
        )
    return path.removesuffix("/")


def _check_targets(targets: list[PurePosixPath]) -> None:
    for position, target in enumerate(targets):
        if not any(target.is_relative_to(root) for root in TARGET_ROOTS):
            raise ValidationError(
                f"{shown(str(target))}: mount under one of {', '.join(TARGET_ROOTS)}.",
                "bad_target",
            )
        for other in targets[:position]:
            if target.is_relative_to(other) or other.is_relative_to(target):
                raise ValidationError(
                    f"{shown(str(other))} and {shown(str(target))} overlap. Mount "
                    "each volume beside the others.",
                    "nested_target",
                )
