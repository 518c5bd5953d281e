"""Collect: a crash between any two of its steps, and then once more."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings

from jobs import lifecycle, storage
from jobs.models import Artifact, Attempt, Job, JobEvent, UsageRecord
from jobs.status import Reason, Status
from jobs.storage import artifacts
from scheduler.execution import collect, collecting, launch, launch_spec
from scheduler.execution.ground import work_folder
from scheduler.models import GPU, Allocation, PassLease
from scheduler.runner.base import RunnerFault
from tests.fakes import FakeRunner
from tests.scheduler.factories import holds, make_reserved

pytestmark = pytest.mark.django_db

DAEMON_AWAY = RunnerFault(Reason.DAEMON_FAULT, "no answer")


@pytest.fixture
def attempt(gpu: GPU, runner: FakeRunner) -> Attempt:
    """It runs, has written to its log, and left two files in /artifacts."""
    return make_running(runner)


def make_running(runner: FakeRunner, **spec: Any) -> Attempt:
    attempt = make_reserved(**spec)
    launch(str(attempt.pk))
    runner.output[attempt.container_name] = b"epoch 1\nepoch 2\n"
    for name, content in (("model.pt", b"weights"), ("eval/loss.txt", b"0.1")):
        path = work_folder(attempt) / "artifacts" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    return Attempt.objects.get(pk=attempt.pk)


def do_collect(attempt: Attempt) -> Job:
    collect(str(attempt.pk))
    return Job.objects.get(pk=attempt.job_id)


def log_of(job: Job) -> bytes:
    path: Path = django_settings.DATA_ROOT / job.log_path
    return path.read_bytes()


def stored(job: Job) -> dict[str, bytes]:
    rows = Artifact.objects.filter(attempt__job=job)
    root: Path = django_settings.DATA_ROOT
    return {row.path: (root / row.storage_path).read_bytes() for row in rows}


class TestSuccess:
    def test_all_is_kept_and_nothing_is_left(
        self, attempt: Attempt, runner: FakeRunner
    ) -> None:
        runner.end(attempt.container_name, 0)
        job = do_collect(attempt)
        assert (job.status, job.exit_code) == (Status.SUCCEEDED, 0)
        assert log_of(job) == b"epoch 1\nepoch 2\n"
        assert stored(job) == {"model.pt": b"weights", "eval/loss.txt": b"0.1"}
        assert all(row.sha256 and row.size for row in Artifact.objects.all())
        assert runner.containers == {}
        assert not work_folder(attempt).exists()
        assert not holds(attempt)

    def test_twice_is_as_once(self, attempt: Attempt, runner: FakeRunner) -> None:
        runner.end(attempt.container_name, 0)
        do_collect(attempt)
        told = JobEvent.objects.count()
        do_collect(attempt)
        assert JobEvent.objects.count() == told
        assert UsageRecord.objects.count() == 1

    def test_its_events_are_in_the_order_of_what_happened(
        self, attempt: Attempt, runner: FakeRunner
    ) -> None:
        runner.end(attempt.container_name, 0)
        job = do_collect(attempt)
        assert list(job.events.values_list("event_type", flat=True)) == [
            "queued",
            "starting",
            "running",
            "exit_seen",
            "succeeded",
        ]


class TestNotYet:
    def test_what_runs_is_left_alone(
        self, attempt: Attempt, runner: FakeRunner
    ) -> None:
        job = do_collect(attempt)
        assert (job.status, holds(attempt)) == (Status.RUNNING, True)
        assert attempt.container_name in runner.containers

    def test_what_was_never_launched_is_left_to_launch(
        self, gpu: GPU, runner: FakeRunner
    ) -> None:
        attempt = make_reserved()
        assert do_collect(attempt).status == Status.STARTING
        assert holds(attempt)

    def test_a_daemon_that_does_not_answer_frees_no_gpu(
        self, attempt: Attempt, runner: FakeRunner
    ) -> None:
        runner.end(attempt.container_name, 0)
        runner.faults["observe"] = DAEMON_AWAY
        with pytest.raises(RunnerFault):
            do_collect(attempt)
        assert holds(attempt)

    def test_of_a_deleted_job_there_is_nothing(
        self, attempt: Attempt, runner: FakeRunner
    ) -> None:
        runner.end(attempt.container_name, 0)
        job = do_collect(attempt)
        lifecycle.delete(job, by=job.owner)
        collect(str(attempt.pk))
        assert not Job.objects.exists()

    def test_an_exit_before_the_row_said_running_is_collected(
        self, attempt: Attempt, runner: FakeRunner
    ) -> None:
        other = make_reserved(gpu_count=0)
        runner.launch(launch_spec(other))
        runner.end(other.container_name, 0)
        job = do_collect(other)
        assert job.status == Status.SUCCEEDED
        assert job.started_at is not None


class TestOtherEndings:
    def test_a_failure_has_its_log_and_no_artifacts(
        self, attempt: Attempt, runner: FakeRunner
    ) -> None:
        runner.end(attempt.container_name, 3)
        job = do_collect(attempt)
        assert (job.status, job.reason, job.exit_code) == ("failed", "nonzero_exit", 3)
        assert log_of(job) == b"epoch 1\nepoch 2\n"
        assert stored(job) == {}
        assert not work_folder(attempt).exists()

    def test_a_container_that_is_gone_is_no_ending_of_the_job(
        self, attempt: Attempt, runner: FakeRunner
    ) -> None:
        del runner.containers[attempt.container_name]
        job = do_collect(attempt)
        attempt.refresh_from_db()
        assert (attempt.reason, job.status) == ("container_gone", "queued")
        assert not holds(attempt)

    def test_what_was_followed_of_its_log_is_kept_when_it_is_gone(
        self, attempt: Attempt, runner: FakeRunner
    ) -> None:
        path = django_settings.DATA_ROOT / attempt.log_path
        path.write_bytes(b"epoch 1\n")
        del runner.containers[attempt.container_name]
        do_collect(attempt)
        assert path.read_bytes() == b"epoch 1\n"

    def test_anothers_container_with_its_name_counts_as_gone_and_stays(
        self, attempt: Attempt, runner: FakeRunner
    ) -> None:
        runner.change(attempt.container_name, nonce="anothers")
        do_collect(attempt)
        attempt.refresh_from_db()
        assert attempt.reason == Reason.CONTAINER_GONE
        assert attempt.container_name in runner.containers

    def test_an_exit_0_after_a_kill_that_nobody_here_asked_for_is_no_success(
        self, attempt: Attempt, runner: FakeRunner
    ) -> None:
        Attempt.objects.update(kill_seen_at=attempt.started_at)
        runner.end(attempt.container_name, 0)
        job = do_collect(attempt)
        attempt.refresh_from_db()
        assert (attempt.reason, job.status) == ("interrupted", "queued")
        assert stored(job) == {}

    def test_an_exit_after_a_cancel_is_cancelled_whatever_its_code(
        self, attempt: Attempt, runner: FakeRunner
    ) -> None:
        lifecycle.request_cancel(attempt.job, by=attempt.job.owner)
        runner.end(attempt.container_name, 0)
        assert do_collect(attempt).status == Status.CANCELLED

    def test_after_a_reboot_255_is_the_nodes_doing(
        self, attempt: Attempt, runner: FakeRunner
    ) -> None:
        Attempt.objects.update(boot_id="another boot")
        runner.end(attempt.container_name, 255)
        job = do_collect(attempt)
        attempt.refresh_from_db()
        assert (attempt.reason, job.status) == ("node_lost", "queued")

    def test_more_artifacts_than_the_cap_fail_the_job_with_the_numbers(
        self, attempt: Attempt, runner: FakeRunner, settings: Any
    ) -> None:
        settings.ARTIFACT_CAP_MB = 0
        runner.end(attempt.container_name, 0)
        job = do_collect(attempt)
        assert (job.status, job.reason, job.exit_code) == ("failed", "artifact_cap", 0)
        assert "0 MiB" in job.reason_text
        assert stored(job) == {}

    def test_a_zero_byte_in_what_the_program_says_last_does_not_keep_it(
        self, attempt: Attempt, runner: FakeRunner
    ) -> None:
        runner.output[attempt.container_name] = b"\0[FATAL tini (7)] exec x failed"
        runner.end(attempt.container_name, 127)
        job = do_collect(attempt)
        assert (job.status, job.reason) == ("failed", "command_not_found")
        assert "exec x failed" in job.reason_text


class TestLeftovers:
    def test_a_container_of_an_attempt_that_ended_is_removed(
        self, attempt: Attempt, runner: FakeRunner
    ) -> None:
        left = runner.containers[attempt.container_name]
        runner.end(attempt.container_name, 0)
        do_collect(attempt)
        runner.containers[attempt.container_name] = left
        job = do_collect(attempt)
        assert runner.containers == {}
        assert job.status == Status.SUCCEEDED


class TestOrder:
    def test_the_gpu_is_free_before_the_log_is_read(
        self, attempt: Attempt, runner: FakeRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Reading it may take long, and the next job need not wait for that."""
        held = []
        read = runner.logs

        def logs(name: str, *, follow: bool) -> Any:
            held.append(holds(attempt))
            return read(name, follow=follow)

        monkeypatch.setattr(runner, "logs", logs)
        runner.end(attempt.container_name, 0)
        do_collect(attempt)
        assert held == [False]

    def test_the_evidence_is_written_before_the_container_is_removed(
        self, attempt: Attempt, runner: FakeRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen = []
        remove = runner.remove

        def look_and_remove(name: str) -> None:
            row = Attempt.objects.get()
            seen.append((row.phase, row.exit_code, row.evidence["reason"]))
            remove(name)

        monkeypatch.setattr(runner, "remove", look_and_remove)
        runner.end(attempt.container_name, 0)
        do_collect(attempt)
        assert seen == [("judging", 0, "completed")]


class Crash(BaseException):
    """As a kill -9: nothing of ours catches it."""


def die(
    monkeypatch: pytest.MonkeyPatch, where: object, name: str, *, after: bool
) -> None:
    """The next call of that function is the last thing this process does."""
    alive: Callable[..., Any] = getattr(where, name)

    def dying(*args: Any, **kwargs: Any) -> None:
        monkeypatch.setattr(where, name, alive)
        if after:
            alive(*args, **kwargs)
        raise Crash

    monkeypatch.setattr(where, name, dying)


STEPS: list[tuple[str, object, str]] = [
    ("the exit is seen", lifecycle, "see_exit"),
    ("GPUs are released", collecting, "release"),
    ("the scheduler is woken", collecting, "wake"),
    ("the log is completed", storage, "complete_log"),
    ("the ending is judged", collecting.ending, "judge"),
    ("artifacts are taken in", storage, "take_in"),
    ("the first file has its row", artifacts, "_add_rows"),
    ("the first file is moved", artifacts, "_move"),
    ("the first file is hashed", artifacts, "_register"),
    ("the evidence is written", lifecycle, "record_evidence"),
    ("the folder is wiped", collecting, "wipe"),
    ("the attempt ends", lifecycle, "finish"),
]


def assert_ended_once(job: Job, runner: FakeRunner) -> None:
    assert (job.status, job.exit_code) == (Status.SUCCEEDED, 0)
    assert log_of(job) == b"epoch 1\nepoch 2\n"
    assert stored(job) == {"model.pt": b"weights", "eval/loss.txt": b"0.1"}
    assert all(row.sha256 and row.size for row in Artifact.objects.all())
    events = list(job.events.values_list("event_type", flat=True))
    assert (events.count("exit_seen"), events.count("succeeded")) == (1, 1)
    assert UsageRecord.objects.count() == 1
    assert Allocation.objects.live().count() == 0
    assert runner.containers == {}
    assert not work_folder(job.attempts.get()).exists()


class TestCrashes:
    @pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
    @pytest.mark.parametrize("step", STEPS, ids=[step[0] for step in STEPS])
    def test_a_crash_at_any_step_is_made_good_by_the_next_collect(
        self,
        attempt: Attempt,
        runner: FakeRunner,
        monkeypatch: pytest.MonkeyPatch,
        step: tuple[str, object, str],
        after: bool,
    ) -> None:
        runner.end(attempt.container_name, 0)
        die(monkeypatch, step[1], step[2], after=after)
        with pytest.raises(Crash):
            do_collect(attempt)
        job = do_collect(attempt)
        assert_ended_once(job, runner)

    @pytest.mark.parametrize("faults", ["faults", "late_faults"])
    def test_so_is_one_around_the_removal_of_the_container(
        self, attempt: Attempt, runner: FakeRunner, faults: str
    ) -> None:
        runner.end(attempt.container_name, 0)
        getattr(runner, faults)["remove"] = Crash()
        with pytest.raises(Crash):
            do_collect(attempt)
        job = do_collect(attempt)
        assert_ended_once(job, runner)

    @pytest.mark.parametrize("verb", ["observe", "remove"])
    def test_a_daemon_that_goes_away_only_delays(
        self, attempt: Attempt, runner: FakeRunner, verb: str
    ) -> None:
        runner.end(attempt.container_name, 0)
        runner.faults[verb] = DAEMON_AWAY
        with pytest.raises(RunnerFault):
            do_collect(attempt)
        assert_ended_once(do_collect(attempt), runner)

    def test_nor_does_it_cost_the_log_when_it_goes_while_that_is_read(
        self, attempt: Attempt, runner: FakeRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def go_away(name: str, *, follow: bool) -> Any:
            runner.faults["observe"] = DAEMON_AWAY
            raise DAEMON_AWAY

        runner.end(attempt.container_name, 0)
        with monkeypatch.context() as patched:
            patched.setattr(runner, "logs", go_away)
            with pytest.raises(RunnerFault):
                do_collect(attempt)
        assert_ended_once(do_collect(attempt), runner)

    def test_a_log_that_is_interrupted_once_is_read_again(
        self, attempt: Attempt, runner: FakeRunner
    ) -> None:
        runner.end(attempt.container_name, 0)
        runner.faults["logs"] = DAEMON_AWAY
        assert_ended_once(do_collect(attempt), runner)

    def test_a_log_that_can_not_be_read_keeps_no_job_for_ever(
        self, attempt: Attempt, runner: FakeRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def spoilt(name: str, *, follow: bool) -> Any:
            yield b"epoch 1\n"
            raise RunnerFault(Reason.DAEMON_FAULT, "invalid log entry")

        path = django_settings.DATA_ROOT / attempt.log_path
        path.write_bytes(b"epoch 1\nepoch 2\n")
        monkeypatch.setattr(runner, "logs", spoilt)
        runner.end(attempt.container_name, 0)
        job = do_collect(attempt)
        assert job.status == Status.SUCCEEDED
        assert log_of(job).startswith(b"epoch 1\nepoch 2\n")
        assert b"can not be read: invalid log entry" in log_of(job)

    def test_the_exit_is_seen_and_the_gpu_released_together_or_not_at_all(
        self, attempt: Attempt, runner: FakeRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        runner.end(attempt.container_name, 0)
        die(monkeypatch, collecting, "release", after=True)
        with pytest.raises(Crash):
            do_collect(attempt)
        attempt.refresh_from_db()
        assert (attempt.phase, holds(attempt)) == ("running", True)

    def test_a_file_that_was_taken_before_a_crash_counts_for_the_cap(
        self,
        attempt: Attempt,
        runner: FakeRunner,
        monkeypatch: pytest.MonkeyPatch,
        settings: Any,
    ) -> None:
        settings.ARTIFACT_CAP_MB = 1
        folder = work_folder(attempt) / "artifacts"
        (folder / "model.pt").write_bytes(b"x" * 700_000)
        runner.end(attempt.container_name, 0)
        die(monkeypatch, artifacts, "_move", after=True)
        with pytest.raises(Crash):
            do_collect(attempt)
        (folder / "more.pt").write_bytes(b"x" * 700_000)
        assert do_collect(attempt).reason == Reason.ARTIFACT_CAP

    def test_a_file_that_went_after_its_row_was_written_does_not_keep_it(
        self, attempt: Attempt, runner: FakeRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        runner.end(attempt.container_name, 0)
        die(monkeypatch, artifacts, "_add_rows", after=True)
        with pytest.raises(Crash):
            do_collect(attempt)
        path = Artifact.objects.all()[0].path
        (work_folder(attempt) / "artifacts" / path).unlink()
        job = do_collect(attempt)
        assert job.status == Status.SUCCEEDED
        assert path not in stored(job)
        assert len(stored(job)) == 1


class TestWakes:
    def wakes(self) -> int:
        lease, _ = PassLease.objects.get_or_create(id=1)
        return lease.wakes

    def test_a_release_wakes_the_scheduler_before_the_long_work(
        self, attempt: Attempt, runner: FakeRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = self.wakes()
        runner.end(attempt.container_name, 0)
        die(monkeypatch, storage, "complete_log", after=False)
        with pytest.raises(Crash):
            do_collect(attempt)
        assert self.wakes() == before + 1

    def test_the_end_of_an_attempt_wakes_it_too_since_a_cpu_is_free_only_then(
        self, gpu: GPU, runner: FakeRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        attempt = make_running(runner, gpu_count=0)
        runner.end(attempt.container_name, 0)
        die(monkeypatch, lifecycle, "finish", after=False)
        with pytest.raises(Crash):
            do_collect(attempt)
        before = self.wakes()
        do_collect(attempt)
        assert self.wakes() == before + 1
