"""A node that is not heard of is lost; when it comes back it first stops what is not
its own any more."""

from collections.abc import Iterator

import pytest

from tests.e2e.gates import Gates
from tests.e2e.stack import Person, Stack, running, until
from tests.rig.daemon import PrivateDaemon
from tests.rig.machine import StandInMachine

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
def stack(
    tmp_path_factory: pytest.TempPathFactory,
    daemon: PrivateDaemon,
    session_machine: StandInMachine,
    gates: Gates,
) -> Iterator[Stack]:
    session_machine.reset()
    env = {
        **daemon.product_env(gates.folder),
        "GPUJOBS_NODE_LOST_S": "6",
    }
    with running(tmp_path_factory.mktemp("stack"), env) as stack:
        # Another host, as far as its cluster can tell, that watches the first.
        stack.start("cluster-2", env={"GPUJOBS_NODE": "euler"})
        yield stack


def test_its_job_goes_elsewhere_and_what_it_left_is_stopped_first(
    stack: Stack, daemon: PrivateDaemon, ada: Person, gates: Gates
) -> None:
    spec = gates.asks(gpu_count=4)
    job_id = ada.submit(**spec)
    ada.wait_for(job_id, "running")
    client = daemon.client()
    [left] = client.containers.list()
    stack.kill("supervisor", "cluster")
    until(lambda: ada.job(job_id)["status"] == "queued", "the node to be lost")
    [first] = ada.get(f"/jobs/{job_id}/attempts").json()["results"]
    assert first["reason"] == "node_lost"
    [node] = ada.get("/nodes").json()["results"]
    assert node["state"] == "down"
    # Nobody could tell it: its program runs, and its GPUs are taken for no other.
    assert [each.id for each in client.containers.list()] == [left.id]
    stack.start("supervisor", "cluster")
    ada.wait_for(job_id, "running")
    [now] = client.containers.list(all=True)
    assert now.name != left.name
    client.close()
    gates.open(spec)
    ada.wait_for(job_id, "succeeded")


def test_health_tells_that_a_node_is_silent(stack: Stack, ada: Person) -> None:
    stack.kill("supervisor")
    until(lambda: ada.get("/health").json()["status"] == "degraded", "15 s to pass")
    assert ada.get("/health").json()["nodes"] == {"known": 1, "silent": 1}
    stack.start("supervisor")
    until(lambda: ada.get("/health").json()["status"] == "ok", "the node to be back")
