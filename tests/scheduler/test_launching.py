"""Launch, over real rows and a runner that fails when it is told to."""

import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.db import connections
from django.utils import timezone

from jobs import lifecycle, storage
from jobs.models import Attempt, AuditRecord, Job, JobEvent, UsageRecord
from jobs.status import NODE_FAULTS, Reason, Status
from scheduler.execution import collect, ground, launch, launch_spec, launching
from scheduler.execution.ground import work_folder
from scheduler.models import GPU, Node, NodeImage, NodeState
from scheduler.runner.base import ContainerState, RunnerFault, Stray
from tests.factories import IMAGE, make_user
from tests.fakes import FakeRunner
from tests.scheduler.factories import (
    asked,
    holds,
    make_gpu,
    make_node,
    make_reserved,
    place,
)

pytestmark = pytest.mark.django_db

DAEMON_AWAY = RunnerFault(Reason.DAEMON_FAULT, "no answer")


@pytest.fixture
def attempt(gpu: GPU, runner: FakeRunner) -> Attempt:
    return make_reserved()


def _die(*_: object) -> None:
    raise KeyboardInterrupt


def stray(container_id: str) -> Stray:
    return Stray(container_id=container_id, processes=((1, "born"),))


def do_launch(attempt: Attempt) -> Attempt:
    launch(str(attempt.pk))
    return Attempt.objects.select_related("job").get(pk=attempt.pk)


class TestSpec:
    @pytest.mark.parametrize(
        ("command", "run"),
        [
            ("nvidia-smi | tee x", ("/bin/sh", "-c", "nvidia-smi | tee x")),
            (["python", "a b", "$HOME"], ("python", "a b", "$HOME")),
            (None, None),
        ],
    )
    def test_a_string_is_for_a_shell_a_list_is_not_and_none_is_the_images(
        self, gpu: GPU, runner: FakeRunner, command: Any, run: Any
    ) -> None:
        assert launch_spec(make_reserved(command=command)).command == run

    def test_what_we_tell_the_job_can_not_be_overridden(
        self, gpu: GPU, runner: FakeRunner
    ) -> None:
        attempt = make_reserved(env={"GPUJOBS_JOB_ID": "forged", "LR": "0.1"})
        assert launch_spec(attempt).env == {
            "LR": "0.1",
            "GPUJOBS_JOB_ID": str(attempt.job_id),
            "GPUJOBS_ATTEMPT": "1",
            "GPUJOBS_GPU_COUNT": "1",
            "GPUJOBS_GPU_UUIDS": gpu.uuid,
        }

    def test_a_job_without_a_gpu_is_given_none(
        self, gpu: GPU, runner: FakeRunner
    ) -> None:
        spec = launch_spec(make_reserved(gpu_count=0))
        assert spec.gpu_uuids == ()
        assert (spec.env["GPUJOBS_GPU_COUNT"], spec.env["GPUJOBS_GPU_UUIDS"]) == (
            "0",
            "",
        )

    def test_it_runs_as_its_owner_or_as_the_settings_user(
        self, gpu: GPU, runner: FakeRunner, settings: Any
    ) -> None:
        settings.JOB_USER = "4242:4343"
        known = make_user(uid=2001, gid=3001)
        assert launch_spec(make_reserved(gpu_count=0)).user == (4242, 4343)
        assert launch_spec(make_reserved(gpu_count=0, owner=known)).user == (2001, 3001)

    @pytest.mark.parametrize(
        ("inventory", "requested"), [("simulated", False), ("nvml", True)]
    )
    def test_simulated_gpus_are_no_devices(
        self, attempt: Attempt, settings: Any, inventory: str, requested: bool
    ) -> None:
        settings.INVENTORY = inventory
        assert launch_spec(attempt).requests_devices is requested


class TestAsItShouldBe:
    def test_the_job_runs_and_its_row_says_in_which_container(
        self, attempt: Attempt, runner: FakeRunner
    ) -> None:
        runner.images.add(IMAGE)
        attempt = do_launch(attempt)
        found = runner.containers[attempt.container_name]
        assert attempt.job.status == Status.RUNNING
        assert attempt.container_id == found.container_id
        assert attempt.started_at == found.started_at
        assert attempt.boot_id != ""
        assert holds(attempt)

    def test_the_container_is_made_as_the_spec_says(
        self, attempt: Attempt, runner: FakeRunner
    ) -> None:
        do_launch(attempt)
        spec = runner.specs[attempt.container_name]
        assert spec == launch_spec(Attempt.objects.get(pk=attempt.pk))
        for folder in (spec.artifacts, spec.scratch):
            assert folder.stat().st_mode & 0o777 == 0o700

    def test_the_log_is_there_at_once(
        self, attempt: Attempt, runner: FakeRunner, settings: Any
    ) -> None:
        do_launch(attempt)
        link = settings.DATA_ROOT / f"logs/{attempt.job_id}.log"
        assert link.read_bytes() == b""
        assert link.resolve() == settings.DATA_ROOT / attempt.log_path


class TestTwice:
    def test_a_second_launch_starts_nothing(
        self, attempt: Attempt, runner: FakeRunner
    ) -> None:
        do_launch(attempt)
        do_launch(attempt)
        assert runner.starts == [attempt.container_name]

    def test_a_launch_that_comes_after_the_end_does_nothing(
        self, attempt: Attempt, runner: FakeRunner
    ) -> None:
        do_launch(attempt)
        runner.end(attempt.container_name)
        collect(str(attempt.pk))
        do_launch(attempt)
        assert len(runner.starts) == 1
        assert runner.containers == {}

    @pytest.mark.django_db(transaction=True)
    def test_two_at_once_start_it_once(self, runner: FakeRunner) -> None:
        make_gpu(make_node())
        attempt = make_reserved()

        def go() -> None:
            try:
                launch(str(attempt.pk))
            finally:
                connections.close_all()

        threads = [threading.Thread(target=go) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert runner.starts == [attempt.container_name]
        attempt.refresh_from_db()
        assert (attempt.phase, attempt.job.events.count()) == ("running", 3)

    def test_another_nodes_attempt_is_not_ours_to_launch(
        self, attempt: Attempt, runner: FakeRunner
    ) -> None:
        Attempt.objects.update(node="euler")
        do_launch(attempt)
        assert runner.containers == {}

    def test_a_launch_of_what_was_deleted_does_nothing(
        self, gpu: GPU, runner: FakeRunner
    ) -> None:
        launch("00000000-0000-4000-8000-000000000000")
        assert runner.containers == {}


class TestAdoption:
    def test_what_runs_already_is_adopted(
        self, attempt: Attempt, runner: FakeRunner
    ) -> None:
        runner.launch(launch_spec(attempt))
        attempt = do_launch(attempt)
        assert attempt.job.status == Status.RUNNING
        assert len(runner.starts) == 1

    def test_what_ran_already_goes_through_running_to_its_end(
        self, attempt: Attempt, runner: FakeRunner
    ) -> None:
        runner.launch(launch_spec(attempt))
        runner.end(attempt.container_name, 3)
        attempt = do_launch(attempt)
        assert attempt.job.status == Status.RUNNING
        collect(str(attempt.pk))
        job = Job.objects.get()
        assert (job.status, job.reason, job.exit_code) == ("failed", "nonzero_exit", 3)
        assert len(runner.starts) == 1

    def test_what_was_only_made_is_never_started_but_tried_anew(
        self, attempt: Attempt, runner: FakeRunner
    ) -> None:
        runner.create(launch_spec(attempt))
        attempt = do_launch(attempt)
        assert (runner.starts, runner.containers) == ([], {})
        assert (attempt.reason, attempt.job.status) == ("launch_fault", "queued")
        assert not holds(attempt)

    def test_one_that_ran_before_a_restart_of_the_node_is_told_as_lost(
        self, attempt: Attempt, runner: FakeRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its launcher died with the node, before it could write down that it runs."""
        with monkeypatch.context() as dying:
            dying.setattr(launching, "boot_id", lambda: "the boot before")
            dying.setattr(launching, "_settle", _die)
            with pytest.raises(KeyboardInterrupt):
                do_launch(attempt)
        runner.end(attempt.container_name, 255)
        collect(str(attempt.pk))
        attempt.refresh_from_db()
        assert attempt.reason == "node_lost"

    def test_no_second_container_is_made_for_one_that_was_given_up(
        self, attempt: Attempt, runner: FakeRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        runner.create(launch_spec(attempt))
        with monkeypatch.context() as dying:
            dying.setattr(launching, "_end_given_up", _die)
            with pytest.raises(KeyboardInterrupt):
                do_launch(attempt)
        assert runner.containers == {}
        attempt = do_launch(attempt)
        assert (attempt.reason, attempt.job.status) == ("launch_fault", "queued")
        assert runner.starts == []

    def test_nor_is_its_gpu_given_back_while_something_of_it_runs_below(
        self, attempt: Attempt, runner: FakeRunner
    ) -> None:
        runner.create(launch_spec(attempt))
        container_id = runner.containers[attempt.container_name].container_id
        runner.below[container_id] = stray(container_id)
        attempt = do_launch(attempt)
        assert attempt.is_live
        assert holds(attempt)
        assert [each.container_id for each in runner.ended_strays] == [container_id]
        runner.below.clear()
        assert do_launch(attempt).reason == "launch_fault"

    def test_while_its_removal_is_under_way_its_gpus_are_kept(
        self, attempt: Attempt, runner: FakeRunner
    ) -> None:
        runner.create(launch_spec(attempt))
        runner.stuck.add(attempt.container_name)
        attempt = do_launch(attempt)
        assert (attempt.phase, holds(attempt)) == ("starting", True)
        runner.stuck.clear()
        assert do_launch(attempt).reason == Reason.LAUNCH_FAULT

    def test_anothers_container_with_its_name_is_not_touched(
        self, attempt: Attempt, runner: FakeRunner
    ) -> None:
        runner.launch(replace(launch_spec(attempt), nonce="anothers"))
        attempt = do_launch(attempt)
        found = runner.containers[attempt.container_name]
        assert (found.nonce, found.state) == ("anothers", ContainerState.RUNNING)
        assert (attempt.reason, attempt.job.status) == ("launch_fault", "queued")
        assert not holds(attempt)

    def test_nor_is_it_when_the_launch_fails_before_it_is_met(
        self, attempt: Attempt, runner: FakeRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        runner.launch(replace(launch_spec(attempt), nonce="anothers"))

        def no_image(_: object) -> None:
            raise RunnerFault(Reason.IMAGE_NOT_FOUND, "no such image")

        monkeypatch.setattr(runner, "launch", no_image)
        do_launch(attempt)
        assert runner.containers[attempt.container_name].nonce == "anothers"

    def test_a_launch_whose_answer_was_lost_is_adopted(
        self, attempt: Attempt, runner: FakeRunner
    ) -> None:
        runner.late_faults["launch"] = RunnerFault(Reason.LAUNCH_FAULT, "timed out")
        attempt = do_launch(attempt)
        assert attempt.job.status == Status.RUNNING
        assert holds(attempt)
        assert len(runner.starts) == 1


class TestWishes:
    def test_a_cancel_before_the_launch_is_the_end_and_nothing_is_made(
        self, attempt: Attempt, runner: FakeRunner
    ) -> None:
        lifecycle.request_cancel(attempt.job, by=attempt.job.owner)
        attempt = do_launch(attempt)
        assert (runner.starts, runner.containers) == ([], {})
        assert (attempt.reason, attempt.job.status) == (
            "cancelled_by_user",
            "cancelled",
        )
        assert not holds(attempt)

    def test_what_runs_already_is_adopted_although_a_cancel_stands(
        self, attempt: Attempt, runner: FakeRunner
    ) -> None:
        """To stop it is another verb, which needs a row that says running."""
        runner.launch(launch_spec(attempt))
        lifecycle.request_cancel(attempt.job, by=attempt.job.owner)
        assert do_launch(attempt).phase == "running"

    def test_what_was_only_made_is_cancelled_and_not_tried_anew(
        self, attempt: Attempt, runner: FakeRunner
    ) -> None:
        runner.create(launch_spec(attempt))
        lifecycle.request_cancel(attempt.job, by=attempt.job.owner)
        assert do_launch(attempt).job.status == Status.CANCELLED


class TestFaults:
    def test_a_daemon_that_does_not_answer_frees_no_gpu(
        self, attempt: Attempt, runner: FakeRunner
    ) -> None:
        runner.faults["observe"] = DAEMON_AWAY
        with pytest.raises(RunnerFault):
            do_launch(attempt)
        attempt.refresh_from_db()
        assert (attempt.phase, holds(attempt)) == ("starting", True)

    def test_nor_does_one_that_goes_away_in_the_middle_of_a_launch(
        self, attempt: Attempt, runner: FakeRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def go_away(_: object) -> None:
            runner.faults["observe"] = DAEMON_AWAY
            raise RunnerFault(Reason.LAUNCH_FAULT, "connection reset")

        with monkeypatch.context() as patched:
            patched.setattr(runner, "launch", go_away)
            with pytest.raises(RunnerFault):
                do_launch(attempt)
        attempt.refresh_from_db()
        assert (attempt.phase, holds(attempt)) == ("starting", True)
        assert do_launch(attempt).job.status == Status.RUNNING

    def test_nor_one_that_can_not_remove_what_it_made(
        self, attempt: Attempt, runner: FakeRunner
    ) -> None:
        runner.faults["launch"] = RunnerFault(Reason.LAUNCH_FAULT, "hook failed")
        runner.faults["remove"] = DAEMON_AWAY
        with pytest.raises(RunnerFault):
            do_launch(attempt)
        attempt.refresh_from_db()
        assert (attempt.phase, holds(attempt)) == ("starting", True)

    @pytest.mark.parametrize(
        "reason",
        [
            Reason.COMMAND_NOT_FOUND,
            Reason.NOT_EXECUTABLE,
            Reason.IMAGE_AUTH,
            Reason.BAD_VOLUME,
        ],
    )
    @pytest.mark.parametrize("step", ["create", "launch"])
    def test_a_users_fault_ends_the_job(
        self, attempt: Attempt, runner: FakeRunner, reason: Reason, step: str
    ) -> None:
        runner.faults[step] = RunnerFault(reason, "as the daemon tells it")
        attempt = do_launch(attempt)
        assert (attempt.job.status, attempt.job.reason) == ("failed", reason)
        assert attempt.job.reason_text == "as the daemon tells it"
        assert attempt.job.started_at is None
        assert not holds(attempt)
        assert runner.containers == {}

    @pytest.mark.parametrize("reason", [Reason.LAUNCH_FAULT, Reason.DISK_FULL])
    @pytest.mark.parametrize("step", ["create", "launch"])
    def test_the_nodes_fault_queues_the_job_again_at_its_age(
        self, attempt: Attempt, runner: FakeRunner, reason: Reason, step: str
    ) -> None:
        age = attempt.job.created_at
        runner.faults[step] = RunnerFault(reason, "no space left")
        attempt = do_launch(attempt)
        assert (attempt.job.status, attempt.job.created_at) == ("queued", age)
        assert attempt.job.assigned_gpu_uuids == []
        assert not holds(attempt)
        assert runner.containers == {}
        event = JobEvent.objects.get(event_type="requeued")
        assert event.payload["reason"] == reason

    def test_five_of_them_in_a_row_end_the_job_with_the_story(
        self, gpu: GPU, runner: FakeRunner
    ) -> None:
        attempt = make_reserved()
        job = attempt.job
        for number in range(1, 6):
            runner.faults["launch"] = RunnerFault(Reason.LAUNCH_FAULT, "hook failed")
            do_launch(attempt)
            if number < 5:
                attempt = place(job)
        job.refresh_from_db()
        assert (job.status, job.reason) == ("failed", "launch_fault")
        assert "hook failed" in job.reason_text
        assert (job.attempts.count(), holds(attempt)) == (5, False)

    @pytest.mark.parametrize("reason", NODE_FAULTS)
    def test_the_nodes_own_trouble_burns_no_attempt_and_pauses_the_node(
        self, gpu: GPU, runner: FakeRunner, reason: Reason
    ) -> None:
        attempt = make_reserved()
        job = attempt.job
        waits = []
        for _ in range(10):
            runner.faults["launch"] = RunnerFault(reason, "no space left on device")
            do_launch(attempt)
            node = Node.objects.get()
            assert node.state == NodeState.QUARANTINED
            assert node.state_until is not None
            assert "no space left" in node.state_reason
            waits.append((node.state_until - timezone.now()).total_seconds())
            Node.objects.update(state=NodeState.UP, state_until=None)
            attempt = place(job)
        assert [round(wait) for wait in waits[:4]] == [5, 10, 20, 40]
        assert max(waits) <= 600
        assert do_launch(attempt).job.status == "running"
        assert AuditRecord.objects.filter(action="node.changed").count() == 10

    def test_a_job_that_fails_to_start_pauses_no_node_by_itself(
        self, gpu: GPU, runner: FakeRunner
    ) -> None:
        attempt = make_reserved()
        for _ in range(3):
            runner.faults["launch"] = RunnerFault(Reason.LAUNCH_FAULT, "odd image")
            do_launch(attempt)
            assert Node.objects.get().state == NodeState.UP
            attempt = place(attempt.job)

    def test_an_operators_state_of_the_node_stays(
        self, attempt: Attempt, runner: FakeRunner
    ) -> None:
        Node.objects.update(state=NodeState.DRAINING, state_reason="new fans")
        runner.faults["launch"] = RunnerFault(Reason.DISK_FULL, "no space left")
        do_launch(attempt)
        node = Node.objects.get()
        assert (node.state, node.state_reason) == ("draining", "new fans")

    @pytest.mark.parametrize(
        ("code", "reason"),
        [
            (errno.ENOSPC, "disk_full"),
            (errno.EDQUOT, "disk_full"),
            (errno.EROFS, "daemon_fault"),
        ],
    )
    def test_so_does_a_disk_that_takes_no_folder(
        self,
        attempt: Attempt,
        runner: FakeRunner,
        monkeypatch: pytest.MonkeyPatch,
        code: int,
        reason: str,
    ) -> None:
        def full(_: Attempt) -> None:
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(storage, "open_log", full)
        attempt = do_launch(attempt)
        assert (attempt.reason, attempt.job.status) == (reason, "queued")
        assert Node.objects.get().state == NodeState.QUARANTINED
        assert runner.starts == []

    def test_an_image_that_vanished_is_looked_for_and_the_job_tried_anew(
        self, attempt: Attempt, runner: FakeRunner
    ) -> None:
        runner.faults["create"] = RunnerFault(Reason.IMAGE_NOT_FOUND, "no such image")
        attempt = do_launch(attempt)
        assert attempt.job.status == Status.QUEUED
        assert NodeImage.objects.get(image=IMAGE).state == "wanted"

    def test_a_mount_outside_the_roots_is_refused_by_the_node_too(
        self, attempt: Attempt, runner: FakeRunner, declare: Any
    ) -> None:
        declare(read_only=["/srv"])
        volume = {"source": "/etc", "target": "/data", "mode": "ro"}
        Job.objects.update(volumes=[volume])
        attempt = do_launch(attempt)
        assert (attempt.job.status, attempt.job.reason) == ("failed", "policy_denied")
        assert "/etc may not be mounted" in attempt.job.reason_text
        assert runner.containers == {}
        assert not holds(attempt)


class TestAfterwards:
    def test_an_unstarted_end_leaves_no_folder_and_wakes_the_scheduler(
        self, attempt: Attempt, runner: FakeRunner
    ) -> None:
        assert not asked("schedule")
        runner.faults["launch"] = RunnerFault(Reason.COMMAND_NOT_FOUND, "no")
        do_launch(attempt)
        assert not work_folder(attempt).exists()
        assert asked("schedule")

    def test_what_it_held_is_told(self, attempt: Attempt, runner: FakeRunner) -> None:
        runner.faults["launch"] = RunnerFault(Reason.COMMAND_NOT_FOUND, "no")
        do_launch(attempt)
        used = UsageRecord.objects.get()
        assert (used.job, used.fault) == (str(attempt.job_id), "user")
        assert used.gpu_seconds > 0

    def test_a_cancel_that_comes_during_a_failing_launch_is_kept(
        self, attempt: Attempt, runner: FakeRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def cancel_and_fail(_: object) -> None:
            lifecycle.request_cancel(attempt.job, by=attempt.job.owner)
            raise RunnerFault(Reason.LAUNCH_FAULT, "hook failed")

        monkeypatch.setattr(runner, "launch", cancel_and_fail)
        assert do_launch(attempt).job.status == Status.CANCELLED
        assert not holds(attempt)


def test_processes_that_start_at_once_take_one_name_for_the_installation(
    settings: Any, tmp_path: Path
) -> None:
    """One that read the file half written would look for containers of nobody."""
    for round_ in range(20):
        settings.DATA_ROOT = tmp_path / str(round_)
        settings.DATA_ROOT.mkdir()
        with ThreadPoolExecutor(8) as pool:
            names = set(pool.map(lambda _: ground._instance(), range(8)))
        assert len(names) == 1
        assert len(names.pop()) == 32
        assert [path.name for path in settings.DATA_ROOT.iterdir()] == ["instance"]
