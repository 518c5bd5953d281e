from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scheduler import periods
from scheduler.execution import ground
from scheduler.inventory.simulated import SimulatedInventory
from scheduler.models import GPU
from scheduler.supervisor import Supervisor, loop
from tests.factories import IMAGE, make_job
from tests.fakes import Clock, FakeRunner
from tests.scheduler.factories import make_gpu, make_node


@pytest.fixture
def runner(
    settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FakeRunner]:
    """The node's runner is a fake one, for every module that asks for it."""
    fake = FakeRunner()
    settings.RUNNER, settings.RUN_ROOT = "process", tmp_path / "run"
    monkeypatch.setattr(ground, "ProcessRunner", lambda _: fake)
    ground.node_runner.cache_clear()
    yield fake
    ground.node_runner.cache_clear()


@pytest.fixture
def gpu(db: None) -> GPU:
    """The only GPU of the only node, which is this one."""
    return make_gpu(make_node())


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (loop, periods):
        monkeypatch.setattr(module, "monotonic", clock)
    return clock


@pytest.fixture
def supervisor(db: None, runner: FakeRunner, clock: Clock) -> Supervisor:
    """It has made its first turn: the node is up, its four GPUs are known."""
    runner.images.add(IMAGE)
    supervisor = Supervisor(runner, SimulatedInventory("gauss"))
    make_job(gpu_count=64)  # never placed: it makes the supervisor look at its image
    supervisor.turn()
    return supervisor
