"""Two verbs on one attempt at the same time, on a real daemon: the program is started
once at most, and no GPU is given back while its container could still start.

Each pair is tried for many rounds, some moments apart; ROUNDS says how many.
"""

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connections
from django.utils import timezone

from jobs import lifecycle
from jobs.exceptions import TransitionConflict
from jobs.models import Attempt, Job
from scheduler.execution import collect, ground, launch, stop
from scheduler.models import GPU, Allocation
from scheduler.runner.base import ContainerState
from scheduler.runner.docker import DockerRunner
from tests.e2e.gates import MOUNT
from tests.factories import make_job
from tests.rig.daemon import PrivateDaemon
from tests.rig.fixtures import IMAGE
from tests.rig.machine import StandInMachine
from tests.scheduler.factories import make_node, place

pytestmark = [pytest.mark.docker, pytest.mark.django_db(transaction=True)]

ROUNDS = int(os.environ.get("ROUNDS", "40"))
AT_ONCE = 4
# Seconds between the two, most of them where a start is under way.
APART_S = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 1.0, 2.0)
STARTS = f'echo "$GPUJOBS_JOB_ID $GPUJOBS_ATTEMPT" >> {MOUNT}/starts; '

Verb = Callable[[Attempt], None]


@pytest.fixture
def starts(tmp_path: Path) -> Path:
    """Each program writes a line into it, whoever started it."""
    folder = tmp_path / "mounted"
    folder.mkdir()
    (folder / "starts").touch()
    (folder / "starts").chmod(0o666)
    for path in (folder, *folder.parents[:3]):
        path.chmod(0o755)
    return folder / "starts"


@pytest.fixture(autouse=True)
def node(
    settings: Any,
    declare: Any,
    tmp_path: Path,
    starts: Path,
    daemon: PrivateDaemon,
    machine: StandInMachine,
) -> Iterator[None]:
    settings.RUNNER, settings.INVENTORY = "docker", "nvml"
    settings.DOCKER_URL, settings.NETWORK = daemon.base_url, "none"
    settings.RUN_ROOT = tmp_path / "run"
    declare(writable=[str(starts.parent)])
    ground.node_runner.cache_clear()
    # No supervisor beats for it here.
    beat = timezone.now() + timedelta(hours=1)
    here = make_node(cpus=64, heartbeat_at=beat)
    for gpu in machine.gpus:
        GPU.objects.create(
            node=here, uuid=gpu.uuid, index=gpu.index, name="A100", total_mb=40_000
        )
    here.images.update(image=IMAGE)
    yield
    for container in runner().observe():
        runner().remove(container.container_id)
    ground.node_runner.cache_clear()


def runner() -> DockerRunner:
    found = ground.node_runner()
    assert isinstance(found, DockerRunner)
    return found


def reserved(starts: Path, then: str) -> Attempt:
    volumes = [{"source": str(starts.parent), "target": MOUNT, "mode": "rw"}]
    job = make_job(
        image=IMAGE,
        command=STARTS + then,
        gpu_count=1,
        min_vram_mb=4000,
        share=True,
        volumes=volumes,
        grace_s=1,
    )
    return place(job)


def do_launch(attempt: Attempt) -> None:
    launch(str(attempt.pk))


def do_cancel(attempt: Attempt) -> None:
    job = Job.objects.get(pk=attempt.job_id)
    with suppress(TransitionConflict):  # it may end at any moment
        lifecycle.request_cancel(job, by=job.owner)


def do_cancel_and_stop(attempt: Attempt) -> None:
    do_cancel(attempt)
    stop(str(attempt.pk))


def do_collect(attempt: Attempt) -> None:
    collect(str(attempt.pk))


PAIRS: dict[str, tuple[Verb, Verb, str]] = {
    "launch against launch": (do_launch, do_launch, "sleep 0.2"),
    "launch against cancel": (do_launch, do_cancel, "sleep 60"),
    "collect against stop": (do_collect, do_cancel_and_stop, "sleep 0.1"),
}


@pytest.mark.parametrize("pair", PAIRS)
def test_the_program_is_started_once_at_most(pair: str, starts: Path) -> None:
    first, second, then = PAIRS[pair]
    chance = random.Random(pair)
    moments = [chance.choice(APART_S) for _ in range(ROUNDS)]
    lock = threading.Lock()

    def round_(apart_s: float) -> None:
        try:
            with lock:  # what places is one at a time, and not what is tried here
                attempt = reserved(starts, then)
            if first is do_collect:
                do_launch(attempt)
            both(first, second, attempt, apart_s)
            bring_to_its_end(attempt)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(round_, moments))
    told = Counter(starts.read_text().splitlines())
    assert [start for start, times in told.items() if times > 1] == []
    assert not Attempt.objects.live().exists()
    assert not Allocation.objects.live().exists()
    assert runner().observe() == []


def both(first: Verb, second: Verb, attempt: Attempt, apart_s: float) -> None:
    def act(verb: Verb, after_s: float) -> None:
        try:
            time.sleep(after_s)  # the moment is what is tried
            verb(Attempt.objects.get(pk=attempt.pk))
        finally:
            connections.close_all()

    with ThreadPoolExecutor(2) as pool:
        acts = [pool.submit(act, first, 0.0), pool.submit(act, second, apart_s)]
    for each in acts:
        each.result()
    assert_kept(attempt)


def bring_to_its_end(attempt: Attempt) -> None:
    """As the supervisor would, by asking again and again."""
    until = time.monotonic() + 120
    while Attempt.objects.get(pk=attempt.pk).is_live:
        assert time.monotonic() < until, Attempt.objects.get(pk=attempt.pk).phase
        for verb in (do_launch, do_cancel_and_stop, do_collect):
            verb(Attempt.objects.get(pk=attempt.pk))
            assert_kept(attempt)


def assert_kept(attempt: Attempt) -> None:
    """What is given back has no container that runs, or that could still start."""
    is_held = Allocation.objects.live().filter(attempt=attempt).exists()
    if not is_held:
        states = [each.state for each in runner().observe(attempt.container_name)]
        assert states in ([], [ContainerState.EXITED]), states
