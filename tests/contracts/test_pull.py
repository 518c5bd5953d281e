"""Pulls: of every runner what the contract says, and of Docker with a real registry."""

import gc
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.status import Reason
from scheduler.runner.base import RateLimited, Runner, RunnerFault
from scheduler.runner.docker import DockerRunner
from scheduler.runner.process import ProcessRunner
from tests.e2e.stack import until
from tests.fakes import FakeRunner
from tests.rig.daemon import PrivateDaemon
from tests.rig.fixtures import IMAGE, running_daemon
from tests.rig.machine import StandInMachine
from tests.rig.registry import Registry, running_registry

Steps = list[tuple[int, int]]


def ignore(done: int, total: int) -> None:
    """For pulls whose progress is not looked at."""


@pytest.fixture
def registry() -> Iterator[Registry]:
    with running_registry(b"small", os.urandom(3_000_000)) as registry:
        yield registry


def pull(runner: Runner, image: str) -> tuple[str, Steps]:
    steps: Steps = []
    return runner.pull(image, lambda *step: steps.append(step)), steps


@pytest.mark.parametrize("kind", [FakeRunner, ProcessRunner])
def test_a_runner_without_a_registry_has_what_it_pulled(
    kind: type, tmp_path: Path
) -> None:
    runner = FakeRunner() if kind is FakeRunner else ProcessRunner(tmp_path)
    _, steps = pull(runner, "lab/train:1")
    assert runner.has_image("lab/train:1")
    assert all(done <= total for done, total in steps)
    assert not steps or steps[-1][0] == steps[-1][1]


@pytest.mark.docker
class TestDocker:
    @pytest.fixture
    def runner(self, daemon: PrivateDaemon) -> Iterator[DockerRunner]:
        yield DockerRunner(daemon.base_url, "contract")
        client = daemon.client()
        for image in client.images.list():
            names = [*image.tags, *image.attrs["RepoDigests"]]
            if any(name.startswith("127.0.0.1:") for name in names):
                client.images.remove(image.id, force=True)
        client.close()

    def test_its_bytes_are_told_to_the_last(
        self, runner: DockerRunner, registry: Registry
    ) -> None:
        assert not runner.has_image(registry.image())
        digest, steps = pull(runner, registry.image())
        assert digest.startswith("sha256:")
        assert runner.has_image(registry.image())
        assert steps[-1] == (registry.layer_bytes, registry.layer_bytes)
        assert all(done <= total for done, total in steps)
        assert [total for _, total in steps] == sorted(total for _, total in steps)

    def test_a_second_pull_fetches_nothing_and_answers_the_same(
        self, runner: DockerRunner, registry: Registry
    ) -> None:
        digest, _ = pull(runner, registry.image())
        assert pull(runner, registry.image())[0] == digest
        assert pull(runner, registry.by_digest)[0] == digest

    def test_one_by_digest_is_found_by_it(
        self, runner: DockerRunner, registry: Registry
    ) -> None:
        pull(runner, registry.by_digest)
        assert runner.has_image(registry.by_digest)

    def test_one_that_stalls_has_told_how_far_it_came(
        self, runner: DockerRunner, registry: Registry
    ) -> None:
        steps: Steps = []
        registry.gate.clear()
        thread = threading.Thread(
            target=runner.pull,
            args=[registry.image(), lambda *step: steps.append(step)],
        )
        thread.start()
        until(lambda: steps and steps[-1][0] > 0, "some bytes to come")
        done, total = steps[-1]
        assert 0 < done < total
        registry.gate.set()
        thread.join(60)
        assert steps[-1] == (registry.layer_bytes, registry.layer_bytes)

    @pytest.mark.parametrize("name", ["lab/train:9", "lab/other:1"])
    def test_what_the_registry_does_not_have_is_not_found(
        self, runner: DockerRunner, registry: Registry, name: str
    ) -> None:
        with pytest.raises(RunnerFault, match="has no such image") as caught:
            runner.pull(f"127.0.0.1:{registry.port}/{name}", ignore)
        assert caught.value.reason is Reason.IMAGE_NOT_FOUND

    @pytest.mark.parametrize(
        ("status", "code", "reason", "said"),
        [
            (404, "MANIFEST_UNKNOWN", Reason.IMAGE_NOT_FOUND, "has no such image"),
            (401, "UNAUTHORIZED", Reason.IMAGE_AUTH, "docker login"),
            (403, "DENIED", Reason.IMAGE_AUTH, "docker login"),
            (429, "TOOMANYREQUESTS", Reason.REGISTRY_UNREACHABLE, "rate limit"),
            (503, "UNAVAILABLE", Reason.REGISTRY_UNREACHABLE, "can not be reached"),
        ],
    )
    def test_its_refusals_are_told_apart(
        self,
        runner: DockerRunner,
        registry: Registry,
        status: int,
        code: str,
        reason: Reason,
        said: str,
    ) -> None:
        registry.refuse(status, code, "as the test wants it")
        with pytest.raises(RunnerFault, match=said) as caught:
            runner.pull(registry.image(), ignore)
        assert caught.value.reason is reason
        assert isinstance(caught.value, RateLimited) is (status == 429)
        assert not runner.has_image(registry.image())

    def test_one_that_is_not_there_is_unreachable(self, runner: DockerRunner) -> None:
        with pytest.raises(RunnerFault, match="can not be reached") as caught:
            runner.pull("127.0.0.1:1/lab/train:1", ignore)
        assert caught.value.reason is Reason.REGISTRY_UNREACHABLE

    # The docker package leaves the socket of a failed connection to the collector.
    @pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
    def test_a_daemon_that_is_away_is_no_fault_of_the_image(
        self, tmp_path: Path
    ) -> None:
        away = DockerRunner(f"unix://{tmp_path}/docker.sock", "contract")
        with pytest.raises(RunnerFault) as caught:
            away.pull("lab/train:1", ignore)
        assert caught.value.reason is Reason.DAEMON_FAULT
        del caught
        gc.collect()

    def test_a_container_is_called_by_its_name_or_the_short_of_its_id(
        self, runner: DockerRunner, daemon: PrivateDaemon
    ) -> None:
        client = daemon.client()
        made = client.containers.create(IMAGE, ["true"], name="somebodys")
        try:
            assert runner.name_of(made.id) == "somebodys"
            assert runner.name_of("f" * 64) == "f" * 12
        finally:
            made.remove()
            client.close()


@pytest.fixture
def full_daemon(machine: StandInMachine) -> Iterator[PrivateDaemon]:
    """Its images have 8 MiB, and it tries each layer once."""
    daemon = PrivateDaemon(machine, ["--max-download-attempts=1"])
    data = daemon.folder / "data"
    data.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(data)]
    if os.geteuid() == 0:
        subprocess.run(command, check=True)
    yield from running_daemon(daemon)


@pytest.mark.docker
def test_a_full_disk_is_the_operators_to_see_to(full_daemon: PrivateDaemon) -> None:
    runner = DockerRunner(full_daemon.base_url, "contract")
    with (
        running_registry(os.urandom(20_000_000)) as registry,
        pytest.raises(RunnerFault, match="make room") as caught,
    ):
        runner.pull(registry.image(), ignore)
    assert caught.value.reason is Reason.DISK_FULL
    assert "no space left on device" in str(caught.value)
