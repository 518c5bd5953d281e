"""What somebody does to a container behind our back, and what hardware does: no false
success, no GPU given away under what runs, and an end that says what was seen."""

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
from docker import DockerClient
from docker.models.containers import Container

from scheduler.runner.birth import fields
from tests.e2e.gates import Gates
from tests.e2e.stack import Person, Stack, until
from tests.rig.daemon import PrivateDaemon
from tests.rig.fixtures import IMAGE
from tests.rig.machine import StandInMachine

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("tidy", "machine")]

TRAPS_TERM = "trap 'exit 0' TERM; echo up; while :; do sleep 0.1; done"
# By itself the first attempt never ends; one after it does.
ONCE = '[ "$GPUJOBS_ATTEMPT" = 1 ] || exit 0; '


@pytest.fixture(scope="module")
def docker(daemon: PrivateDaemon) -> Iterator[DockerClient]:
    client = daemon.client()
    yield client
    client.close()


def attempts(ada: Person, job_id: str) -> list[dict[str, Any]]:
    return list(ada.get(f"/jobs/{job_id}/attempts").json()["results"])


def reasons(ada: Person, job_id: str) -> list[str]:
    return [attempt["reason"] for attempt in attempts(ada, job_id)]


def running(ada: Person, docker: DockerClient, **spec: Any) -> tuple[str, Container]:
    """A job that says that it is up, and its container."""
    command = spec.pop("command", ONCE + TRAPS_TERM)
    job_id = ada.submit(**{"image": IMAGE, "command": command, "gpu_count": 1, **spec})
    ada.wait_for(job_id, "running")
    until(lambda: ada.log(job_id) == b"up\n", "the trap to be set")
    name = f"gpujob-{job_id}-1"
    return job_id, docker.containers.get(name)


class TestByHand:
    """F24."""

    def test_a_container_that_is_removed_is_told_as_gone(
        self, ada: Person, docker: DockerClient
    ) -> None:
        job_id, container = running(ada, docker)
        container.remove(force=True)
        ada.wait_for(job_id, "succeeded")
        # That it was killed may be seen before that it is gone.
        assert reasons(ada, job_id) in (
            ["container_gone", "completed"],
            ["interrupted", "completed"],
        )

    def test_one_that_is_stopped_and_exits_0_is_no_success(
        self, ada: Person, docker: DockerClient
    ) -> None:
        job_id, container = running(ada, docker)
        container.stop()
        ada.wait_for(job_id, "succeeded")
        assert reasons(ada, job_id) == ["interrupted", "completed"]

    def test_nor_is_it_while_no_supervisor_looks(
        self, stack: Stack, ada: Person, docker: DockerClient
    ) -> None:
        job_id, container = running(ada, docker)
        stack.kill("supervisor")
        container.stop()
        assert container.wait()["StatusCode"] == 0
        stack.start("supervisor")
        ada.wait_for(job_id, "succeeded")
        assert reasons(ada, job_id) == ["interrupted", "completed"]

    def test_one_that_is_paused_waits_and_goes_on(
        self, ada: Person, docker: DockerClient, gates: Gates
    ) -> None:
        spec = gates.asks(gpu_count=1)
        job_id = ada.submit(**spec)
        ada.wait_for(job_id, "running")
        container = docker.containers.get(f"gpujob-{job_id}-1")
        container.pause()
        gates.open(spec)
        assert ada.job(job_id)["status"] == "running"
        container.unpause()
        ada.wait_for(job_id, "succeeded")

    def test_one_that_is_renamed_keeps_its_gpu_and_comes_to_its_end(
        self, stack: Stack, ada: Person, docker: DockerClient, gates: Gates
    ) -> None:
        spec = gates.asks(gpu_count=1, then="echo done")
        job_id = ada.submit(**spec)
        ada.wait_for(job_id, "running")
        container = docker.containers.get(f"gpujob-{job_id}-1")
        container.rename("by-hand")
        seen = heartbeat(ada)
        until(lambda: heartbeat(ada) > seen, "the supervisor to look")
        assert ada.job(job_id)["status"] == "running"
        gates.open(spec)
        ada.wait_for(job_id, "succeeded")
        assert ada.log(job_id) == b"done\n"
        until(lambda: not docker.containers.list(all=True), "it to be removed")


def heartbeat(ada: Person) -> str:
    [node] = ada.get("/nodes").json()["results"]
    return str(node["heartbeat_at"])


def test_a_shim_that_dies_alone_is_seen(ada: Person, docker: DockerClient) -> None:
    """F22: containerd ends what the shim held; nobody here asked for it."""
    job_id, container = running(ada, docker)
    os.kill(shim_of(container), signal.SIGKILL)
    began = time.monotonic()
    until(lambda: len(attempts(ada, job_id)) == 2, "its end to be seen")
    ada.wait_for(job_id, "succeeded")
    assert reasons(ada, job_id)[0] in ("killed_externally", "interrupted")
    assert time.monotonic() - began < 60


def test_a_gpu_that_is_lost_under_a_job_is_quarantined_and_the_job_goes_elsewhere(
    ada: Person, docker: DockerClient, machine: StandInMachine, gates: Gates
) -> None:
    """F30."""
    # The second attempt ends well.
    spec = gates.asks(gpu_count=1, then='[ "$GPUJOBS_ATTEMPT" != 1 ]')
    job_id = ada.submit(**spec)
    ada.wait_for(job_id, "running")
    [uuid] = gpu_of(ada, job_id)
    machine.lose(uuid)
    gates.open(spec)
    ada.wait_for(job_id, "succeeded")
    assert reasons(ada, job_id) == ["gpu_lost", "completed"]
    assert gpu_of(ada, job_id) != [uuid]
    gpus = {gpu["uuid"]: gpu for gpu in ada.get("/gpus").json()["results"]}
    assert gpus[uuid]["state"] == "quarantined"
    assert "a job was on it" in gpus[uuid]["state_reason"]
    assert [gpu["state"] for gpu in gpus.values()].count("enabled") == 3


def gpu_of(ada: Person, job_id: str) -> list[str]:
    return list(ada.job(job_id)["assigned_gpu_uuids"])


def test_a_driver_that_fails_each_start_pauses_the_node_and_burns_no_attempt(
    ada: Person, machine: StandInMachine
) -> None:
    """F33."""
    machine.break_hook("nvml error: driver not loaded")
    jobs = [ada.submit(image=IMAGE, command="true", gpu_count=1) for _ in range(3)]

    def paused() -> bool:
        [node] = ada.get("/nodes").json()["results"]
        told = node["state_reason"]
        return node["state"] == "quarantined" and "driver not loaded" in told

    until(paused, "the node to be paused")
    assert {ada.job(job_id)["status"] for job_id in jobs} <= {"queued", "starting"}
    machine.mend_hook()
    for job_id in jobs:
        ada.wait_for(job_id, "succeeded")
    tried = [reason for job_id in jobs for reason in reasons(ada, job_id)]
    assert set(tried) == {"daemon_fault", "completed"}


def test_what_can_not_be_killed_keeps_its_gpu_out_of_service(
    ada: Person, docker: DockerClient
) -> None:
    """Its shim hangs, so that no signal reaches it."""
    job_id, container = running(ada, docker, grace_s=1)
    [uuid] = gpu_of(ada, job_id)
    shim = shim_of(container)
    os.kill(shim, signal.SIGSTOP)
    try:
        assert ada.post(f"/jobs/{job_id}/cancel").status_code == 200

        def given_up() -> bool:
            gpus = {gpu["uuid"]: gpu for gpu in ada.get("/gpus").json()["results"]}
            return bool(gpus[uuid]["state"] == "quarantined")

        until(given_up, "its GPU to be quarantined", 120)
        assert ada.job(job_id)["status"] == "running"
        assert "unkillable" in [e["event_type"] for e in ada.events(job_id)]
    finally:
        os.kill(shim, signal.SIGCONT)
    ada.wait_for(job_id, "cancelled")


def shim_of(container: Container) -> int:
    container.reload()
    return int(fields(container.attrs["State"]["Pid"])[1])
