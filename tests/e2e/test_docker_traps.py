"""Docker's and NVIDIA's measured traps, each on a real daemon with stand-in GPUs."""

import gc
import os
import secrets
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.status import Reason
from scheduler.ending import Known, judge
from scheduler.runner.base import (
    ContainerState,
    LaunchSpec,
    Mount,
    Observation,
    RunnerFault,
)
from scheduler.runner.docker import DockerRunner
from scheduler.runner.docker.creation import creation
from tests.e2e.stack import until
from tests.e2e.test_main_job import PROBE
from tests.rig.daemon import NVIDIA_DEFAULT_RUNTIME, PrivateDaemon
from tests.rig.fixtures import IMAGE, running_daemon
from tests.rig.machine import StandInMachine

pytestmark = pytest.mark.docker

GREEDY = "gpujobs-test/greedy:1"
GREEDY_ENV = ("ENV NVIDIA_VISIBLE_DEVICES=all", "ENV CUDA_VERSION=12.4")


@pytest.fixture(scope="module", params=["runc", "nvidia"])
def trapped(
    request: pytest.FixtureRequest, session_machine: StandInMachine
) -> Iterator[PrivateDaemon]:
    """A daemon by its default runtime, with an image that asks for every GPU."""
    extra = NVIDIA_DEFAULT_RUNTIME if request.param == "nvidia" else ()
    for daemon in running_daemon(PrivateDaemon(session_machine, extra)):
        daemon.import_image(GREEDY, GREEDY_ENV)
        yield daemon


@pytest.fixture
def spec(tmp_path: Path) -> LaunchSpec:
    folders = [tmp_path / "artifacts", tmp_path / "scratch"]
    for folder in folders:
        folder.mkdir()
        os.chown(folder, 10001, 10001)
    return LaunchSpec(
        name=f"gpujob-trap-{secrets.token_hex(4)}",
        job_id="trap",
        attempt_number=1,
        nonce="nonce",
        image=IMAGE,
        command=("/bin/sh", "-c", PROBE),
        env={},
        gpu_uuids=(),
        requests_devices=True,
        user=(10001, 10001),
        artifacts=folders[0],
        scratch=folders[1],
    )


def outcome(daemon: PrivateDaemon, spec: LaunchSpec) -> tuple[Observation, list[str]]:
    """Run it to its end and remove it: how it ended, and its log's lines."""
    runner = DockerRunner(daemon.base_url, "traps")
    runner.launch(spec)
    try:
        (ended,) = until(
            lambda: [
                o for o in runner.observe(spec.name) if o.state is ContainerState.EXITED
            ],
            "the container to end",
        )
        log = b"".join(runner.logs(spec.name, follow=False))
        return ended, log.decode().splitlines()
    finally:
        runner.remove(spec.name)


def seen_devices(daemon: PrivateDaemon, spec: LaunchSpec) -> list[str]:
    return outcome(daemon, spec)[1]


class TestWhichGpus:
    def test_a_job_sees_its_gpus_and_no_other(
        self, trapped: PrivateDaemon, spec: LaunchSpec, machine: StandInMachine
    ) -> None:
        chosen = (machine.gpus[2], machine.gpus[0])
        asked = replace(spec, gpu_uuids=tuple(gpu.uuid for gpu in chosen))
        minors = sorted(gpu.minor for gpu in chosen)
        assert seen_devices(trapped, asked) == [f"{minor}:open" for minor in minors]

    @pytest.mark.parametrize("image", [IMAGE, GREEDY])
    @pytest.mark.parametrize(
        "env", [{}, {"NVIDIA_VISIBLE_DEVICES": "all"}, {"CUDA_VERSION": "12.4"}]
    )
    def test_a_job_that_asked_for_none_sees_none(
        self, trapped: PrivateDaemon, spec: LaunchSpec, image: str, env: dict[str, str]
    ) -> None:
        assert seen_devices(trapped, replace(spec, image=image, env=env)) == []

    @pytest.mark.parametrize("image", [IMAGE, GREEDY])
    def test_a_variable_gets_a_job_no_gpu_more(
        self,
        trapped: PrivateDaemon,
        spec: LaunchSpec,
        machine: StandInMachine,
        image: str,
    ) -> None:
        gpu = machine.gpus[3]
        asked = replace(
            spec,
            image=image,
            gpu_uuids=(gpu.uuid,),
            env={"NVIDIA_VISIBLE_DEVICES": "all"},
        )
        assert seen_devices(trapped, asked) == [f"{gpu.minor}:open"]

    def test_a_node_made_by_hand_is_not_possible(
        self, trapped: PrivateDaemon, spec: LaunchSpec, machine: StandInMachine
    ) -> None:
        script = f"mknod /dev/nvidia1 c 195 1 2>&1; {PROBE}"
        asked = replace(
            spec,
            gpu_uuids=(machine.gpus[0].uuid,),
            command=("/bin/sh", "-c", script),
        )
        refused, *devices = seen_devices(trapped, asked)
        assert "not permitted" in refused or "denied" in refused
        assert devices == ["0:open"]

    def test_a_simulated_gpu_is_requested_of_nobody(
        self, trapped: PrivateDaemon, spec: LaunchSpec, machine: StandInMachine
    ) -> None:
        before = len(machine.starts())
        asked = replace(spec, gpu_uuids=("GPU-simulated",), requests_devices=False)
        assert seen_devices(trapped, asked) == []
        # With nvidia as the default runtime the hook may be called, for no GPU.
        assert not [start for start in machine.starts()[before:] if start.uuids]


class TestWhatItMay:
    def test_it_has_no_capability_and_gets_none(
        self, daemon: PrivateDaemon, spec: LaunchSpec
    ) -> None:
        script = "grep -E '^(CapEff|NoNewPrivs|Seccomp):' /proc/self/status; id -u"
        _, lines = outcome(daemon, replace(spec, command=("/bin/sh", "-c", script)))
        assert [line.split()[-1] for line in lines] == ["0" * 16, "1", "2", "10001"]

    def test_its_home_and_artifacts_are_writable_and_its_mounts_are_not(
        self, daemon: PrivateDaemon, spec: LaunchSpec, tmp_path: Path
    ) -> None:
        data = tmp_path / "datasets"
        data.mkdir(mode=0o777)
        data.chmod(0o777)
        script = "touch $HOME/a $TMPDIR/b $GPUJOBS_ARTIFACTS/c && touch /data/d"
        asked = replace(
            spec,
            command=("/bin/sh", "-c", script),
            mounts=(Mount(source=str(data), target="/data"),),
        )
        ended, lines = outcome(daemon, asked)
        assert ended.exit_code == 1
        assert lines == ["touch: /data/d: Read-only file system"]
        assert (spec.artifacts / "c").exists()
        assert not (data / "d").exists()

    def test_its_memory_limit_is_told_apart_from_other_kills(
        self, daemon: PrivateDaemon, spec: LaunchSpec
    ) -> None:
        bomb = "x=a; while :; do x=$x$x; done"
        asked = replace(spec, memory_mb=32, command=("/bin/sh", "-c", bomb))
        ended, _ = outcome(daemon, asked)
        assert judge(ended, Known()).reason is Reason.MEMORY_OOM


class TestStartsAndEnds:
    @pytest.fixture
    def runner(self, daemon: PrivateDaemon, spec: LaunchSpec) -> Iterator[DockerRunner]:
        runner = DockerRunner(daemon.base_url, "traps")
        yield runner
        runner.remove(spec.name)

    def test_a_container_that_was_made_and_never_started_is_no_success(
        self, daemon: PrivateDaemon, runner: DockerRunner, spec: LaunchSpec
    ) -> None:
        client = daemon.client()
        container = client.containers.create(**creation(spec, "traps"))
        # The trap: waiting for it answers at once, and says 0.
        assert container.wait(timeout=30)["StatusCode"] == 0
        client.close()
        (found,) = runner.observe(spec.name)
        assert found.state is ContainerState.CREATED
        assert judge(found, Known()).reason is Reason.LAUNCH_FAULT

    def test_and_a_launch_that_finds_it_does_not_start_it(
        self,
        daemon: PrivateDaemon,
        runner: DockerRunner,
        spec: LaunchSpec,
        machine: StandInMachine,
    ) -> None:
        asked = replace(spec, gpu_uuids=(machine.gpus[0].uuid,))
        client = daemon.client()
        client.containers.create(**creation(asked, "traps"))
        client.close()
        before = len(machine.starts())
        assert runner.launch(asked).state is ContainerState.CREATED
        assert len(machine.starts()) == before

    def test_twenty_launches_at_once_start_the_program_once(
        self, runner: DockerRunner, spec: LaunchSpec, machine: StandInMachine
    ) -> None:
        asked = replace(
            spec,
            gpu_uuids=(machine.gpus[1].uuid,),
            command=("/bin/sh", "-c", "echo started; sleep 60"),
        )
        before = len(machine.starts())
        found: list[Observation] = []
        threads = [
            threading.Thread(target=lambda: found.append(runner.launch(asked)))
            for _ in range(20)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({observation.container_id for observation in found}) == 1
        assert len(machine.starts()) == before + 1
        log = b"".join(runner.logs(spec.name, follow=False))
        assert log == b"started\n"

    @pytest.mark.parametrize(
        ("break_it", "reason"),
        [
            ("an unknown GPU", Reason.DAEMON_FAULT),
            ("a broken driver", Reason.DAEMON_FAULT),
            ("an image that is not there", Reason.IMAGE_NOT_FOUND),
            ("a folder that is not there", Reason.BAD_VOLUME),
            ("no command, here or in the image", Reason.COMMAND_NOT_FOUND),
        ],
    )
    def test_a_start_that_fails_says_whose_doing_it_is(
        self,
        runner: DockerRunner,
        spec: LaunchSpec,
        machine: StandInMachine,
        break_it: str,
        reason: Reason,
    ) -> None:
        gone = Mount(source="/no/such/folder", target="/data")
        broken = {
            "an unknown GPU": replace(spec, gpu_uuids=("GPU-gone",)),
            "a broken driver": replace(spec, gpu_uuids=(machine.gpus[0].uuid,)),
            "an image that is not there": replace(spec, image="no/such:1"),
            "a folder that is not there": replace(spec, mounts=(gone,)),
            "no command, here or in the image": replace(spec, command=None),
        }[break_it]
        if break_it == "a broken driver":
            machine.break_driver("nvml unknown error")
        with pytest.raises(RunnerFault) as caught:
            runner.launch(broken)
        assert caught.value.reason is reason
        assert [o.state for o in runner.observe(spec.name)] in (
            [],
            [ContainerState.CREATED],
        )

    def test_only_a_deadly_signal_is_told_as_a_kill(
        self, daemon: PrivateDaemon, runner: DockerRunner, spec: LaunchSpec
    ) -> None:
        """After a kill that nobody here asked for, exit 0 is no success."""
        told: list[str] = []

        def listen() -> None:
            for action, name in runner.events(None):
                if name == spec.name:
                    told.append(action)
                    if action == "die":
                        return

        listener = threading.Thread(target=listen)
        listener.start()
        script = "trap : USR1; trap 'exit 0' TERM; echo up; while :; do sleep 0.1; done"
        runner.launch(replace(spec, command=("/bin/sh", "-c", script)))
        log = lambda: b"".join(runner.logs(spec.name, follow=False))  # noqa: E731
        until(lambda: log() == b"up\n", "the traps to be set")
        client = daemon.client()
        for signal in ("SIGUSR1", "SIGTERM"):
            client.containers.get(spec.name).kill(signal)
        client.close()
        listener.join(60)
        assert told.count("kill") == 1
        assert told[-1] == "die"

    def test_a_registry_that_can_not_be_reached_is_told_apart(
        self, runner: DockerRunner
    ) -> None:
        with pytest.raises(RunnerFault) as caught:
            runner.pull("127.0.0.1:1/no/such:1", lambda done, total: None)
        assert caught.value.reason is Reason.REGISTRY_UNREACHABLE


# The docker package leaves the socket of a failed connection to the collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_daemon_that_is_down_is_told_as_such(tmp_path: Path) -> None:
    runner = DockerRunner(f"unix://{tmp_path}/docker.sock", "traps")
    with pytest.raises(RunnerFault) as caught:
        runner.observe()
    assert caught.value.reason is Reason.DAEMON_FAULT
    del caught
    gc.collect()
