"""200 jobs on four stand-in GPUs, exclusive and shared, some of them cancelled.

Who held which GPU when is told by the hook's own log of GPU starts and by Docker's
own times of the ends, not by our rows.
"""

import random
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.e2e.stack import Person, Stack, running, until
from tests.rig.daemon import PrivateDaemon
from tests.rig.fixtures import IMAGE
from tests.rig.machine import StandInMachine

pytestmark = pytest.mark.docker

JOBS = 200
Edge = tuple[float, int, dict[str, Any]]
SEED = 20261130


@pytest.fixture
def stack(
    tmp_path_factory: pytest.TempPathFactory,
    daemon: PrivateDaemon,
    machine: StandInMachine,
) -> Iterator[Stack]:
    env = daemon.product_env()
    with running(tmp_path_factory.mktemp("many"), env) as stack:
        yield stack


@contextmanager
def deaths(daemon: PrivateDaemon) -> Iterator[dict[str, tuple[str, float]]]:
    """Of each container that dies meanwhile, by its id: its name and when."""
    seen: dict[str, tuple[str, float]] = {}
    client = daemon.client()
    stream = client.events(decode=True, filters={"event": "die"})

    def read() -> None:
        for event in stream:
            name = event["Actor"]["Attributes"]["name"]
            seen[event["Actor"]["ID"]] = name, event["timeNano"] / 1e9

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    yield seen
    stream.close()
    reader.join(60)
    client.close()


def a_spec(chance: random.Random) -> dict[str, Any]:
    seconds = chance.choice([0, 0, 0.2, 0.5, 1, 2])
    spec: dict[str, Any] = {
        "image": IMAGE,
        "command": f"sleep {seconds}; exit {chance.choice([0, 0, 0, 1])}",
        "gpu_count": chance.choice([1, 1, 1, 1, 2]),
        "grace_s": 1,
    }
    if chance.random() < 0.6:
        spec |= {"share": True, "min_vram_mb": chance.randint(2, 16) * 1024}
    return spec


def submit_all(ada: Person, chance: random.Random) -> dict[str, dict[str, Any]]:
    """Some cancels meet queued jobs, some running ones, some that have ended."""
    specs: dict[str, dict[str, Any]] = {}
    for _ in range(JOBS):
        spec = a_spec(chance)
        specs[ada.submit(**spec)] = spec
        if chance.random() < 0.15:
            answer = ada.post(f"/jobs/{chance.choice([*specs])}/cancel")
            assert answer.status_code in (200, 409), answer.text
    return specs


def live(ada: Person) -> int:
    states = {"status": ["queued", "starting", "running"], "limit": 1}
    return int(ada.get("/jobs", **states).json()["count"])


def test_no_gpu_is_given_twice_and_every_job_ends(
    stack: Stack, daemon: PrivateDaemon, machine: StandInMachine
) -> None:
    ada = stack.person("ada@example.org")
    before = len(machine.starts())
    with deaths(daemon) as died:
        specs = submit_all(ada, random.Random(SEED))
        until(lambda: live(ada) == 0, "every job to end", timeout_s=1200)
        starts = machine.starts()[before:]
        until(lambda: {s.container_id for s in starts} <= set(died), "Docker's word")
    jobs = ada.get("/jobs", limit=200).json()["results"]
    assert {job["id"] for job in jobs} == set(specs)
    assert {job["status"] for job in jobs} == {"succeeded", "failed", "cancelled"}
    reasons = {job["reason"] for job in jobs}
    assert reasons == {"completed", "nonzero_exit", "cancelled_by_user"}

    edges: dict[str, list[Edge]] = defaultdict(list)
    for start in starts:
        name, ended_at = died[start.container_id]
        spec = specs[name.removeprefix("gpujob-")[:36]]
        for uuid in start.uuids:
            edges[uuid] += [(start.at, 1, spec), (ended_at, -1, spec)]
    assert set(edges) == set(machine.uuids)
    for gpu in machine.gpus:
        assert_never_too_much(edges[gpu.uuid], gpu.total_mb - gpu.reserved_mb)
    # Started once each: attempts that did not start have no line in the hook's log.
    assert len({died[s.container_id][0] for s in starts}) == len(starts)

    client = daemon.client()
    until(lambda: not client.containers.list(all=True), "the containers to be removed")
    client.close()
    assert daemon.container_pids() == []


def assert_never_too_much(edges: list[Edge], usable_mb: int) -> None:
    """Walk one GPU's starts and ends in the order of time."""
    shared_mb = shared = exclusive = 0
    for _, step, spec in sorted(edges, key=lambda edge: edge[:2]):
        if spec.get("share"):
            shared_mb += step * spec["min_vram_mb"]
            shared += step
        else:
            exclusive += step
        assert shared_mb <= usable_mb
        assert exclusive <= (0 if shared else 1)
    assert (shared, exclusive) == (0, 0)
