from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scheduler.execution import ground
from scheduler.models import GPU
from tests.fakes import FakeRunner
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
