"""Three clusters, one queued job, many rounds: one container each time (PEERS 3)."""

import os
from collections.abc import Iterator

import pytest

from tests.e2e.stack import Person, Stack, running
from tests.rig.daemon import PrivateDaemon
from tests.rig.fixtures import IMAGE
from tests.rig.machine import StandInMachine

pytestmark = pytest.mark.docker

ROUNDS = int(os.environ.get("ROUNDS", "25"))


@pytest.fixture(scope="module")
def stack(
    tmp_path_factory: pytest.TempPathFactory,
    daemon: PrivateDaemon,
    session_machine: StandInMachine,
) -> Iterator[Stack]:
    session_machine.reset()
    env = daemon.product_env()
    with running(tmp_path_factory.mktemp("three"), env) as stack:
        stack.start("cluster-2", "cluster-3")
        yield stack


def test_one_job_gets_one_container_whoever_schedules(
    stack: Stack, ada: Person, session_machine: StandInMachine
) -> None:
    for number in range(1, ROUNDS + 1):
        job_id = ada.submit(image=IMAGE, command="echo once", gpu_count=1)
        ada.wait_for(job_id, "succeeded")
        assert len(session_machine.starts()) == number
        assert ada.get(f"/jobs/{job_id}/attempts").json()["count"] == 1
    for log in stack.folder.glob("*.log"):
        assert "database is locked" not in log.read_text(), log.name
