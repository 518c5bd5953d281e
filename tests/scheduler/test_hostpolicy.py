"""The node's ring: what it does not start, and what it does not let run on."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.hostpolicy import HostPolicy
from scheduler.hostpolicy import objection, refusal
from scheduler.runner.base import LaunchSpec, Rights

SPEC = LaunchSpec(
    name="gpujob-x-1",
    job_id="x",
    attempt_number=1,
    nonce="n",
    image="lab/train:1",
    command=("true",),
    env={},
    gpu_uuids=("GPU-a",),
    requests_devices=True,
    user=(10001, 10001),
    artifacts=Path("/a"),
    scratch=Path("/s"),
    cpus=2.0,
    memory_mb=1024,
    shm_mb=64,
    network="none",
)
STRICT = HostPolicy()


def test_what_is_allowed_is_started() -> None:
    assert refusal(SPEC, 60, STRICT) == ""


@pytest.mark.parametrize(
    ("asked", "timeout_s", "policy", "told"),
    [
        ({"image": "10.0.0.1/x"}, 60, {}, "10.0.0.1/x is not among the images"),
        ({"user": (0, 0)}, 60, {}, "No job may run as root"),
        ({"user": (33, 33)}, 60, {}, "No job may run as 33:33"),
        ({"network": "host"}, 60, {}, "Network host may not be used"),
        ({}, 60, {"gpu_count": 0}, "gpu_count of 1 is too much. At most 0"),
        ({}, 60, {"cpus": 1.5}, "cpus of 2.0 is too much. At most 1.5"),
        ({}, 60, {"memory_mb": 1023}, "memory_mb of 1,024 is too much"),
        ({}, 60, {"shm_mb": 63}, "shm_mb of 64 is too much"),
        ({}, 60, {"timeout_s": 59}, "timeout_s of 60 is too much"),
    ],
)
def test_what_is_more_is_not(
    asked: dict[str, Any], timeout_s: int, policy: dict[str, Any], told: str
) -> None:
    assert told in refusal(replace(SPEC, **asked), timeout_s, HostPolicy(**policy))


AS_MEANT = Rights(
    capabilities=0,
    no_new_privileges=True,
    seccomp=2,
    user=(10001, 10001),
    gpu_devices=("nvidia3",),
    mounts={"/data": True},
)


def test_what_is_as_meant_runs_on() -> None:
    assert objection(SPEC, AS_MEANT) == ""


@pytest.mark.parametrize(
    ("asked", "has", "told"),
    [
        ({}, {"capabilities": 1 << 21}, "capabilities that it should not have: 0x2000"),
        (
            {"capabilities": ("IPC_LOCK",)},
            {"capabilities": (1 << 14) | 1},
            "should not have: 0x1.",
        ),
        ({}, {"no_new_privileges": False}, "may gain privileges"),
        ({}, {"user": (0, 0)}, "It runs as 0:0, not as 10001:10001."),
        ({}, {"user": (10001, 0)}, "It runs as 10001:0"),
        (
            {},
            {"gpu_devices": ("nvidia0", "nvidia1")},
            "sees nvidia0, nvidia1, and has 1",
        ),
        ({"gpu_uuids": ()}, {}, "It sees nvidia3, and has 0 GPUs."),
        ({"requests_devices": False}, {}, "It sees nvidia3, and has 0 GPUs."),
        ({}, {"mounts": {"/data": True, "/mnt": False}}, "What it sees at /mnt is not"),
    ],
)
def test_what_has_more_does_not(
    asked: dict[str, Any], has: dict[str, Any], told: str
) -> None:
    assert told in objection(replace(SPEC, **asked), replace(AS_MEANT, **has))


@pytest.mark.parametrize(
    ("asked", "has"),
    [
        ({"capabilities": ("IPC_LOCK",)}, {"capabilities": 1 << 14}),
        ({"capabilities": ("IPC_LOCK",)}, {}),
        ({}, {"gpu_devices": ()}),
        # A kernel or a daemon without the filter is the operator's choice: it is told.
        ({}, {"seccomp": 0}),
    ],
)
def test_what_has_less_or_what_was_granted_does(
    asked: dict[str, Any], has: dict[str, Any]
) -> None:
    assert objection(replace(SPEC, **asked), replace(AS_MEANT, **has)) == ""
