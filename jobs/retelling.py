"""A job's spec in the words of other tools: JSON, curl, docker run."""

import json
import shlex
from typing import Any

from jobs.models import Job
from jobs.models.job import DEFAULT_PRIORITY
from jobs.spec import OF_AN_IMAGE

_FIELDS = (
    *("name", "image", "command", "model_name", "params", "risk", "gpu_count"),
    *("min_vram_mb", "share", "gpu_name", "cpus", "memory_mb", "shm_mb", "secrets"),
    *("volumes", "network", "timeout_s", "grace_s", "priority", "node_name"),
    *("node_labels", "array", "on_oom", "on_memory_oom"),
)
# What is so where nothing was asked for.
_USUAL = {
    **{"gpu_count": 1, "share": False, "timeout_s": 3600, "grace_s": 10},
    **{"priority": DEFAULT_PRIORITY, "on_oom": "fail", "on_memory_oom": "fail"},
}


def retold(job: Job, env: dict[str, str | None], url: str) -> list[dict[str, str]]:
    """Each way with its title. `url` is where jobs are sent to."""
    spec = spec_of(job, env)
    told = {"JSON": as_json(spec), "curl": as_curl(spec, url)}
    if not job.model_name:
        told["docker run"] = as_docker_run(job, env)
    return [{"title": title, "text": text} for title, text in told.items()]


def spec_of(job: Job, env: dict[str, str | None]) -> dict[str, Any]:
    """What POST /jobs takes to make the same again; of `env` a value that may not be
    shown is a place to fill in."""
    decided = ("image", *OF_AN_IMAGE) if job.model_name else ()
    told = {name: job.asked.get(name, getattr(job, name)) for name in _FIELDS}
    spec = {
        name: value
        for name, value in told.items()
        if name not in decided and not _is_usual(name, value)
    }
    if env and not job.model_name:
        spec["env"] = {name: "***" if v is None else v for name, v in env.items()}
    return spec


def _is_usual(name: str, value: Any) -> bool:
    return value in (None, "", {}, []) or (name in _USUAL and value == _USUAL[name])


def as_json(spec: dict[str, Any]) -> str:
    return json.dumps(spec, indent=2, ensure_ascii=False)


def as_curl(spec: dict[str, Any], url: str) -> str:
    body = shlex.quote(json.dumps(spec, ensure_ascii=False))
    return (
        f"curl {shlex.quote(url)} \\\n"
        '  -H "Authorization: Bearer $GPUJOBS_TOKEN" \\\n'
        "  -H 'Content-Type: application/json' \\\n"
        f"  -d {body}"
    )


def as_docker_run(job: Job, env: dict[str, str | None]) -> str:
    """By hand, on a machine with as many GPUs: not with the node's hardening."""
    words = ["docker", "run", "--rm"]
    if job.gpu_count:
        words += ["--gpus", str(job.gpu_count)]
    for flag, value in (
        ("--cpus", job.cpus),
        ("--memory", job.memory_mb and f"{job.memory_mb}m"),
        ("--shm-size", job.shm_mb and f"{job.shm_mb}m"),
        ("--network", job.network),
    ):
        words += [flag, str(value)] if value else []
    for name, text in env.items():
        words += ["-e", name if text is None else f"{name}={text}"]
    for volume in job.volumes:
        words += ["-v", f"{volume['source']}:{volume['target']}:{volume['mode']}"]
    return shlex.join([*words, job.image, *_arguments(job.command)])


def _arguments(command: str | list[str] | None) -> list[str]:
    if command is None:
        return []
    return ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
