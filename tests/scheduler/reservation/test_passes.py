import os
import threading
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.db import connections
from django.db.models import F
from django.utils import timezone

from jobs import lifecycle
from jobs.models import Attempt, Job
from jobs.spec import Parent
from jobs.status import Condition, Reason, Status, WaitReason
from jobs.waiting import behind
from scheduler import placement, reservation
from scheduler.models import (
    GPU,
    DecisionRecord,
    GpuState,
    NodeImage,
    PassLease,
    TaskMessage,
)
from scheduler.placement import passing
from scheduler.queue import beat, claim
from scheduler.reservation import passes, release, run_passes, wake
from scheduler.reservation.waking import the_only_pass
from tests.factories import finish, make_job, make_user
from tests.scheduler.factories import GB, asked

pytestmark = pytest.mark.django_db


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The passes that are made, during the first of which somebody wakes."""
    made: list[int] = []

    def one_pass() -> int:
        made.append(1)
        if len(made) == 1:
            wake()
        return 0

    monkeypatch.setattr(passes, "one_pass", one_pass)
    return made


class TestPasses:
    @pytest.fixture(autouse=True)
    def _no_wake_so_far(self) -> None:
        PassLease.objects.all().delete()

    def test_without_a_wake_there_is_no_pass(self, gpus: list[GPU]) -> None:
        job = make_job()
        assert run_passes() == 0
        job.refresh_from_db()
        assert job.status == Status.QUEUED

    def test_a_wake_places_the_queue(self, gpus: list[GPU]) -> None:
        jobs = [make_job() for _ in range(3)]
        wake()
        assert run_passes() == 3
        assert Attempt.objects.live().count() == len(jobs)

    def test_many_wakes_are_served_by_one_pass(self, gpus: list[GPU]) -> None:
        for _ in range(5):
            wake()
        run_passes()
        lease = PassLease.objects.get()
        assert (lease.wakes, lease.served, lease.holder) == (5, 5, "")

    def test_a_wake_during_a_pass_is_not_absorbed(self, made: list[int]) -> None:
        wake()
        run_passes()
        assert len(made) == 2

    @pytest.mark.django_db(transaction=True)
    def test_another_process_at_it_is_left_alone(self, gpus: list[GPU]) -> None:
        make_job()
        wake()
        at_it, done = threading.Event(), threading.Event()

        def pass_slowly() -> None:
            try:
                with the_only_pass():
                    at_it.set()
                    done.wait(60)
            finally:
                connections.close_all()

        other = threading.Thread(target=pass_slowly)
        other.start()
        assert at_it.wait(60)
        assert run_passes() == 0
        done.set()
        other.join()

    def test_the_lease_of_a_dead_process_is_over_at_once(self, gpus: list[GPU]) -> None:
        make_job()
        wake()
        soon = timezone.now() + timedelta(seconds=9)
        dead = "4194999/1@another-boot#1"
        PassLease.objects.update(holder=dead, expires_at=soon)
        assert run_passes() == 1

    def test_that_of_a_process_that_stands_still_runs_out(
        self, gpus: list[GPU]
    ) -> None:
        make_job()
        wake()
        me = f"{beat.identity(os.getpid())}#1"
        over = timezone.now() - timedelta(seconds=1)
        PassLease.objects.update(holder=me, expires_at=over)
        assert run_passes() == 1

    def test_so_does_that_of_one_that_died_before_the_clock_was_set_back(
        self, gpus: list[GPU]
    ) -> None:
        make_job()
        wake()
        PassLease.objects.update(
            holder=f"{beat.identity(os.getpid())}#1",
            expires_at=timezone.now() + timedelta(hours=1),
        )
        assert run_passes() == 1

    def test_a_pass_that_fails_gives_the_lease_back_and_serves_nothing(
        self, gpus: list[GPU], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken() -> int:
            raise RuntimeError

        monkeypatch.setattr(passes, "one_pass", broken)
        wake()
        with pytest.raises(RuntimeError):
            run_passes()
        lease = PassLease.objects.get()
        assert (lease.served, lease.holder) == (0, "")

    def test_a_waiting_job_is_told_why(self, gpus: list[GPU]) -> None:
        GPU.objects.update(foreign_mb=24 * GB)
        job = make_job(min_vram_mb=30 * GB)
        wake()
        run_passes()
        job.refresh_from_db()
        assert job.wait_reason == WaitReason.FOREIGN_USE
        assert "gauss GPU 2: 24,576 MiB are used by processes outside" in job.wait_text

    def test_the_higher_priority_is_first_then_the_older(self, gpus: list[GPU]) -> None:
        GPU.objects.exclude(pk=gpus[0].pk).update(state=GpuState.DRAINING)
        older, younger = make_job(), make_job()
        urgent = make_job(priority=80)
        started = []
        for _ in range(3):
            wake()
            run_passes()
            attempt = Attempt.objects.live().get()
            started.append(attempt.job_id)
            release(attempt)
            lifecycle.finish(
                attempt, Reason.UNKNOWN, "", usage=lifecycle.Usage(), by="test"
            )
        assert started == [urgent.pk, older.pk, younger.pk]

    def test_however_many_wait_for_an_image_they_keep_nobody_from_a_gpu(
        self, gpus: list[GPU], settings: Any
    ) -> None:
        settings.RUNNER = "docker"
        for _ in range(3):
            make_job(image="registry.away/x:1", priority=60)
        ready = make_job()
        wake()
        assert run_passes() == 1
        assert Attempt.objects.live().get().job_id == ready.pk

    def test_a_process_waits_for_no_image(self, gpus: list[GPU], settings: Any) -> None:
        settings.RUNNER = "process"
        make_job(image="no/such:1")
        wake()
        assert run_passes() == 1

    def test_a_job_waits_for_its_image(self, gpus: list[GPU], settings: Any) -> None:
        settings.RUNNER = "docker"
        NodeImage.objects.all().delete()
        job = make_job()
        wake()
        run_passes()
        job.refresh_from_db()
        assert job.wait_reason == WaitReason.IMAGE_PULL


class TestSilence:
    @pytest.fixture
    def job(self, gpus: list[GPU]) -> Job:
        job = make_job()
        wake()
        return job

    def woken(self, seconds_ago: float) -> None:
        at = timezone.now() - timedelta(seconds=seconds_ago)
        PassLease.objects.update(woken_at=at)
        wake()  # a later one is not the first

    def test_wakes_that_nobody_serves_are_told_on_the_jobs(self, job: Job) -> None:
        self.woken(31)
        reservation.tell_of_silence()
        job.refresh_from_db()
        assert job.wait_reason == WaitReason.SCHEDULER_DOWN
        assert "manage.py cluster" in job.wait_text

    def test_a_wake_of_just_now_is_no_silence(self, job: Job) -> None:
        self.woken(5)
        reservation.tell_of_silence()
        job.refresh_from_db()
        assert job.wait_reason == WaitReason.PRIORITY

    def test_a_system_that_is_never_idle_is_not_silent(self, job: Job) -> None:
        """A wake comes during each pass: some wake is always unserved."""
        self.woken(3600)
        PassLease.objects.update(passed_at=timezone.now())
        assert not reservation.is_silent()

    def test_nothing_to_do_is_no_silence(self, job: Job) -> None:
        self.woken(3600)
        PassLease.objects.update(served=F("wakes"))
        reservation.tell_of_silence()
        job.refresh_from_db()
        assert job.wait_reason == WaitReason.PRIORITY

    def test_the_next_pass_takes_it_back(self, job: Job) -> None:
        GPU.objects.update(state=GpuState.DRAINING)
        self.woken(31)
        reservation.tell_of_silence()
        run_passes()
        job.refresh_from_db()
        assert job.wait_reason == WaitReason.DRAINING


class TestWaking:
    @pytest.fixture(autouse=True)
    def _no_wake_so_far(self) -> None:
        PassLease.objects.all().delete()

    def test_many_wakes_ask_the_cluster_once(self) -> None:
        with time_machine.travel(timezone.now(), tick=False):
            for _ in range(100):
                wake()
        assert len(asked("schedule")) == 1
        assert PassLease.objects.get().wakes == 100

    def test_one_that_comes_during_a_pass_is_served_by_another(
        self, made: list[int]
    ) -> None:
        wake()
        run_passes()
        assert len(made) == 2

    def test_a_pass_that_was_begun_absorbs_no_wake(self) -> None:
        wake()
        claim("gauss", by="cluster")
        wake()
        assert len(asked("schedule")) == 1

    def test_a_wake_that_was_lost_is_made_up_for(self) -> None:
        make_job()
        TaskMessage.objects.all().delete()
        PassLease.objects.all().delete()
        PassLease.objects.create(id=1, passed_at=timezone.now() - timedelta(seconds=6))
        reservation.safety_net()
        assert len(asked("schedule")) == 1

    @pytest.mark.parametrize("ago_s", [4, -4])
    def test_not_where_a_pass_was_made_of_late(self, ago_s: int) -> None:
        make_job()
        PassLease.objects.all().delete()
        at = timezone.now() - timedelta(seconds=ago_s)
        PassLease.objects.create(id=1, passed_at=at)
        TaskMessage.objects.all().delete()
        reservation.safety_net()
        assert asked("schedule") == []

    def test_a_clock_that_was_set_back_keeps_no_pass_away(self) -> None:
        make_job()
        PassLease.objects.all().delete()
        PassLease.objects.create(id=1, passed_at=timezone.now() + timedelta(hours=1))
        TaskMessage.objects.all().delete()
        reservation.safety_net()
        assert len(asked("schedule")) == 1

    def test_nor_where_nothing_waits(self) -> None:
        reservation.safety_net()
        assert asked("schedule") == []


class TestWhatIsWritten:
    def test_the_first_of_each_lane_says_why_those_behind_it_that_they_are_behind(
        self, gpus: list[GPU]
    ) -> None:
        GPU.objects.update(state=GpuState.DRAINING, state_reason="new fans")
        owner = make_user()
        first, second = make_job(owner), make_job(owner)
        wake()
        run_passes()
        first.refresh_from_db()
        second.refresh_from_db()
        assert first.wait_reason == WaitReason.DRAINING
        assert "it is draining: new fans" in first.wait_text
        # Whatever is ahead of it, it waits for the same in the end.
        assert second.wait_reason == WaitReason.DRAINING
        assert "A job ahead of it asks for the same" in second.wait_text

    def test_those_behind_one_that_only_waits_for_room_are_in_line(
        self, gpus: list[GPU]
    ) -> None:
        owner = make_user()
        jobs = [make_job(owner) for _ in range(6)]
        wake()
        run_passes()
        said = [Job.objects.get(pk=job.pk).wait_reason for job in jobs[4:]]
        assert said == [WaitReason.RESOURCES, WaitReason.PRIORITY]

    def test_what_is_written_already_is_not_written_again(
        self, gpus: list[GPU], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        GPU.objects.update(state=GpuState.DRAINING)
        owner = make_user()
        for _ in range(3):
            make_job(owner)
        wake()
        run_passes()
        told: list[Any] = []

        def explain_waits(ids: list[Any], *_: Any) -> None:
            told.extend(ids)

        monkeypatch.setattr(lifecycle, "explain_waits", explain_waits)
        wake()
        run_passes()
        assert told == []

    def test_what_was_told_of_the_first_is_taken_back_when_it_is_behind(
        self, gpus: list[GPU]
    ) -> None:
        owner = make_user()
        older = make_job(owner, hold=True)
        first = make_job(owner)
        Job.objects.filter(pk=first.pk).update(
            wait_reason=WaitReason.PRIORITY, wait_text="kept for a job ahead from 22:56"
        )
        GPU.objects.update(state=GpuState.DRAINING)
        lifecycle.release_hold(older, by=owner)
        wake()
        run_passes()
        first.refresh_from_db()
        assert (first.wait_reason, first.wait_text) == behind("draining")

    def test_a_hold_that_came_during_the_pass_stays_the_reason(
        self, gpus: list[GPU], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        GPU.objects.update(state=GpuState.DRAINING)
        job = make_job()
        plan = placement.plan

        def held_meanwhile(*args: Any) -> Any:
            lifecycle.hold(job, by=job.owner)
            return plan(*args)

        monkeypatch.setattr(placement, "plan", held_meanwhile)
        wake()
        run_passes()
        job.refresh_from_db()
        assert job.wait_reason == WaitReason.HELD

    def test_of_very_many_that_start_the_next_pass_goes_on(
        self, gpus: list[GPU], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(passing, "MOST_PLACED", 2)
        for _ in range(4):
            make_job()
        wake()
        assert run_passes() == 4
        assert DecisionRecord.objects.count() == 2

    def test_a_task_ends_however_many_wakes_come_and_asks_for_another(
        self, gpus: list[GPU], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(passes, "LONGEST_S", 0.0)
        PassLease.objects.all().delete()
        wake()
        claim("gauss", by="cluster")
        assert (run_passes(), len(asked("schedule"))) == (0, 1)

    def test_a_job_that_is_not_in_line_is_left_alone(self, gpus: list[GPU]) -> None:
        owner = make_user()
        held = make_job(owner, hold=True)
        later = make_job(owner, begin_at=timezone.now() + timedelta(hours=1))
        wake()
        assert run_passes() == 0
        for job, reason in ((held, "held"), (later, "begin_time")):
            job.refresh_from_db()
            assert (job.status, job.wait_reason) == (Status.QUEUED, reason)

    def test_a_job_whose_time_has_come_starts(self, gpus: list[GPU]) -> None:
        job = make_job(begin_at=timezone.now() + timedelta(hours=1))
        Job.objects.filter(pk=job.pk).update(begin_at=timezone.now())
        wake()
        assert run_passes() == 1

    def test_a_job_starts_when_the_one_it_depends_on_has_ended(
        self, gpus: list[GPU]
    ) -> None:
        owner = make_user()
        parent = make_job(owner, status=Status.RUNNING)
        depends_on = [Parent(job_id=parent.pk, condition=Condition.AFTER_ANY)]
        make_job(owner, depends_on=depends_on)
        wake()
        assert run_passes() == 0
        finish(parent.attempts.get(), Reason.NONZERO_EXIT)
        wake()
        assert run_passes() == 1
