"""From an attempt's rows to what its container is made from."""

from django.conf import settings

from jobs.models import Attempt
from scheduler.execution.ground import work_folder
from scheduler.runner.base import LaunchSpec


def launch_spec(attempt: Attempt) -> LaunchSpec:
    """All but what the host decides: the volumes as it stages them, and capabilities."""
    job = attempt.job
    work = work_folder(attempt)
    return LaunchSpec(
        name=attempt.container_name,
        job_id=str(job.pk),
        attempt_number=attempt.number,
        nonce=attempt.nonce,
        image=job.image,
        command=_command(job.command),
        env={**job.env, **_given_env(attempt)},
        gpu_uuids=tuple(job.assigned_gpu_uuids),
        requests_devices=settings.INVENTORY != "simulated",
        user=_user(attempt),
        artifacts=work / "artifacts",
        scratch=work / "scratch",
        # What it was given of the node, else what was asked for.
        cpus=job.cpus if attempt.cpus is None else attempt.cpus,
        memory_mb=job.memory_mb if attempt.memory_mb is None else attempt.memory_mb,
        shm_mb=job.shm_mb if attempt.shm_mb is None else attempt.shm_mb,
        network=settings.NETWORK,
        log_cap_mb=settings.LOG_CAP_MB,
    )


def _command(command: str | list[str] | None) -> tuple[str, ...] | None:
    """A list is run as it is; a string by a shell, as in a Dockerfile."""
    if command is None:
        return None
    return ("/bin/sh", "-c", command) if isinstance(command, str) else tuple(command)


def _given_env(attempt: Attempt) -> dict[str, str]:
    index = attempt.job.array_index
    return {
        **({} if index is None else {"GPUJOBS_ARRAY_INDEX": str(index)}),
        "GPUJOBS_JOB_ID": str(attempt.job_id),
        "GPUJOBS_ATTEMPT": str(attempt.number),
        "GPUJOBS_GPU_COUNT": str(attempt.job.gpu_count),
        "GPUJOBS_GPU_UUIDS": ",".join(attempt.job.assigned_gpu_uuids),
    }


def _user(attempt: Attempt) -> tuple[int, int]:
    owner = attempt.job.owner
    if owner.uid and owner.gid:
        return owner.uid, owner.gid
    uid, _, gid = settings.JOB_USER.partition(":")
    return int(uid), int(gid)
