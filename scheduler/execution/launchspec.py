"""From an attempt's rows to what its container is made from."""

from django.conf import settings

from jobs.models import Attempt
from jobs.routing import render
from jobs.status import Kind
from scheduler.execution.asked import Command, asked_of
from scheduler.execution.ground import work_folder
from scheduler.execution.inputs import command_values, input_env, inputs_folder
from scheduler.runner.base import LaunchSpec


def launch_spec(attempt: Attempt) -> LaunchSpec:
    """All but what the host decides: the volumes as it stages them, and capabilities."""
    asked = asked_of(attempt)
    work = work_folder(attempt)
    return LaunchSpec(
        name=attempt.container_name,
        job_id=str(attempt.job_id),
        attempt_number=attempt.number,
        nonce=attempt.nonce,
        image=asked.image,
        command=_command(attempt, asked.command),
        env={**asked.env, **_given_env(attempt, asked.gpu_uuids)},
        gpu_uuids=asked.gpu_uuids,
        requests_devices=settings.INVENTORY != "simulated",
        user=_user(attempt),
        artifacts=work / "artifacts",
        scratch=work / "scratch",
        inputs=inputs_folder(attempt),
        cpus=asked.cpus,
        memory_mb=asked.memory_mb,
        shm_mb=asked.shm_mb,
        network=asked.network,
        log_cap_mb=settings.LOG_CAP_MB,
    )


def _command(attempt: Attempt, command: Command) -> tuple[str, ...] | None:
    """A list is run as it is; a string by a shell, as in a Dockerfile."""
    if command is None:
        return None
    items = ["/bin/sh", "-c", command] if isinstance(command, str) else command
    if not attempt.job.policy_id:
        return tuple(items)
    values = command_values(attempt)
    return tuple(render(item, values) for item in items)


def _given_env(attempt: Attempt, gpu_uuids: tuple[str, ...]) -> dict[str, str]:
    index = attempt.job.array_index
    gpu_count = attempt.job.gpu_count if attempt.kind == Kind.JOB else 0
    return {
        **({} if index is None else {"GPUJOBS_ARRAY_INDEX": str(index)}),
        "GPUJOBS_JOB_ID": str(attempt.job_id),
        "GPUJOBS_ATTEMPT": str(attempt.number),
        "GPUJOBS_GPU_COUNT": str(gpu_count),
        "GPUJOBS_GPU_UUIDS": ",".join(gpu_uuids),
        **input_env(attempt),
    }


def _user(attempt: Attempt) -> tuple[int, int]:
    owner = attempt.job.owner
    if owner.uid and owner.gid:
        return owner.uid, owner.gid
    uid, _, gid = settings.JOB_USER.partition(":")
    return int(uid), int(gid)
