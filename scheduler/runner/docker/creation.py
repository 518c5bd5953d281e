"""What a container is made with: everything about its rights, in one place."""

from pathlib import Path
from typing import Any

from docker.types import DeviceRequest, LogConfig, Mount, Ulimit

from scheduler.runner.base import INPUTS, LaunchSpec
from scheduler.runner.docker.logs import log_config

ARTIFACTS = "/artifacts"
SCRATCH = "/scratch"
PIDS_LIMIT = 4096
DEFAULT_SHM_MB = 1024


def creation(spec: LaunchSpec, instance: str) -> dict[str, Any]:
    """The arguments of the create call: everything about a container's rights.

    Nothing here comes from the submitter but what LaunchSpec types. No automatic
    removal: the exit code and the last lines must be read first.
    """
    return {
        "image": spec.image,
        "command": list(spec.command) if spec.command is not None else None,
        "name": spec.name,
        "hostname": spec.name[:19],
        "labels": {
            "gpujobs.instance": instance,
            "gpujobs.job": spec.job_id,
            "gpujobs.attempt": str(spec.attempt_number),
            "gpujobs.nonce": spec.nonce,
        },
        "environment": _environment(spec),
        "user": f"{spec.user[0]}:{spec.user[1]}",
        # With a daemon whose default runtime is nvidia, an image that asks for all
        # GPUs would get them although the job asked for none.
        "runtime": "runc",
        "device_requests": _device_requests(spec),
        "mounts": _mounts(spec),
        "network_mode": spec.network,
        "ipc_mode": "private",
        "cap_drop": ["ALL"],
        **({"cap_add": list(spec.capabilities)} if spec.capabilities else {}),
        "security_opt": ["no-new-privileges:true"],
        "init": True,
        "pids_limit": PIDS_LIMIT,
        "nano_cpus": int(spec.cpus * 1e9) if spec.cpus else None,
        "mem_limit": f"{spec.memory_mb}m" if spec.memory_mb else None,
        "memswap_limit": f"{spec.memory_mb}m" if spec.memory_mb else None,
        "shm_size": f"{spec.shm_mb or DEFAULT_SHM_MB}m",
        "ulimits": [Ulimit(name="core", soft=0, hard=0)],
        "oom_score_adj": 500,
        "healthcheck": {"test": ["NONE"]},
        "log_config": LogConfig(type="local", config=log_config(spec.log_cap_mb)),
    }


def _environment(spec: LaunchSpec) -> dict[str, str]:
    ours = {
        "HOME": SCRATCH,
        "TMPDIR": SCRATCH,
        "GPUJOBS_ARTIFACTS": ARTIFACTS,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        # `void` and never `none`: a toolkit release gave all GPUs for `none`.
        "NVIDIA_VISIBLE_DEVICES": ",".join(spec.gpu_uuids)
        if spec.requests_devices and spec.gpu_uuids
        else "void",
    }
    return {**spec.env, **ours}


def _device_requests(spec: LaunchSpec) -> list[DeviceRequest]:
    if not (spec.requests_devices and spec.gpu_uuids):
        return []
    # By UUID: a count would mean indices 0..n-1, whatever is allocated.
    return [
        DeviceRequest(
            driver="nvidia",
            device_ids=list(spec.gpu_uuids),
            capabilities=[["gpu", "compute", "utility"]],
        )
    ]


def _mounts(spec: LaunchSpec) -> list[Mount]:
    own = [(ARTIFACTS, spec.artifacts, False), (SCRATCH, spec.scratch, False)]
    if spec.inputs is not None:
        own.append((INPUTS, spec.inputs, True))
    asked = [(m.target, Path(m.source), m.read_only) for m in spec.mounts]
    return [
        Mount(
            target=target,
            source=str(source),
            type="bind",
            read_only=read_only,
            propagation="rprivate",
        )
        for target, source, read_only in own + asked
    ]
