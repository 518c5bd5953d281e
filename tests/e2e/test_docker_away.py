"""What ends while Docker stops or is away: no false success, and no false blame."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.stack import Person, running, until
from tests.e2e.test_honest_ends import reasons, shim_of
from tests.rig.daemon import PrivateDaemon
from tests.rig.fixtures import IMAGE, running_daemon
from tests.rig.machine import StandInMachine

pytestmark = pytest.mark.docker

ONCE = '[ "$GPUJOBS_ATTEMPT" = 1 ] || { echo again; exit 0; }; '


@pytest.fixture
def docker(
    request: pytest.FixtureRequest, machine: StandInMachine
) -> Iterator[PrivateDaemon]:
    """To be stopped, as the one of the session must not be."""
    yield from running_daemon(PrivateDaemon(machine, getattr(request, "param", ())))


@pytest.fixture
def ada(tmp_path: Path, docker: PrivateDaemon) -> Iterator[Person]:
    with running(tmp_path / "stack", docker.product_env()) as stack:
        yield stack.person("ada@example.org")


def is_up(ada: Person, command: str) -> str:
    """The job, once it has said so."""
    job_id = ada.submit(image=IMAGE, command=command, gpu_count=1)
    ada.wait_for(job_id, "running")
    until(lambda: ada.log(job_id) == b"up\n", "it to be up")
    return job_id


def test_a_job_that_traps_term_while_docker_stops_is_no_success(
    ada: Person, docker: PrivateDaemon, machine: StandInMachine
) -> None:
    """It exits 0, and nobody here asked it to: it was interrupted, and runs again."""
    trap = "trap 'exit 0' TERM; echo up; while :; do sleep 0.1; done"
    job_id = is_up(ada, ONCE + trap)
    docker.stop()
    docker.start()
    job = ada.wait_for(job_id, "succeeded")
    assert reasons(ada, job_id) == ["interrupted", "completed"]
    assert job["exit_code"] == 0
    assert len(machine.starts()) >= 2


@pytest.mark.parametrize("docker", [("--live-restore",)], indirect=True)
def test_one_that_docker_comes_back_to_and_finds_dead_is_not_blamed(
    ada: Person, docker: PrivateDaemon
) -> None:
    """Docker says 255 where it does not know how a container ended."""
    job_id = is_up(ada, ONCE + "echo up; sleep 600")
    client = docker.client()
    container = client.containers.get(f"gpujob-{job_id}-1")
    pids = shim_of(container), container.attrs["State"]["Pid"]
    client.close()
    docker.kill()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    docker.start()
    ada.wait_for(job_id, "succeeded")
    assert reasons(ada, job_id) == ["interrupted", "completed"]
    first = ada.get(f"/jobs/{job_id}/attempts").json()["results"][0]
    assert first["exit_code"] == 255
    assert first["evidence"]["is_exit_seen"] is False


def test_one_that_itself_ends_with_255_failed(ada: Person) -> None:
    job_id = ada.submit(image=IMAGE, command="exit 255", gpu_count=1)
    job = ada.wait_for(job_id, "failed")
    assert (job["reason"], job["exit_code"]) == ("nonzero_exit", 255)
