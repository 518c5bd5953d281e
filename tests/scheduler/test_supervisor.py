"""The supervisor, turn by turn, over real rows and a fake runner."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.core.management import CommandError, call_command
from django.db import OperationalError, connections
from django.utils import timezone

from jobs import lifecycle
from jobs.models import Attempt, AuditRecord, Job, JobEvent
from jobs.status import Reason
from scheduler.execution import attempt_lock, collect, launch, launch_spec
from scheduler.inventory.base import InventoryFault, InventoryUnavailable
from scheduler.inventory.simulated import SimulatedInventory
from scheduler.models import GPU, GpuState, Node, NodeState, PassLease, TaskMessage
from scheduler.queue import claim
from scheduler.reservation import lose_node
from scheduler.runner.base import RunnerFault
from scheduler.supervisor import (
    AlreadySupervised,
    Supervisor,
    kills,
    loop,
    the_only_one,
)
from tests.factories import IMAGE, make_job
from tests.fakes import Clock, FakeRunner
from tests.scheduler.factories import asked, holds, make_reserved, place

pytestmark = pytest.mark.django_db

DAEMON_AWAY = RunnerFault(Reason.DAEMON_FAULT, "the daemon does not answer")


def node() -> Node:
    return Node.objects.get()


def make_running(**spec: Any) -> Attempt:
    attempt = make_reserved(**spec)
    launch(str(attempt.pk))
    return Attempt.objects.get(pk=attempt.pk)


def ids(attempt: Attempt) -> tuple[str]:
    return (str(attempt.pk),)


class TestTheNode:
    def test_it_joins_and_is_up_after_its_first_full_turn(
        self, runner: FakeRunner
    ) -> None:
        supervisor = Supervisor(runner, SimulatedInventory("gauss"))
        assert node().state == NodeState.JOINING
        supervisor.turn()
        assert (node().state, node().reports) == (NodeState.UP, [])
        assert node().boot_id != ""
        assert node().cpus > 0
        assert node().heartbeat_at is not None
        assert GPU.objects.count() == 4

    def test_a_runner_that_does_not_answer_keeps_it_joining_and_says_why(
        self, runner: FakeRunner
    ) -> None:
        supervisor = Supervisor(runner, SimulatedInventory("gauss"))
        runner.faults["observe"] = DAEMON_AWAY
        supervisor.turn()
        assert node().state == NodeState.JOINING
        assert node().reports == ["the daemon does not answer"]
        supervisor.turn()
        assert (node().state, node().reports) == (NodeState.UP, [])

    def test_without_the_runner_nothing_is_judged(
        self, supervisor: Supervisor, runner: FakeRunner
    ) -> None:
        attempt = make_running()
        runner.containers.clear()
        runner.faults["observe"] = DAEMON_AWAY
        supervisor.turn()
        assert (asked("collect"), holds(attempt)) == ([], True)
        assert node().state == NodeState.JOINING

    @pytest.mark.parametrize("state", [NodeState.DRAINING, NodeState.QUARANTINED])
    def test_one_that_an_operator_took_out_stays_so(
        self, supervisor: Supervisor, runner: FakeRunner, state: str
    ) -> None:
        Node.objects.update(state=state, state_reason="fan 2 stalls", state_by="olga")
        supervisor.turn()
        assert (node().state, node().state_reason) == (state, "fan 2 stalls")
        assert node().reports == []

    def test_a_full_disk_stands_in_its_reports(
        self, supervisor: Supervisor, runner: FakeRunner
    ) -> None:
        runner.faults["pull"] = RunnerFault(Reason.DISK_FULL, "make room")
        make_job(image="lab/large:1")
        supervisor.turn()
        until(lambda: "pull" not in runner.faults)

        def told() -> bool:
            supervisor.turn()
            said = ["Image lab/large:1 can not be pulled: make room"]
            return bool(node().reports == said)

        until(told)

    def test_a_driver_that_does_not_answer_is_reported_and_keeps_no_job_from_its_end(
        self, supervisor: Supervisor, runner: FakeRunner, clock: Clock
    ) -> None:
        attempt = make_running()
        inventory = SimulatedInventory("gauss")
        away = InventoryUnavailable(InventoryFault.TIMED_OUT)

        def fail() -> Any:
            raise away

        inventory.sample = inventory.devices = fail  # type: ignore[method-assign]
        other = Supervisor(runner, inventory)
        runner.end(attempt.container_name)
        other.turn()
        assert asked("collect") == [ids(attempt)]
        assert node().state == NodeState.UP
        assert node().reports == [str(away)]


NOW = timezone.now()
AN_HOUR = timedelta(hours=1)


class TestOutOfServiceForATime:
    def take_out(self, model: type[Any], state: str) -> None:
        model.objects.update(
            state=state,
            state_reason="fan 2 stalls",
            state_by="olga",
            state_until=NOW + AN_HOUR,
        )

    def turn_at(self, supervisor: Supervisor, at: datetime) -> None:
        with time_machine.travel(at, tick=False):
            supervisor.turn()

    @pytest.mark.parametrize("state", [NodeState.DRAINING, NodeState.QUARANTINED])
    def test_a_node_comes_back_at_its_time_and_no_sooner(
        self, supervisor: Supervisor, state: str
    ) -> None:
        self.take_out(Node, state)
        self.turn_at(supervisor, NOW + AN_HOUR - timedelta(seconds=1))
        assert node().state == state
        before = PassLease.objects.get().wakes
        self.turn_at(supervisor, NOW + AN_HOUR)
        found = node()
        assert (found.state, found.state_reason, found.state_by) == ("up", "", "")
        assert found.state_until is None
        assert PassLease.objects.get().wakes == before + 1
        record = AuditRecord.objects.get(action="node.changed")
        assert (record.target, record.actor) == ("gauss", "supervisor on gauss")
        assert record.details["after"]["state"] == "joining"

    @pytest.mark.parametrize("state", [GpuState.DRAINING, GpuState.QUARANTINED])
    def test_so_does_a_gpu(self, supervisor: Supervisor, state: str) -> None:
        self.take_out(GPU, state)
        GPU.objects.exclude(index=2).update(state_until=None)
        self.turn_at(supervisor, NOW + AN_HOUR)
        gpu = GPU.objects.get(index=2)
        assert (gpu.state, gpu.state_reason, gpu.state_by) == ("enabled", "", "")
        assert GPU.objects.filter(state=state).count() == 3
        record = AuditRecord.objects.get(action="gpu.changed")
        assert (record.target, record.details["after"]["state"]) == (
            gpu.uuid,
            "enabled",
        )

    def test_another_nodes_are_its_own_supervisors_to_bring_back(
        self, supervisor: Supervisor
    ) -> None:
        euler = Node.objects.create(name="euler")
        GPU.objects.update(node=euler)
        self.take_out(Node, NodeState.DRAINING)
        self.take_out(GPU, GpuState.DRAINING)
        self.turn_at(supervisor, NOW + AN_HOUR)
        assert Node.objects.get(name="euler").state == NodeState.DRAINING
        assert not AuditRecord.objects.filter(action="gpu.changed").exists()

    def test_without_a_time_it_stays_out(self, supervisor: Supervisor) -> None:
        Node.objects.update(state=NodeState.DRAINING)
        GPU.objects.update(state=GpuState.DRAINING)
        self.turn_at(supervisor, NOW + timedelta(days=400))
        assert node().state == NodeState.DRAINING
        assert not GPU.objects.filter(state=GpuState.ENABLED).exists()


def begin_all() -> None:
    """As a cluster does, which then takes its time."""
    while claim("gauss", by="cluster"):
        pass


class TestJoining:
    @pytest.fixture
    def left(self, runner: FakeRunner) -> Attempt:
        """Its job went elsewhere while nobody looked after it here, and it runs."""
        attempt = make_running()
        lose_node("gauss", "Node gauss was not heard of for long.")
        attempt.refresh_from_db()
        assert (attempt.reason, attempt.job.status) == ("node_lost", "queued")
        assert not holds(attempt)
        return attempt

    def test_first_it_removes_what_is_not_its_own_any_more(
        self, supervisor: Supervisor, runner: FakeRunner, left: Attempt
    ) -> None:
        supervisor.turn()
        assert node().state == NodeState.JOINING
        assert "removed before anything starts" in node().reports[0]
        assert asked("collect") == [ids(left)]
        collect(str(left.pk))
        assert left.container_name not in runner.containers
        supervisor.turn()
        assert node().state == NodeState.UP

    def test_so_does_one_that_was_started_anew(
        self, supervisor: Supervisor, runner: FakeRunner, left: Attempt
    ) -> None:
        other = Supervisor(runner, SimulatedInventory("gauss"))
        other.turn()
        assert node().state == NodeState.JOINING

    def test_of_its_own_it_stops_nothing(
        self, supervisor: Supervisor, runner: FakeRunner
    ) -> None:
        make_running()
        other = Supervisor(runner, SimulatedInventory("gauss"))
        other.turn()
        assert node().state == NodeState.UP
        assert asked("collect") == []

    def test_an_operators_state_is_not_ended_by_a_loss(
        self, supervisor: Supervisor
    ) -> None:
        Node.objects.update(state=NodeState.DRAINING)
        make_job()
        lose_node("gauss", "Node gauss was not heard of for long.")
        assert node().state == NodeState.DRAINING


class TestWhatCanNotBeKilled:
    @pytest.fixture
    def attempt(self, runner: FakeRunner) -> Attempt:
        """Told to end long ago by the clock of the rows, and it runs."""
        attempt = make_running()
        runner.deaf.add(attempt.container_name)
        lifecycle.request_cancel(attempt.job, by=attempt.job.owner)
        Attempt.objects.update(stop_sent_at=timezone.now() - timedelta(hours=1))
        return attempt

    def test_it_keeps_its_gpu_which_takes_no_other_and_says_why(
        self, supervisor: Supervisor, attempt: Attempt, clock: Clock
    ) -> None:
        for _ in range(4):
            supervisor.turn()
            clock.now_s += 11
        gpu = GPU.objects.get(allocations__attempt=attempt)
        assert gpu.state == GpuState.QUARANTINED
        assert str(attempt.job_id) in gpu.state_reason
        assert holds(attempt)
        assert attempt.job.events.filter(event_type="unkillable").count() == 1
        assert AuditRecord.objects.filter(action="gpu.changed").count() == 1

    def test_nothing_is_given_up_by_a_clock_that_jumped(
        self, supervisor: Supervisor, attempt: Attempt, clock: Clock
    ) -> None:
        for _ in range(3):
            supervisor.turn()
            clock.now_s += 9
        assert not GPU.objects.filter(state=GpuState.QUARANTINED).exists()
        assert asked("stop") == [ids(attempt)]


class TestAsking:
    def test_a_launch_that_stands_is_not_asked_for_again(
        self, supervisor: Supervisor, clock: Clock
    ) -> None:
        attempt = make_reserved()
        for _ in range(3):
            supervisor.turn()
            clock.now_s += 3
        assert asked("launch") == [ids(attempt)]  # by the pass alone

    def test_one_that_was_lost_is_asked_for_at_once(
        self, supervisor: Supervisor
    ) -> None:
        attempt = make_reserved()
        TaskMessage.objects.all().delete()
        supervisor.turn()
        assert asked("launch") == [ids(attempt)]

    def test_one_that_was_just_claimed_is_not(self, supervisor: Supervisor) -> None:
        make_reserved()
        begin_all()
        supervisor.turn()
        assert asked("launch") == []

    def test_nor_one_that_is_at_work_however_long(self, supervisor: Supervisor) -> None:
        attempt = make_reserved()
        begin_all()
        later = timezone.now() + timedelta(seconds=30)
        with attempt_lock(str(attempt.pk)), time_machine.travel(later):
            supervisor.turn()
        assert asked("launch") == []

    def test_one_whose_worker_died_is(self, supervisor: Supervisor) -> None:
        attempt = make_reserved()
        begin_all()
        with time_machine.travel(timezone.now() + timedelta(seconds=3)):
            supervisor.turn()
        assert asked("launch") == [ids(attempt)]

    def test_one_that_was_claimed_by_a_clock_set_back_since_is_no_better(
        self, supervisor: Supervisor
    ) -> None:
        attempt = make_reserved()
        begin_all()
        with time_machine.travel(timezone.now() - timedelta(hours=1)):
            supervisor.turn()
        assert asked("launch") == [ids(attempt)]

    def test_an_exit_is_asked_to_be_collected_once(
        self, supervisor: Supervisor, runner: FakeRunner
    ) -> None:
        attempt = make_running()
        runner.end(attempt.container_name)
        for _ in range(5):
            supervisor.turn()
        assert asked("collect") == [ids(attempt)]

    def test_what_was_done_in_vain_is_asked_for_again_after_a_moment(
        self, supervisor: Supervisor, runner: FakeRunner, clock: Clock
    ) -> None:
        attempt = make_running()
        runner.end(attempt.container_name)
        for seconds, times in ((0, 1), (1.9, 0), (0.2, 1), (1.9, 0), (0.2, 1)):
            clock.now_s += seconds
            supervisor.turn()
            assert asked("collect") == [ids(attempt)] * times
            TaskMessage.objects.all().delete()  # as when it is over

    def test_a_new_stage_is_asked_for_at_once(
        self, supervisor: Supervisor, runner: FakeRunner
    ) -> None:
        attempt = make_running()
        lifecycle.request_cancel(attempt.job, by=attempt.job.owner)
        supervisor.turn()
        assert asked("stop") == [ids(attempt)]
        TaskMessage.objects.all().delete()
        Attempt.objects.update(stop_sent_at=timezone.now() - timedelta(seconds=11))
        supervisor.turn()
        assert asked("stop") == [ids(attempt)]

    def test_a_question_that_could_not_be_put_is_put_with_the_next_turn(
        self,
        supervisor: Supervisor,
        runner: FakeRunner,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        attempt = make_running()
        runner.end(attempt.container_name)

        def locked(*_: str, **__: str) -> None:
            raise OperationalError("database is locked")

        with monkeypatch.context() as patched:
            patched.setattr(loop, "enqueue", locked)
            with pytest.raises(OperationalError):
                supervisor.turn()
        supervisor.turn()
        assert asked("collect") == [ids(attempt)]

    def test_another_nodes_attempts_are_not_ours_to_ask_about(
        self, supervisor: Supervisor, runner: FakeRunner
    ) -> None:
        attempt = make_running()
        Attempt.objects.update(node="euler")
        runner.end(attempt.container_name)
        supervisor.turn()
        assert asked("collect") == []


class TestTheTimeLimit:
    def test_the_wish_is_written_and_then_the_stop_asked_for(
        self, supervisor: Supervisor
    ) -> None:
        attempt = make_running(timeout_s=60)
        later = timezone.now() + timedelta(seconds=61)
        with time_machine.travel(later):
            supervisor.turn()
            attempt.refresh_from_db()
            assert (attempt.stop_reason, asked("stop")) == ("timed_out", [])
            supervisor.turn()
        assert asked("stop") == [ids(attempt)]
        assert JobEvent.objects.filter(event_type="stop_requested").count() == 1

    def test_before_it_nothing_is_wished(self, supervisor: Supervisor) -> None:
        attempt = make_running(timeout_s=60)
        with time_machine.travel(timezone.now() + timedelta(seconds=59)):
            supervisor.turn()
        attempt.refresh_from_db()
        assert attempt.stop_reason == ""


class TestKills:
    def tell(self, supervisor: Supervisor, action: str, name: str) -> None:
        supervisor._kills.told.put((action, name))
        supervisor.turn()

    def test_one_that_no_wish_asked_for_is_noted(self, supervisor: Supervisor) -> None:
        attempt = make_running()
        self.tell(supervisor, "kill", attempt.container_name)
        attempt.refresh_from_db()
        assert attempt.kill_seen_at is not None

    def test_one_that_we_asked_for_is_not(self, supervisor: Supervisor) -> None:
        attempt = make_running()
        lifecycle.request_stop(attempt, Reason.TIMED_OUT, by="test")
        self.tell(supervisor, "kill", attempt.container_name)
        attempt.refresh_from_db()
        assert attempt.kill_seen_at is None

    @pytest.mark.parametrize("action", ["die", "stop", "create", "exec_create: sh"])
    def test_nor_is_anything_else(self, supervisor: Supervisor, action: str) -> None:
        attempt = make_running()
        self.tell(supervisor, action, attempt.container_name)
        attempt.refresh_from_db()
        assert attempt.kill_seen_at is None

    @pytest.mark.parametrize(
        "name",
        [
            "",
            "gpujob-",
            "gpujob-x-1",
            "gpujob-00000000-0000-4000-8000-000000000000-99999999999999999999",
            "gpujob-00000000-0000-4000-8000-000000000000-²",
            "postgres",
            "a\x00b",
        ],
    )
    def test_a_name_of_any_shape_is_harmless(
        self, supervisor: Supervisor, name: str
    ) -> None:
        attempt = make_running()
        self.tell(supervisor, "kill", name)
        attempt.refresh_from_db()
        assert attempt.kill_seen_at is None
        assert node().state == NodeState.UP

    def test_one_that_is_told_with_the_exit_is_known_before_it_is_collected(
        self,
        supervisor: Supervisor,
        runner: FakeRunner,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        attempt = make_running()
        observe = runner.observe

        def exit_meanwhile(name: str | None = None) -> Any:
            supervisor._kills.told.put(("kill", attempt.container_name))
            runner.end(attempt.container_name, 0)
            return observe(name)

        with monkeypatch.context() as patched:
            patched.setattr(runner, "observe", exit_meanwhile)
            supervisor.turn()
        assert asked("collect") == [ids(attempt)]
        collect(str(attempt.pk))
        attempt.refresh_from_db()
        assert attempt.reason == Reason.INTERRUPTED

    def test_one_that_could_not_be_written_down_is_with_the_next_turn(
        self,
        supervisor: Supervisor,
        runner: FakeRunner,
    ) -> None:
        attempt = make_running()
        supervisor._kills.told.put(("kill", attempt.container_name))
        runner.faults["observe"] = OperationalError("gone away")
        with pytest.raises(OperationalError):
            supervisor.turn()
        supervisor.turn()
        attempt.refresh_from_db()
        assert attempt.kill_seen_at is not None


class TestContainersOfNobody:
    def test_one_of_an_attempt_that_ended_is_asked_to_be_collected(
        self, supervisor: Supervisor, runner: FakeRunner
    ) -> None:
        attempt = make_running()
        left = runner.containers[attempt.container_name]
        runner.end(attempt.container_name)
        collect(str(attempt.pk))
        runner.containers[attempt.container_name] = left
        supervisor.turn()
        assert asked("collect") == [ids(attempt)]
        collect(str(attempt.pk))
        assert runner.containers == {}

    def test_one_whose_nonce_we_never_gave_is_not_touched(
        self, supervisor: Supervisor, runner: FakeRunner
    ) -> None:
        attempt = make_running()
        runner.end(attempt.container_name)
        collect(str(attempt.pk))
        spec = launch_spec(attempt)
        for forged in (("postgres", "x"), (attempt.container_name, "forged")):
            runner.launch(replace(spec, name=forged[0], nonce=forged[1]))
        supervisor.turn()
        assert asked("collect") == []
        assert len(runner.containers) == 2


class TestTheSafetyNet:
    def test_with_a_queue_the_scheduler_is_woken_every_five_seconds(
        self, supervisor: Supervisor, clock: Clock
    ) -> None:
        supervisor.turn()
        before = PassLease.objects.get().wakes
        for seconds, wakes in ((1, 0), (3.9, 0), (0.2, 1), (1, 1), (4.1, 2)):
            clock.now_s += seconds
            supervisor.turn()
            assert PassLease.objects.get().wakes - before == wakes

    def test_without_one_it_sleeps(self, supervisor: Supervisor, clock: Clock) -> None:
        lifecycle.request_cancel(Job.objects.get(), by=Job.objects.get().owner)
        before = PassLease.objects.get().wakes
        clock.now_s += 60
        supervisor.turn()
        assert PassLease.objects.get().wakes == before

    def test_a_node_that_became_ready_wakes_it(
        self, supervisor: Supervisor, runner: FakeRunner
    ) -> None:
        runner.faults["observe"] = DAEMON_AWAY
        supervisor.turn()
        before = PassLease.objects.get().wakes
        supervisor.turn()
        assert PassLease.objects.get().wakes == before + 1


class TestLogs:
    def test_a_running_jobs_bytes_come_to_its_file(
        self, supervisor: Supervisor, runner: FakeRunner, settings: Any
    ) -> None:
        attempt = make_running()
        runner.output[attempt.container_name] = b"epoch 1\n"
        supervisor.turn()
        path = settings.DATA_ROOT / attempt.log_path
        until(lambda: path.read_bytes() == b"epoch 1\n")

    def test_one_that_can_not_be_read_is_not_tried_without_a_pause(
        self,
        supervisor: Supervisor,
        runner: FakeRunner,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        attempt = make_running()
        tries = []

        def logs(name: str, *, follow: bool) -> Iterator[bytes]:
            tries.append(name)
            raise DAEMON_AWAY

        monkeypatch.setattr(runner, "logs", logs)
        for _ in range(20):
            supervisor.turn()
        until(lambda: bool(tries))
        time.sleep(0.05)
        assert tries == [attempt.container]


def until(condition: Callable[[], bool], patience_s: float = 10) -> None:
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@contextlib.contextmanager
def running(supervisor: Supervisor) -> Iterator[threading.Thread]:
    def run() -> None:
        try:
            supervisor.run()
        finally:
            connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield thread
    finally:
        supervisor.stop()
        supervisor.wake()
        thread.join(30)
        assert not thread.is_alive()


def is_up() -> bool:
    return node().state == NodeState.UP


@pytest.mark.django_db(transaction=True)
class TestTheLoop:
    @pytest.fixture(autouse=True)
    def _quick(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(loop, "TURN_S", 0.02)
        monkeypatch.setattr(kills, "PAUSE_S", 0.02)

    @pytest.fixture
    def supervisor(self, runner: FakeRunner) -> Supervisor:
        return Supervisor(runner, SimulatedInventory("gauss"))

    def test_told_to_stop_it_ends_and_the_node_is_down(
        self, supervisor: Supervisor
    ) -> None:
        with running(supervisor):
            until(is_up)
        assert node().state == NodeState.DOWN

    @pytest.mark.parametrize(
        "trouble",
        [OperationalError("database is locked"), OSError(28, "No space left")],
        ids=["database", "disk"],
    )
    def test_a_turn_that_fails_is_not_the_last_one(
        self,
        supervisor: Supervisor,
        runner: FakeRunner,
        trouble: Exception,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        runner.faults["observe"] = trouble
        with caplog.at_level(logging.ERROR), running(supervisor):
            until(is_up)
        assert "this turn was given up" in caplog.text

    @pytest.mark.filterwarnings(
        "ignore::pytest.PytestUnhandledThreadExceptionWarning",
    )
    @pytest.mark.parametrize(
        "trouble", [RuntimeError("no such event"), DAEMON_AWAY], ids=["ours", "daemon"]
    )
    def test_events_are_watched_again_whatever_ended_the_watch(
        self, supervisor: Supervisor, runner: FakeRunner, trouble: Exception
    ) -> None:
        runner.images.add(IMAGE)
        runner.faults["events"] = trouble
        job = make_job(command=["train"])
        with running(supervisor):
            until(lambda: "events" not in runner.faults)
            until(lambda: Node.objects.filter(images__image=IMAGE).exists())
            until(is_up)  # its image was written down a moment before
            attempt = place(job)
            launch(str(attempt.pk))
            runner.happened.append(("kill", attempt.container_name))
            until(lambda: Attempt.objects.get().kill_seen_at is not None)


class TestTheOnlyOne:
    def test_a_second_supervisor_is_refused_by_name(self, runner: FakeRunner) -> None:
        with (
            the_only_one(),
            pytest.raises(AlreadySupervised, match="gauss has a supervisor"),
            the_only_one(),
        ):
            pass

    def test_the_command_says_so(self, runner: FakeRunner) -> None:
        with the_only_one(), pytest.raises(CommandError, match="supervisor already"):
            call_command("supervise")

    def test_after_the_first_the_next_may(self, runner: FakeRunner) -> None:
        for _ in range(2):
            with the_only_one():
                pass
