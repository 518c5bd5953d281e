"""The whole of what a container is created with, against a golden file.

A key that is in neither list fails: nothing reaches Docker by accident.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from scheduler.runner.base import LaunchSpec, Mount
from scheduler.runner.docker.creation import creation

SPEC = LaunchSpec(
    name="gpujob-0b6f7f7e-1111-4222-8333-944445555666-2",
    job_id="0b6f7f7e-1111-4222-8333-944445555666",
    attempt_number=2,
    nonce="5eed",
    image="registry.lab/train:1",
    command=("/bin/sh", "-c", "python train.py"),
    env={"SEED": "1"},
    gpu_uuids=("GPU-b", "GPU-c"),
    requests_devices=True,
    user=(1000, 1001),
    artifacts=Path("/data/run/work/x/artifacts"),
    scratch=Path("/data/run/work/x/scratch"),
    mounts=(Mount(source="/srv/datasets", target="/data"),),
    cpus=2.5,
    memory_mb=4096,
    shm_mb=256,
    network="none",
    log_cap_mb=16,
)
GOLDEN = {
    "image": "registry.lab/train:1",
    "command": ["/bin/sh", "-c", "python train.py"],
    "name": "gpujob-0b6f7f7e-1111-4222-8333-944445555666-2",
    "hostname": "gpujob-0b6f7f7e-111",
    "labels": {
        "gpujobs.instance": "inst",
        "gpujobs.job": "0b6f7f7e-1111-4222-8333-944445555666",
        "gpujobs.attempt": "2",
        "gpujobs.nonce": "5eed",
    },
    "environment": {
        "SEED": "1",
        "HOME": "/scratch",
        "TMPDIR": "/scratch",
        "GPUJOBS_ARTIFACTS": "/artifacts",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "NVIDIA_VISIBLE_DEVICES": "GPU-b,GPU-c",
    },
    "user": "1000:1001",
    "runtime": "runc",
    "device_requests": [
        {
            "Driver": "nvidia",
            "Count": 0,
            "DeviceIDs": ["GPU-b", "GPU-c"],
            "Capabilities": [["gpu", "compute", "utility"]],
            "Options": {},
        }
    ],
    "mounts": [
        {
            "Target": target,
            "Source": source,
            "Type": "bind",
            "ReadOnly": read_only,
            "BindOptions": {"Propagation": "rprivate"},
        }
        for target, source, read_only in (
            ("/artifacts", "/data/run/work/x/artifacts", False),
            ("/scratch", "/data/run/work/x/scratch", False),
            ("/data", "/srv/datasets", True),
        )
    ],
    "network_mode": "none",
    "ipc_mode": "private",
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges:true"],
    "init": True,
    "pids_limit": 4096,
    "nano_cpus": 2_500_000_000,
    "mem_limit": "4096m",
    "memswap_limit": "4096m",
    "shm_size": "256m",
    "ulimits": [{"Name": "core", "Soft": 0, "Hard": 0}],
    "oom_score_adj": 500,
    "healthcheck": {"test": ["NONE"]},
    "log_config": {
        "Type": "local",
        "Config": {"max-size": "8000k", "max-file": "4", "compress": "false"},
    },
}


def test_it_is_the_golden_one() -> None:
    assert creation(SPEC, "inst") == GOLDEN


@pytest.mark.parametrize(
    "key",
    [
        *("auto_remove", "remove", "privileged", "cap_add", "devices", "pid_mode"),
        *("device_cgroup_rules", "userns_mode", "uts_mode", "cgroup_parent", "sysctls"),
        *(
            "volumes",
            "volumes_from",
            "ports",
            "publish_all_ports",
            "group_add",
            "links",
        ),
        *("extra_hosts", "restart_policy", "annotations", "tmpfs", "entrypoint"),
    ],
)
def test_it_never_says(key: str) -> None:
    assert key not in creation(SPEC, "inst")


@pytest.mark.parametrize("gone", [{"gpu_uuids": ()}, {"requests_devices": False}])
def test_without_devices_it_asks_for_none_and_says_so(gone: dict[str, object]) -> None:
    made = creation(replace(SPEC, **gone), "inst")  # type: ignore[arg-type]
    assert made["device_requests"] == []
    assert made["environment"]["NVIDIA_VISIBLE_DEVICES"] == "void"


def test_what_the_node_sets_wins_over_what_was_asked() -> None:
    asked = {"NVIDIA_VISIBLE_DEVICES": "all", "HOME": "/root"}
    made = creation(replace(SPEC, env=asked), "inst")
    assert made["environment"]["NVIDIA_VISIBLE_DEVICES"] == "GPU-b,GPU-c"
    assert made["environment"]["HOME"] == "/scratch"


def test_no_limit_is_no_limit_and_shared_memory_has_a_size() -> None:
    made = creation(replace(SPEC, cpus=None, memory_mb=None, shm_mb=None), "inst")
    assert (made["nano_cpus"], made["mem_limit"]) == (None, None)
    assert made["shm_size"] == "1024m"
