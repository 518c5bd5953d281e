"""What an attempt's container is to be: its job's, or that of the validator it runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings

from jobs.models import Attempt, Job
from jobs.routing import ExecutionCheck
from jobs.status import Kind

Command = str | list[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """As a spec asks for it: nothing of it is believed before the node has checked."""

    image: str
    command: Command
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    volumes: list[dict[str, str]] = field(default_factory=list)
    gpu_uuids: tuple[str, ...] = ()
    network: str
    cpus: float | None
    memory_mb: int | None
    shm_mb: int | None
    timeout_s: int
    grace_s: int


def asked_of(attempt: Attempt) -> Asked:
    if attempt.kind == Kind.VALIDATOR:
        return _of_a_validator(attempt, check_of(attempt))
    return _of_a_job(attempt, attempt.job)


def check_of(attempt: Attempt) -> ExecutionCheck:
    """The validator that a validator attempt runs."""
    policy = attempt.job.policy
    assert policy is not None
    checks = policy.read().execution_checks
    return next(check for check in checks if check.name == attempt.validator)


def _of_a_job(attempt: Attempt, job: Job) -> Asked:
    return Asked(
        image=job.image,
        command=job.command,
        env=job.env,
        secrets=job.secrets,
        volumes=job.volumes,
        gpu_uuids=tuple(job.assigned_gpu_uuids),
        network=job.network or settings.NETWORK,
        # What it was given of the node, else what was asked for.
        cpus=_first(attempt.cpus, job.cpus),
        memory_mb=_first(attempt.memory_mb, job.memory_mb),
        shm_mb=_first(attempt.shm_mb, job.shm_mb),
        timeout_s=job.timeout_s,
        grace_s=job.grace_s,
    )


def _first(given: Any, asked: Any) -> Any:
    return asked if given is None else given


def _of_a_validator(attempt: Attempt, check: ExecutionCheck) -> Asked:
    """With no GPU and no network, whatever its job has: it looks at files alone."""
    command: Command = None
    if check.command is not None:
        line = check.command
        command = line if isinstance(line, str) else list(line)
    return Asked(
        image=check.image,
        command=command,
        network="none",
        cpus=attempt.cpus,
        memory_mb=attempt.memory_mb,
        shm_mb=None,
        timeout_s=check.timeout_s,
        grace_s=attempt.job.grace_s,
    )
