"""T08, T27, T46: what a job sees, fills and says on a real daemon."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.stack import Person, Stack, running, until
from tests.rig.daemon import PrivateDaemon
from tests.rig.fixtures import IMAGE
from tests.rig.machine import StandInMachine

pytestmark = pytest.mark.docker

SWAP = """
import os
while True:
    for name in ("plain", "../secret"):
        os.symlink(name, "next")
        os.replace("next", "moving")
"""
JOBS = 12


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An allowed root, and a secret beside it."""
    base = tmp_path_factory.mktemp("volumes")
    for name in ("root/plain", "secret"):
        (base / name).mkdir(parents=True)
        (base / name / "text").write_text(f"{Path(name).name}\n")
    # All of it for anybody to read: nothing but the mount shall keep the secret.
    for path in (*base.parents[:2], base, *base.rglob("*")):
        path.chmod(0o755)
    return base / "root"


@pytest.fixture(scope="module")
def stack(
    tmp_path_factory: pytest.TempPathFactory,
    daemon: PrivateDaemon,
    session_machine: StandInMachine,
    root: Path,
) -> Iterator[Stack]:
    session_machine.reset()
    caps = dict.fromkeys(("GPUJOBS_SCRATCH_CAP_MB", "GPUJOBS_ARTIFACT_CAP_MB"), "40")
    env = {**daemon.product_env(root), **caps}
    with running(tmp_path_factory.mktemp("stack"), env) as stack:
        yield stack


@pytest.fixture(scope="module")
def ada(stack: Stack) -> Person:
    person = stack.person("ada@example.org")
    until(lambda: person.get("/gpus").json()["count"] == 4, "the GPUs to be known")
    return person


def evidence(ada: Person, job_id: str) -> dict[str, Any]:
    [attempt] = ada.get(f"/jobs/{job_id}/attempts").json()["results"]
    return dict(attempt["evidence"])


def test_the_kernel_is_asked_what_each_container_may_and_sees(
    ada: Person, root: Path
) -> None:
    volumes = [f"{root}/plain:/data", f"{root}/plain/text:/inputs/text"]
    command = "sleep 1; cat /data/text /inputs/text"
    spec = {"image": IMAGE, "command": command, "gpu_count": 2, "volumes": volumes}
    job_id = ada.submit(**spec)
    ada.wait_for(job_id, "succeeded")
    assert ada.log(job_id) == b"plain\nplain\n"
    rights = evidence(ada, job_id)["rights"]
    devices = rights.pop("gpu_devices")
    assert len(devices) == 2
    assert rights == {
        "capabilities": 0,
        "no_new_privileges": True,
        "seccomp": 2,
        "user": [10001, 10001],
        "mounts": {"/data": True, "/inputs/text": True},
    }


def test_a_link_that_is_swapped_in_between_check_and_start_shows_nothing(
    ada: Person, root: Path
) -> None:
    """T08: each job sees what it may see, or is refused; none sees the secret."""
    (root / "moving").symlink_to("plain")
    swapper = subprocess.Popen([sys.executable, "-c", SWAP], cwd=root)
    try:
        spec = {"image": IMAGE, "command": "cat /data/text", "gpu_count": 0}
        asked = {**spec, "volumes": [f"{root}/moving:/data"]}
        ids = [ada.submit(**asked) for _ in range(JOBS)]
        ended = [ada.wait_for(job_id, "succeeded", "failed") for job_id in ids]
    finally:
        swapper.kill()
        swapper.wait()
    logs = {ada.log(job["id"]) for job in ended if job["status"] == "succeeded"}
    assert b"secret\n" not in b"".join(ada.log(job["id"]) for job in ended)
    assert logs <= {b"plain\n"}
    refused = {job["reason"] for job in ended if job["status"] == "failed"}
    assert refused <= {"policy_denied"}


def test_a_declared_folder_whose_place_a_link_took_shows_nothing(
    ada: Person, root: Path
) -> None:
    """T08: who may write beside it leads nobody elsewhere by its name."""
    declared = root / "declared"
    declared.symlink_to("../secret")
    spec = {"image": IMAGE, "command": "cat /data/text", "gpu_count": 0}
    job = ada.wait_for(ada.submit(**spec, volumes=["declared:/data"]), "failed")
    assert job["reason"] == "policy_denied"
    assert "a link is on the way" in job["reason_text"]
    declared.unlink()
    shutil.copytree(root / "plain", declared)
    job_id = ada.submit(**spec, volumes=["declared:/data"])
    ada.wait_for(job_id, "succeeded")
    assert ada.log(job_id) == b"plain\n"


def test_nothing_is_left_mounted(stack: Stack, ada: Person, root: Path) -> None:
    volumes = [f"{root}/plain:/data"]
    ada.wait_for(
        ada.submit(image=IMAGE, command="true", gpu_count=0, volumes=volumes),
        "succeeded",
    )

    def mounts() -> list[str]:
        lines = Path("/proc/self/mounts").read_text().splitlines()
        return [line for line in lines if f"{stack.data}/run/mounts" in line]

    until(lambda: not mounts(), "the volumes to be unmounted")
    assert not list((stack.data / "run/mounts").iterdir())
    assert (root / "plain" / "text").read_text() == "plain\n"


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("$HOME", "scratch_full"),
        ("$TMPDIR", "scratch_full"),
        ("/artifacts", "artifact_cap"),
        ("/tmp", "scratch_full"),
    ],
)
def test_a_job_that_fills_the_disk_is_stopped(
    ada: Person, where: str, reason: str
) -> None:
    """T27: by what lies on the node's disk, wherever the job wrote it."""
    fill = f"dd if=/dev/zero of={where}/fill bs=1M count=60 && sleep 600"
    job_id = ada.submit(image=IMAGE, command=fill, gpu_count=0, grace_s=1)
    job = ada.wait_for(job_id, "failed")
    assert job["reason"] == reason
    assert "MiB; 40 are allowed." in job["reason_text"]


def test_a_secret_that_a_job_prints_in_any_shape_is_masked(
    stack: Stack, ada: Person
) -> None:
    """T46."""
    value = "hf_" + "0123456789abcdef" * 2
    answer = ada.put("/secrets/HF_TOKEN", {"value": value})
    assert answer.status_code == 201
    # Whole, as base64 with something before it, byte by byte, and between two reads.
    command = (
        "echo $TOKEN; printf x$TOKEN | base64 -w0; echo; "
        "echo $TOKEN | fold -w1 | while read c; do printf $c; sleep 0.02; done; "
        "echo; printf ${TOKEN%cdef}; sleep 2; echo cdef; echo ${#TOKEN}"
    )
    spec = {"image": IMAGE, "command": command, "gpu_count": 0}
    job_id = ada.submit(**spec, secrets={"TOKEN": "HF_TOKEN"})
    ada.wait_for(job_id, "succeeded")
    lines = ada.log(job_id).decode().splitlines()
    assert [lines[0], *lines[2:]] == ["***", "***", "***", "35"]
    assert "***" in lines[1]
    assert len(lines[1]) < 10
    told = [ada.get(f"/jobs/{job_id}{of}").text for of in ("", "/events", "/attempts")]
    assert value not in "".join(told)
    everything = b"".join(
        path.read_bytes() for path in stack.data.rglob("*") if path.is_file()
    )
    assert value.encode() not in everything
