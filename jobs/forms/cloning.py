"""A job as a person would have written it: to be edited, and sent again."""

import shlex
from collections.abc import Mapping
from typing import Any

from jobs.models import Job, User

# As they are in the form, written as they are.
_PLAIN = (
    *("image", "gpu_count", "min_vram_mb", "name", "priority", "cpus", "memory_mb"),
    *("shm_mb", "gpu_name", "share", "node_name", "array", "network", "visibility"),
)
_SECONDS = ("timeout_s", "grace_s")


def initial_of(job: Job, viewer: User) -> dict[str, Any]:
    """For SubmitForm: what was asked for, before any escalation. Values of variables
    are their owner's alone."""
    asked = {**{name: getattr(job, name) for name in _PLAIN + _SECONDS}, **job.asked}
    written = {name: asked[name] for name in _PLAIN if asked[name] not in (None, "")}
    is_own = job.owner_id == viewer.pk
    return {
        **written,
        **{name: f"{asked[name]}s" for name in _SECONDS},
        "command": _command(job.command),
        "env": _pairs(job.env if is_own else dict.fromkeys(job.env, "")),
        "secrets": _pairs(job.secrets) if is_own else "",
        "volumes": "\n".join(map(_volume, job.volumes)),
        "node_labels": _pairs(job.node_labels),
        "group": job.group,
    }


def _command(command: str | list[str] | None) -> str:
    return shlex.join(command) if isinstance(command, list) else command or ""


def _pairs(pairs: Mapping[str, str]) -> str:
    return "\n".join(f"{key}={value}" for key, value in pairs.items())


def _volume(volume: Mapping[str, str]) -> str:
    return f"{volume['source']}:{volume['target']}:{volume['mode']}"
