"""What every runner does: the same cases over the fake, processes and Docker."""

import inspect
import json
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.status import Reason
from scheduler.inventory.processes import look_up
from scheduler.runner.base import (
    ContainerState,
    LaunchSpec,
    Observation,
    Runner,
    RunnerFault,
    Stray,
)
from scheduler.runner.docker import DockerRunner
from scheduler.runner.process import ProcessRunner
from tests.e2e.stack import until
from tests.fakes import FakeRunner
from tests.rig.fixtures import IMAGE

KINDS = ["fake", "process", pytest.param("docker", marks=pytest.mark.docker)]
REAL = KINDS[1:]

# Of no other test run on this machine.
LONG = f"{100_000 + os.getpid()}.5"


@pytest.fixture
def work() -> Iterator[Path]:
    """Reachable for the user of a job, as pytest's own folders are not."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def runner(request: pytest.FixtureRequest, work: Path) -> Runner:
    if request.param == "fake":
        return FakeRunner()
    if request.param == "process":
        return ProcessRunner(work)
    daemon = request.getfixturevalue("daemon")
    return DockerRunner(daemon.base_url, "contract")


@pytest.fixture
def spec(runner: Runner, work: Path) -> Iterator[LaunchSpec]:
    name = f"gpujob-contract-{secrets.token_hex(4)}"
    folders = [work / name / folder for folder in ("artifacts", "scratch")]
    for folder in folders:
        folder.mkdir(parents=True)
        folder.parent.chmod(0o711)
        if os.geteuid() == 0:
            os.chown(folder, 65534, 65534)
    yield LaunchSpec(
        name=name,
        job_id="job",
        attempt_number=1,
        nonce="nonce",
        image=IMAGE,
        command=("/bin/sh", "-c", "exit 0"),
        env={},
        gpu_uuids=(),
        requests_devices=True,
        user=(65534, 65534),
        artifacts=folders[0],
        scratch=folders[1],
    )
    runner.remove(name)


def sh(spec: LaunchSpec, script: str) -> LaunchSpec:
    return replace(spec, command=("/bin/sh", "-c", script))


def ended(runner: Runner, name: str) -> Observation:
    def look() -> Observation | None:
        (found,) = runner.observe(name)
        return found if found.state is ContainerState.EXITED else None

    if isinstance(runner, FakeRunner):
        runner.end(name)
    return until(look, f"{name} to end")


def log(runner: Runner, name: str) -> bytes:
    return b"".join(runner.logs(name, follow=False))


@pytest.mark.parametrize("kind", [FakeRunner, ProcessRunner, DockerRunner])
def test_the_verbs_have_the_signatures_of_the_contract(kind: type) -> None:
    for name, verb in inspect.getmembers(Runner, inspect.isfunction):
        if not name.startswith("_"):
            assert inspect.signature(verb) == inspect.signature(getattr(kind, name))


@pytest.mark.parametrize("runner", KINDS, indirect=True)
class TestEveryRunner:
    def test_what_was_launched_is_found_with_its_nonce(
        self, runner: Runner, spec: LaunchSpec
    ) -> None:
        launched = runner.launch(sh(spec, "sleep 60"))
        assert launched.state is ContainerState.RUNNING
        assert (launched.nonce, launched.exit_code) == ("nonce", None)
        assert launched.started_at is not None
        assert [o.name for o in runner.observe(spec.name)] == [spec.name]
        assert spec.name in [o.name for o in runner.observe()]

    def test_an_exit_is_found_after_the_fact(
        self, runner: Runner, spec: LaunchSpec
    ) -> None:
        runner.launch(sh(spec, "exit 0"))
        found = ended(runner, spec.name)
        assert found.exit_code == 0
        assert found.finished_at is not None

    def test_a_second_launch_adopts_and_starts_nothing(
        self, runner: Runner, spec: LaunchSpec
    ) -> None:
        first = runner.launch(sh(spec, "echo started; sleep 60"))
        again = runner.launch(sh(spec, "echo started again; sleep 60"))
        assert again.container_id == first.container_id
        assert again.state is ContainerState.RUNNING

    def test_what_has_ended_is_not_started_again(
        self, runner: Runner, spec: LaunchSpec
    ) -> None:
        runner.launch(sh(spec, "exit 0"))
        ended(runner, spec.name)
        assert runner.launch(spec).state is ContainerState.EXITED

    def test_a_container_is_called_by_its_name(
        self, runner: Runner, spec: LaunchSpec
    ) -> None:
        launched = runner.launch(sh(spec, "sleep 60"))
        assert runner.name_of(launched.container_id) == spec.name

    def test_what_is_not_there_is_not_found(self, runner: Runner) -> None:
        assert runner.observe("gpujob-nothing-1") == []

    def test_every_verb_on_what_is_not_there_is_harmless(self, runner: Runner) -> None:
        name = "gpujob-nothing-1"
        runner.stop(name, force=False)
        runner.stop(name, force=True)
        runner.remove(name)
        assert log(runner, name) == b""

    def test_removing_ends_what_runs_and_may_be_done_twice(
        self, runner: Runner, spec: LaunchSpec
    ) -> None:
        runner.launch(sh(spec, "sleep 60"))
        runner.remove(spec.name)
        runner.remove(spec.name)
        assert runner.observe(spec.name) == []

    def test_stopping_what_has_ended_is_harmless(
        self, runner: Runner, spec: LaunchSpec
    ) -> None:
        runner.launch(sh(spec, "exit 0"))
        ended(runner, spec.name)
        runner.stop(spec.name, force=True)
        assert ended(runner, spec.name).exit_code == 0

    def test_what_it_knows_is_no_stray(self, runner: Runner, spec: LaunchSpec) -> None:
        found = runner.launch(sh(spec, "sleep 60"))
        known = Stray(container_id=found.container_id, processes=())
        strays = {stray.container_id for stray in runner.strays()}
        assert found.container_id not in strays
        assert not runner.end_stray(known)


@pytest.mark.parametrize("runner", REAL, indirect=True)
class TestRealRunners:
    def test_stdout_and_stderr_come_byte_for_byte_in_their_order(
        self, runner: Runner, spec: LaunchSpec
    ) -> None:
        script = (
            "printf 'za\\305\\274\\n'; printf '\\377\\000' >&2; printf 'no newline'"
        )
        runner.launch(sh(spec, script))
        ended(runner, spec.name)
        got = log(runner, spec.name)
        assert sorted(got) == sorted("zaż\n".encode() + b"\xff\x00no newline")
        assert got.startswith("zaż\n".encode())

    def test_following_ends_with_the_container(
        self, runner: Runner, spec: LaunchSpec
    ) -> None:
        runner.launch(sh(spec, "echo a; sleep 0.5; echo b"))
        assert b"".join(runner.logs(spec.name, follow=True)) == b"a\nb\n"

    def test_the_exit_code_is_kept(self, runner: Runner, spec: LaunchSpec) -> None:
        runner.launch(sh(spec, "exit 7"))
        assert ended(runner, spec.name).exit_code == 7

    def test_term_reaches_the_program(self, runner: Runner, spec: LaunchSpec) -> None:
        script = "trap 'echo got it; exit 5' TERM; echo up; sleep 60 & wait"
        runner.launch(sh(spec, script))
        until(lambda: log(runner, spec.name) == b"up\n", "the trap")
        runner.stop(spec.name, force=False)
        assert ended(runner, spec.name).exit_code == 5
        assert log(runner, spec.name) == b"up\ngot it\n"

    def test_kill_ends_what_ignores_term(
        self, runner: Runner, spec: LaunchSpec
    ) -> None:
        runner.launch(sh(spec, "trap '' TERM; echo up; while :; do sleep 0.1; done"))
        until(lambda: log(runner, spec.name) == b"up\n", "the trap")
        runner.stop(spec.name, force=False)
        runner.stop(spec.name, force=True)
        assert ended(runner, spec.name).exit_code == 137

    def test_the_program_is_not_root_and_its_files_are_its_users(
        self, runner: Runner, spec: LaunchSpec
    ) -> None:
        runner.launch(sh(spec, "id -u; echo x > $GPUJOBS_ARTIFACTS/x"))
        ended(runner, spec.name)
        uid = 65534 if os.geteuid() == 0 else os.geteuid()
        assert log(runner, spec.name) == b"%d\n" % uid
        assert (spec.artifacts / "x").stat().st_uid == uid

    def test_it_is_told_its_environment(self, runner: Runner, spec: LaunchSpec) -> None:
        asked = replace(spec, env={"GREETING": "h i", "HOME": "/root"})
        runner.launch(sh(asked, 'echo "$GREETING"; touch "$HOME/x" && echo home'))
        ended(runner, spec.name)
        assert log(runner, spec.name) == b"h i\nhome\n"

    def test_arguments_are_passed_on_literally(
        self, runner: Runner, spec: LaunchSpec
    ) -> None:
        hostile = ("$(id)", ";", "`id`", "a\nb", "-n", "", "'")
        runner.launch(
            replace(
                spec, command=("/bin/sh", "-c", 'printf "%s|" "$@"', "sh", *hostile)
            )
        )
        ended(runner, spec.name)
        assert log(runner, spec.name) == "".join(f"{a}|" for a in hostile).encode()

    def test_a_process_in_it_is_held_by_it(
        self, runner: Runner, spec: LaunchSpec
    ) -> None:
        found = runner.launch(sh(spec, f"sleep {LONG}"))

        def holders() -> set[str | None]:
            return {
                runner.holder(int(proc.name))
                for proc in Path("/proc").glob("[0-9]*")
                if _command(proc) == f"sleep\0{LONG}\0".encode()
            }

        until(lambda: holders() == {found.container_id}, "the program to run")
        (pid,) = (
            int(proc.name)
            for proc in Path("/proc").glob("[0-9]*")
            if _command(proc) == f"sleep\0{LONG}\0".encode()
        )
        assert look_up(pid).process in ("sleep", "busybox")
        if os.geteuid() == 0:
            assert look_up(pid).user == "nobody"
        assert runner.holder(1) is None
        assert runner.holder(2**22 + 1) is None


def _command(proc: Path) -> bytes:
    try:
        return (proc / "cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize("runner", ["process"], indirect=True)
class TestProcesses:
    def test_the_exit_code_survives_our_restart(
        self, runner: Runner, spec: LaunchSpec, work: Path
    ) -> None:
        runner.launch(sh(spec, "sleep 0.3; exit 4"))
        restarted = ProcessRunner(work)
        # Reaping is the old one's: a zombie counts as ended.
        assert ended(restarted, spec.name).exit_code == 4

    def test_nothing_of_it_outlives_its_end(
        self, runner: Runner, spec: LaunchSpec
    ) -> None:
        runner.launch(sh(spec, f"sleep {LONG} & echo done"))
        ended(runner, spec.name)

        def left() -> list[bytes]:
            commands = map(_command, Path("/proc").glob("[0-9]*"))
            return [command for command in commands if LONG.encode() in command]

        until(lambda: not left(), "what it left to be killed")

    def test_a_variable_that_the_loader_complains_of_hides_no_exit_code(
        self, runner: Runner, spec: LaunchSpec
    ) -> None:
        runner.launch(replace(sh(spec, "exit 6"), env={"LD_PRELOAD": "/no/such.so"}))
        assert ended(runner, spec.name).exit_code == 6

    def test_a_program_that_the_host_lacks_is_told_as_such(
        self, runner: Runner, spec: LaunchSpec
    ) -> None:
        with pytest.raises(RunnerFault, match="no program") as caught:
            runner.launch(replace(spec, command=("no-such-program",)))
        assert caught.value.reason is Reason.COMMAND_NOT_FOUND
        assert runner.observe(spec.name)[0].state is ContainerState.CREATED

    def test_a_launcher_that_dies_before_it_wrote_the_pid_starts_nothing(
        self, runner: ProcessRunner, spec: LaunchSpec, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def die(*_: object) -> None:
            runner._children[spec.name].stdin.close()  # type: ignore[union-attr]
            raise KeyboardInterrupt

        monkeypatch.setattr(runner, "_write_down", die)
        with pytest.raises(KeyboardInterrupt):
            runner.launch(sh(spec, f"touch {spec.artifacts}/started"))
        assert runner._children[spec.name].wait() == 125
        assert runner.observe(spec.name)[0].state is ContainerState.CREATED
        assert not (spec.artifacts / "started").exists()

    def test_another_process_with_its_pid_is_not_taken_for_it(
        self, runner: Runner, spec: LaunchSpec, work: Path
    ) -> None:
        runner.launch(sh(spec, "exit 0"))
        ended(runner, spec.name)
        pid = work / "processes" / spec.name / "pid"
        pid.write_text(json.dumps({"pid": os.getpid(), "born": "1"}))
        assert runner.observe(spec.name)[0].state is ContainerState.EXITED
        runner.stop(spec.name, force=True)

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can drop to a user")
    def test_a_folder_that_the_user_can_not_reach_is_told_as_such(
        self, spec: LaunchSpec, work: Path
    ) -> None:
        work.chmod(0o700)
        with pytest.raises(RunnerFault, match="GPUJOBS_RUN_ROOT"):
            ProcessRunner(work / "other").launch(spec)


def make(kind: Callable[[], Runner]) -> Runner:
    """mypy sees here that each of them is a Runner."""
    return kind()


assert make(FakeRunner)
