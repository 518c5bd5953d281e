"""Below a real Docker: a daemon that is killed during a start forgets what runs."""

import gc
import json
import os
import secrets
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import docker
import pytest
from django.conf import settings

from jobs.models import AuditRecord
from jobs.sealing import seal
from scheduler.invariants import confirmed
from scheduler.inventory.simulated import SimulatedInventory
from scheduler.models import Node
from scheduler.runner.base import ContainerState, LaunchSpec, RunnerFault, Stray
from scheduler.runner.docker import DockerRunner
from scheduler.strays import ours
from scheduler.supervisor.strays import Strays
from scheduler.verification import look
from scheduler.verification.host import work_root
from tests.e2e.stack import until
from tests.rig.daemon import PrivateDaemon
from tests.rig.fixtures import IMAGE, running_daemon
from tests.rig.machine import StandInMachine

pytestmark = [
    pytest.mark.docker,
    pytest.mark.django_db,
    # The docker package leaves the socket of a failed connection to the collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

# When in a start the daemon is killed: which of these poisons it is the machine's.
STEP_S, STEPS = 0.02, range(2, 20)


@pytest.fixture(scope="module")
def fragile(session_machine: StandInMachine) -> Iterator[PrivateDaemon]:
    """A daemon to be killed; what runs goes on meanwhile."""
    yield from running_daemon(PrivateDaemon(session_machine, ["--live-restore"]))


@pytest.fixture(scope="module")
def other(session_machine: StandInMachine) -> Iterator[PrivateDaemon]:
    """Somebody else's, on the same host."""
    yield from running_daemon(PrivateDaemon(session_machine))


@pytest.fixture(autouse=True)
def _leave_no_socket_to_another_test() -> Iterator[None]:
    yield
    gc.collect()


@pytest.fixture
def runner(fragile: PrivateDaemon, settings: Any, tmp_path: Path) -> DockerRunner:
    settings.RUN_ROOT = tmp_path / "run"
    return DockerRunner(fragile.base_url, "strays")


def make_spec() -> LaunchSpec:
    name = f"gpujob-{secrets.token_hex(4)}-1"
    work = settings.RUN_ROOT / "work" / name
    for folder in (work / "artifacts", work / "scratch"):
        folder.mkdir(parents=True)
    return LaunchSpec(
        name=name,
        job_id="job",
        attempt_number=1,
        nonce=name,
        image=IMAGE,
        command=("/bin/sleep", "6000"),
        env={},
        gpu_uuids=(),
        requests_devices=True,
        user=(10001, 10001),
        artifacts=work / "artifacts",
        scratch=work / "scratch",
    )


def launch_and_kill(daemon: PrivateDaemon, runner: DockerRunner, after_s: float) -> str:
    """The name of a container during whose start the daemon was killed."""
    spec = make_spec()

    def launch() -> None:
        with suppress(RunnerFault):
            runner.launch(spec)

    launcher = threading.Thread(target=launch)
    launcher.start()
    # The moment is what is tried out here: nothing tells of it.
    time.sleep(after_s)
    daemon.kill()
    launcher.join()
    daemon.start()
    return spec.name


def poison(daemon: PrivateDaemon, runner: DockerRunner) -> list[Stray]:
    """Kill it at one moment after another, until it forgot a shim with a process."""
    for step in STEPS:
        name = launch_and_kill(daemon, runner, step * STEP_S)
        runner.remove(name)
        until(partial(is_gone, runner, name), f"{name} to be removed")
        left = of_ours(runner)
        if any(len(stray.processes) > 1 for stray in left):
            break
    assert left, "no moment of a start left anything behind"
    return left


def is_gone(runner: DockerRunner, name: str) -> bool:
    return not runner.observe(name)


def of_ours(runner: DockerRunner) -> list[Stray]:
    return [each.stray for each in ours(runner.strays(), work=work_root(), names={})]


def lives(pid: int) -> bool:
    return Path(f"/proc/{pid}/cwd").exists()


# Connections to a daemon that is killed are nobody's to close.
def test_what_is_left_of_a_start_that_was_cut_short_is_found_and_ended(
    fragile: PrivateDaemon, runner: DockerRunner
) -> None:
    strays = poison(fragile, runner)
    pids = [pid for stray in strays for pid, _ in stray.processes]
    ids = {stray.container_id for stray in strays}
    assert all(map(lives, pids))
    inventory = SimulatedInventory("gauss")
    found = confirmed(look(runner, inventory), look(runner, inventory))
    told = {finding.rows[-1] for finding in found if finding.code == "stray"}
    assert told == {f"container {id_}" for id_ in ids}

    supervisor = Strays(Node.objects.create(name="gauss"), runner)
    supervisor.turn()
    assert all(map(lives, pids)), "seen once, it may be on its way out"
    supervisor.turn()
    until(lambda: not any(map(lives, pids)), "its processes to end")
    until(lambda: not fragile.container_pids(), "every container's cgroup to be empty")
    assert of_ours(runner) == []
    records = AuditRecord.objects.filter(action="stray.ended")
    assert {record.details["container"] for record in records} == ids
    seal()  # nobody else does here
    left = [finding.code for finding in look(runner, inventory).passing]
    assert set(left) == {"work_folder"}
    gc.collect()


def test_what_runs_is_no_stray_even_if_its_labels_are_unknown(
    runner: DockerRunner,
) -> None:
    spec = make_spec()
    found = runner.launch(spec)
    supervisor = Strays(Node.objects.create(name="gauss"), runner)
    for _ in range(3):
        supervisor.turn()
    (now,) = runner.observe(spec.name)
    assert (now.state, now.container_id) == (ContainerState.RUNNING, found.container_id)
    known = Stray(container_id=found.container_id, processes=((os.getpid(), "1@x"),))
    assert not runner.end_stray(known), "it is known: nothing is done"
    runner.remove(spec.name)


def test_a_pid_that_means_another_by_now_is_spared(runner: DockerRunner) -> None:
    with subprocess.Popen(["/bin/sleep", "600"]) as sleeper:
        stray = Stray(container_id="e" * 64, processes=((sleeper.pid, "1@boot"),))
        assert runner.end_stray(stray)
        assert sleeper.poll() is None
        sleeper.kill()


@pytest.mark.parametrize(
    "is_forged", [False, True], ids=["as it is", "with a forged shim"]
)
def test_containers_of_another_daemon_survive(
    runner: DockerRunner, other: PrivateDaemon, is_forged: bool
) -> None:
    """They look like ours, to our daemon they are unknown, and they may watch our work
    folder; somebody even says that they mount what only ours do."""
    spec = make_spec()
    watched = docker.types.Mount(
        target="/work", source=str(settings.RUN_ROOT / "work"), type="bind"
    )
    client = other.client()
    stranger = client.containers.run(
        IMAGE,
        ["sleep", "6000"],
        name=spec.name,
        detach=True,
        init=True,
        network_mode="none",
        labels={"gpujobs.instance": "strays", "gpujobs.nonce": "n"},
        mounts=[watched],
    )
    with ExitStack() as stack:
        stack.callback(client.close)
        stack.callback(stranger.remove, force=True)
        # Its init, and the program that this has started.
        until(lambda: len(other.container_pids()) == 2, "the program to run")
        pids = other.container_pids()
        if is_forged:
            stack.enter_context(shim_of(stranger.id, spec, user=65534))
        assert stranger.id in {stray.container_id for stray in runner.strays()}
        supervisor = Strays(Node.objects.create(name="gauss"), runner)
        for _ in range(3):
            supervisor.turn()
        assert other.container_pids() == pids
        stranger.reload()
        assert stranger.status == "running"
        seal()
        told = look(runner, SimulatedInventory("gauss")).passing
        assert [finding.code for finding in told] == ["work_folder"]


def test_a_shim_of_root_s_is_believed_and_no_other(runner: DockerRunner) -> None:
    # Of this run alone: another one's beside it is looked at as well.
    spec, id_ = make_spec(), uuid4().hex * 2

    def mounted() -> list[tuple[str, ...]]:
        return [each.mounts for each in runner.strays() if each.container_id == id_]

    with shim_of(id_, spec, user=65534):
        assert mounted() == []
    with shim_of(id_, spec, user=0):
        assert mounted() == [(str(spec.artifacts), str(spec.scratch))]


@contextmanager
def shim_of(id_: str, spec: LaunchSpec, *, user: int) -> Iterator[None]:
    """A process that has the words and the bundle of a shim right."""
    mounts = [{"source": str(path)} for path in (spec.artifacts, spec.scratch)]
    command = "open('up', 'w'); import time; time.sleep(600)"
    words = ["containerd-shim-runc-v2", "-c", command]
    with tempfile.TemporaryDirectory() as bundle:
        Path(bundle).chmod(0o777)
        Path(bundle, "config.json").write_text(json.dumps({"mounts": mounts}))
        shim = subprocess.Popen(
            [*words, "-namespace", "moby", "-id", id_],
            executable="/usr/bin/python3",
            cwd=bundle,
            user=user,
            group=user,
            extra_groups=[],
        )
        try:
            until(Path(bundle, "up").exists, "the shim to be up")
            yield
        finally:
            shim.kill()
            shim.wait()
