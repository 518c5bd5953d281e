"""manage.py verify over real rows, files and a fake runner."""

import io
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import connection, connections
from django.utils import timezone

from jobs.models import Artifact, Attempt, Job, JobEvent
from jobs.sealing import seal
from jobs.status import Reason
from scheduler.execution import collect, launch
from scheduler.invariants import confirmed
from scheduler.inventory.base import Device, DeviceProcess, DeviceSample
from scheduler.models import GPU, Allocation, Node
from scheduler.runner.base import ContainerState, RunnerFault, Stray
from scheduler.verification import look
from scheduler.verification.guards import TRIGGERS, expected_guards, found_guards
from scheduler.verification.rows import jobs, one_snapshot
from tests.factories import finish, make_attempt, make_job
from tests.fakes import FakeRunner
from tests.scheduler.factories import make_gpu, make_reserved
from tests.scheduler.unguarded import unguarded

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("gpu")]

ROWS = ("jobs_job", "jobs_attempt", "scheduler_allocation", "jobs_jobevent")
LONG_AGO = timedelta(minutes=5)


class Standing(dict[str, BaseException]):
    """Faults that stay."""

    def pop(self, verb: str, *_: Any) -> Any:
        return self.get(verb)


def verify(patience: float = 0) -> tuple[int, str]:
    """The exit status, and what it printed. Nobody seals beside it, however slow."""
    seal()
    out = io.StringIO()
    try:
        call_command("verify", patience=patience, stdout=out)
    except CommandError as error:
        return error.returncode, f"{out.getvalue()}{error}"
    return 0, out.getvalue()


def found(*codes: str) -> None:
    """These are wrong, and nothing else."""
    status, text = verify()
    lines = [line.split(":")[0] for line in text.splitlines()[:-1]]
    assert (status, sorted(lines)) == (1, sorted(f"{code} wrong" for code in codes)), (
        text
    )


def make_running(**spec: Any) -> Attempt:
    attempt = make_reserved(**spec)
    launch(str(attempt.pk))
    attempt.refresh_from_db()
    return attempt


def make_done(runner: FakeRunner) -> Attempt:
    """It ran to its end, with a log and a result."""
    attempt = make_running()
    name = attempt.container_name
    (runner.specs[name].artifacts / "model.pt").write_bytes(b"weights")
    runner.output[name] = b"epoch 1\n"
    runner.end(name)
    collect(str(attempt.pk))
    attempt.refresh_from_db()
    assert attempt.reason == Reason.COMPLETED
    return attempt


def write(table: str, pk: object, **values: Any) -> None:
    """Past every guard."""
    model = {"job": Job, "attempt": Attempt, "allocation": Allocation}[table]
    rows: Any = model._default_manager.filter(pk=pk)
    with unguarded(*ROWS):
        assert rows.update(**values) == 1


class TestHealthy:
    def test_nothing_ever_ran(self, runner: FakeRunner) -> None:
        assert verify() == (0, "All invariants hold.\n")

    def test_jobs_in_every_state(self, runner: FakeRunner, gpu: GPU) -> None:
        for _ in range(3):
            make_gpu(gpu.node)
        make_done(runner)
        make_running(), make_reserved(), make_job()
        make_job(status="cancelled")
        assert verify() == (0, "All invariants hold.\n")

    def test_what_was_on_its_way_arrives(self, runner: FakeRunner) -> None:
        make_running()
        runner.faults["observe"] = RunnerFault(Reason.DAEMON_FAULT, "it restarts")
        assert verify(patience=10) == (0, "All invariants hold.\n")

    def test_a_host_that_is_no_node_checks_rows_alone(self, settings: Any) -> None:
        settings.NODE_NAME = "laptop"
        told = "This host is no node: only rows are checked.\nAll invariants hold.\n"
        assert verify() == (0, told)
        JobEvent.objects.create(job=make_job(), event_type="failed", actor="x")
        found_status, text = verify()
        assert (found_status, "I2 wrong" in text) == (1, True)


class TestRows:
    """Each planted past the guards."""

    def test_a_gpu_promised_twice(self, runner: FakeRunner, gpu: GPU) -> None:
        attempt = make_running(min_vram_mb=1024, share=True)
        held = attempt.allocations.get()
        write("allocation", held.pk, vram_mb=gpu.total_mb + 1)
        found("I1")

    def test_an_exclusive_one_that_is_not_alone(
        self, runner: FakeRunner, gpu: GPU
    ) -> None:
        shares = {"min_vram_mb": 1024, "share": True}
        make_running(**shares)
        other = make_running(**shares)
        write("allocation", other.allocations.get().pk, is_exclusive=True)
        found("I1")

    def test_an_overlap_of_long_ago(self, runner: FakeRunner, gpu: GPU) -> None:
        first = make_done(runner).allocations.get()
        make_done(runner)
        assert first.released_at is not None
        until = first.released_at + timedelta(hours=1)
        write("allocation", first.pk, released_at=until)
        found("I1")

    def test_a_gpu_that_an_ended_attempt_holds(self, runner: FakeRunner) -> None:
        attempt = make_done(runner)
        write("allocation", attempt.allocations.get().pk, released_at=None)
        found("I3", "I3")

    def test_an_end_without_a_time(self, runner: FakeRunner) -> None:
        write("job", make_done(runner).job_id, finished_at=None)
        status, text = verify()
        assert status == 1
        assert "has no finished_at" in text

    def test_an_end_that_is_told_twice(self, runner: FakeRunner) -> None:
        JobEvent.objects.create(job=make_done(runner).job, event_type="failed")
        found("I2")

    def test_a_running_job_whose_attempt_ended(self, runner: FakeRunner) -> None:
        job = make_job(gpu_count=0)
        make_attempt(job, status="failed")
        write("job", job.pk, status="running", finished_at=None, reason="")
        found("I2", "I3", "I8")

    def test_a_success_that_was_none(self, runner: FakeRunner) -> None:
        write("attempt", make_done(runner).pk, exit_code=1)
        found("I6")

    def test_a_start_after_a_fault_of_its_own(self, runner: FakeRunner) -> None:
        first = make_done(runner)
        values = {"ended_at": timezone.now(), "phase": "", "exit_code": 0}
        started = {"started_at": timezone.now(), "log_path": first.log_path}
        with unguarded(*ROWS):
            Attempt.objects.create(
                **{"job": first.job, "number": 2, "node": "gauss"} | started | values,
                reason=Reason.COMPLETED,
            )
        found("I5")


class TestGuards:
    def test_a_fresh_database_has_what_is_expected(self) -> None:
        expected, there = expected_guards(), found_guards()
        assert all(names <= there[table] for table, names in expected.items())
        ours = {
            (table, name)
            for table, names in there.items()
            for name in names
            if name.startswith("guard_")
        }
        listed = TRIGGERS[connection.vendor].items()
        assert ours == {(table, name) for table, names in listed for name in names}

    def test_a_trigger_that_was_dropped(self, runner: FakeRunner) -> None:
        drop = {
            "sqlite": "DROP TRIGGER guard_auditrecord_update",
            "postgresql": "DROP TRIGGER guard_row ON jobs_auditrecord",
        }
        with connection.cursor() as cursor:
            cursor.execute(drop[connection.vendor])
        found("I7")
        assert "jobs_auditrecord" in verify()[1]

    def test_a_trigger_that_was_turned_off(self, runner: FakeRunner) -> None:
        off = {
            # It has no other way.
            "sqlite": "DROP TRIGGER guard_job_moves",
            "postgresql": "ALTER TABLE jobs_job DISABLE TRIGGER guard_row",
        }
        with connection.cursor() as cursor:
            cursor.execute(off[connection.vendor])
        found("I7")

    def test_a_constraint_that_was_dropped(self, runner: FakeRunner) -> None:
        with connection.cursor() as cursor:
            cursor.execute("DROP INDEX attempt_one_live_of_a_kind")
        found("I7")
        assert "attempt_one_live_of_a_kind" in verify()[1]


class TestContainers:
    def test_one_that_is_left(self, runner: FakeRunner) -> None:
        attempt = make_done(runner)
        runner.create(runner.specs[attempt.container_name])
        assert verify()[0] == 0, "it has a minute to be gone"
        write(
            "attempt", attempt.pk, ended_at=timezone.now() - LONG_AGO, started_at=None
        )
        status, text = verify()
        assert (status, "I4 wrong" in text) == (1, True)
        assert attempt.container_name in text

    def test_one_that_is_foreign_is_told_of_and_no_fault(
        self, runner: FakeRunner
    ) -> None:
        make_running()
        [mine] = runner.containers.values()
        runner.containers["gpujob-old"] = replace(mine, name="gpujob-old", nonce="old")
        status, text = verify()
        assert (status, text.count("\n")) == (0, 2)
        assert "I4 information: " in text
        assert "container gpujob-old" in text

    def test_one_that_is_missing(self, runner: FakeRunner) -> None:
        make_running()
        runner.containers.clear()
        found("I4")

    def test_one_that_runs_on_when_its_gpus_are_given_back(
        self, runner: FakeRunner
    ) -> None:
        attempt = make_running()
        write("allocation", attempt.allocations.get().pk, released_at=timezone.now())
        write("attempt", attempt.pk, phase="collecting")
        found("I4")

    def test_one_with_a_gpu_that_it_does_not_hold(self, runner: FakeRunner) -> None:
        runner.change(make_running().container_name, gpu_uuids=("GPU-other",))
        found("I1")

    def test_one_that_does_not_stop(self, runner: FakeRunner) -> None:
        attempt = make_running(grace_s=5)
        asked_at = timezone.now() - LONG_AGO
        wish = {"stop_reason": Reason.TIMED_OUT, "stop_requested_at": asked_at}
        write("attempt", attempt.pk, **wish)
        found("I11")


class TestBelow:
    def stray(self, runner: FakeRunner, *mounts: str) -> None:
        stray = Stray(container_id="f" * 64, processes=((7, "1@b"),), mounts=mounts)
        runner.below["f" * 64] = stray

    def test_what_docker_forgot(self, runner: FakeRunner) -> None:
        work = f"{settings.RUN_ROOT}/work/gpujob-x-1"
        self.stray(runner, f"{work}/artifacts", f"{work}/scratch")
        found("I9")

    def test_what_docker_forgot_and_our_rows_know(self, runner: FakeRunner) -> None:
        attempt = make_done(runner)
        assert attempt.container_id is not None
        runner.below["x"] = Stray(container_id=attempt.container_id, processes=())
        found("I9")

    def test_what_others_run(self, runner: FakeRunner) -> None:
        self.stray(runner, "/var/lib/kubelet/pods/1", "/data")
        assert verify() == (0, "All invariants hold.\n")

    def test_a_process_on_a_gpu_that_its_attempt_does_not_hold(
        self, runner: FakeRunner, gpu: GPU
    ) -> None:
        attempt = make_running()
        runner.holders = {7: str(attempt.container_id), 8: "somebody's"}
        seal()
        inventory = Inventory([(gpu.uuid, 7), (gpu.uuid, 8)])
        assert look(runner, inventory).passing == ()
        inventory = Inventory([("GPU-other", 7), ("GPU-other", 8)])
        [finding] = look(runner, inventory).passing
        assert finding.code == "gpu_process"


class Inventory:
    """Processes on GPUs, by (UUID, pid)."""

    def __init__(self, processes: list[tuple[str, int]]) -> None:
        self._processes = processes

    def devices(self) -> list[Device]:
        return []

    def sample(self) -> list[DeviceSample]:
        nothing = {"used_mb": 1, "utilisation": 0, "temperature": 0, "power_w": 0}
        return [
            DeviceSample(
                uuid=uuid, processes=(DeviceProcess(pid=pid, used_mb=1),), **nothing
            )
            for uuid, pid in self._processes
        ]

    def close(self) -> None: ...


def log_of(attempt: Attempt) -> Path:
    return Path(settings.DATA_ROOT / attempt.log_path)


class TestFiles:
    def test_a_log_beyond_its_cap(self, runner: FakeRunner, settings: Any) -> None:
        settings.LOG_CAP_MB = 1
        log_of(make_done(runner)).write_bytes(b"x" * 2 * 2**20)
        found("I8")

    def test_a_log_that_is_gone(self, runner: FakeRunner) -> None:
        log_of(make_done(runner)).unlink()
        found("I8")

    @pytest.mark.parametrize(
        "spoil", [Path.unlink, lambda path: path.write_bytes(b"weight")]
    )
    def test_a_result_that_is_not_whole(
        self, runner: FakeRunner, spoil: Callable[[Path], Any]
    ) -> None:
        artifact = Artifact.objects.get(attempt=make_done(runner))
        spoil(settings.DATA_ROOT / artifact.storage_path)
        found("I12")

    def test_work_folders_that_are_left(self, runner: FakeRunner) -> None:
        done, lives = make_done(runner), make_running()
        work = settings.RUN_ROOT / "work"
        assert [path.name for path in work.iterdir()] == [lives.container_name]
        (work / done.container_name).mkdir()
        (work / "gpujob-x").mkdir()
        found("I12", "I12")

    def test_those_of_another_node_are_its_own_to_see(self, runner: FakeRunner) -> None:
        done = make_done(runner)
        write("attempt", done.pk, node="noether")
        (settings.RUN_ROOT / "work" / done.container_name).mkdir()
        assert verify()[0] == 0


class TestWhatDoesNotAnswer:
    @pytest.mark.parametrize("verb", ["observe", "strays"])
    def test_a_runner(self, runner: FakeRunner, verb: str) -> None:
        make_running()
        runner.faults = Standing({verb: RunnerFault(Reason.DAEMON_FAULT, "no answer")})
        found("I4" if verb == "observe" else "I9")
        assert "could not be looked at" in verify()[1]

    def test_a_driver(self, runner: FakeRunner, settings: Any) -> None:
        settings.INVENTORY = "nvml"
        found("I9")

    def test_a_database(self, runner: FakeRunner) -> None:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE scheduler_gpu RENAME TO elsewhere")
        status, text = verify()
        assert status == 1
        assert text.startswith("I7 wrong: It could not be looked at the database")


class TestWhatIsLookedAtEachMinute:
    def test_what_lives_and_what_ended_since(self, runner: FakeRunner) -> None:
        broken = make_done(runner)
        JobEvent.objects.create(job=broken.job, event_type="failed")
        now = timezone.now()
        assert [f.code for f in look(None, None, now).settled] == ["endings"]
        assert look(None, None, now + timedelta(hours=2)).settled == ()

    def test_a_live_attempt_does_not_hide_behind_an_ended_job(
        self, runner: FakeRunner
    ) -> None:
        job = make_job(gpu_count=0)
        finish(make_attempt(job), Reason.COMPLETED)
        with unguarded(*ROWS):
            Attempt.objects.create(job=job, number=2, node="gauss")
        later = timezone.now() + timedelta(days=1)
        assert "ended_job" in [f.code for f in look(None, None, later).settled]

    def test_a_container_that_comes_and_goes_is_nothing(
        self, runner: FakeRunner
    ) -> None:
        make_running()
        kept = dict(runner.containers)
        before = look(runner, Inventory([]))
        runner.containers.clear()
        without = look(runner, Inventory([]))
        runner.containers |= kept
        after = look(runner, Inventory([]))
        assert confirmed(before, without) == confirmed(without, after) == []
        assert ContainerState.RUNNING in [o.state for o in runner.observe()]
        assert Node.objects.count() == 1


@pytest.mark.django_db(transaction=True)
class TestOneMoment:
    def test_rows_are_seen_as_of_the_first_query_and_keep_no_writer_waiting(
        self,
    ) -> None:
        def write_elsewhere() -> None:
            try:
                make_job()
            finally:
                connections.close_all()

        with one_snapshot():
            assert list(jobs(None)) == []
            writer = threading.Thread(target=write_elsewhere)
            writer.start()
            writer.join(10)
            assert not writer.is_alive()
            assert list(jobs(None)) == []
        assert len(list(jobs(None))) == 1

    def test_after_a_look_that_failed_the_next_one_sees_anew(self) -> None:
        with pytest.raises(ZeroDivisionError), one_snapshot():
            len(list(jobs(None))) / 0
        make_job()
        with one_snapshot():
            assert len(list(jobs(None))) == 1

    def test_the_command_looks_at_it_so(self, runner: FakeRunner) -> None:
        JobEvent.objects.create(job=make_job(), event_type="failed", actor="x")
        found("I2")
