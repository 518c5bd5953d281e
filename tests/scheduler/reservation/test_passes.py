from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from jobs import lifecycle
from jobs.models import Attempt, Job, User
from jobs.status import Reason, Status, WaitReason
from scheduler import placement, reservation
from scheduler.models import GPU, Allocation, GpuState, NodeImage, PassLease
from scheduler.reservation import ReservationLost, release, reserve, run_passes, wake
from tests.factories import make_job
from tests.scheduler.factories import GB, hold, make_gpu, make_live_attempt, make_node

pytestmark = pytest.mark.django_db


@pytest.fixture
def gpus() -> list[GPU]:
    node = make_node()
    return [make_gpu(node, mb * GB) for mb in (24, 24, 48, 48)]


def decide(job: Job) -> placement.Placement:
    snapshot = reservation.snapshot()
    decision = placement.decide(snapshot, reservation.request_of(job))
    assert isinstance(decision, placement.Placement), decision
    return decision


class TestSnapshot:
    def test_it_holds_both_ledgers(self, gpus: list[GPU]) -> None:
        held = hold(make_live_attempt(make_job()), gpus[0], 4 * GB)
        Allocation.objects.filter(pk=held.pk).update(measured_mb=5 * GB)
        GPU.objects.filter(pk=gpus[0].pk).update(foreign_mb=GB, reserved_mb=500)
        seen = reservation.snapshot().gpus[gpus[0].pk]
        assert (seen.promised_mb, seen.measured_mb) == (4 * GB, 5 * GB)
        assert seen.free_mb == 24 * GB - 500 - 5 * GB - GB

    def test_what_was_released_is_not_in_it(self, gpus: list[GPU]) -> None:
        attempt = make_live_attempt(make_job())
        hold(attempt, gpus[0], 4 * GB)
        release(attempt)
        assert reservation.snapshot().gpus[gpus[0].pk].holdings == ()

    def test_a_node_that_fell_silent_is_down(self) -> None:
        node = make_node()
        assert reservation.snapshot().nodes["gauss"].state == "up"
        node.heartbeat_at = timezone.now() - timedelta(minutes=1)
        node.save()
        assert reservation.snapshot().nodes["gauss"].state == "down"

    def test_jobs_without_a_gpu_take_a_cpu_each(self) -> None:
        make_node(cpus=2)
        make_job(gpu_count=0, status=Status.RUNNING)
        assert reservation.snapshot().nodes["gauss"].cpus_free == 1

    def test_a_job_with_a_gpu_takes_none_of_those(self) -> None:
        make_node(cpus=2)
        make_job(gpu_count=1, status=Status.RUNNING)
        assert reservation.snapshot().nodes["gauss"].cpus_free == 2

    def test_its_queries_do_not_grow_with_the_cluster(
        self, gpus: list[GPU], django_assert_num_queries: DjangoAssertNumQueries
    ) -> None:
        with django_assert_num_queries(5):
            reservation.snapshot()


class TestReserve:
    def test_it_starts_the_job_and_opens_its_allocations(self, gpus: list[GPU]) -> None:
        attempt = reserve(decide(make_job(gpu_count=2, min_vram_mb=40 * GB)))
        job = attempt.job
        assert (job.status, job.assigned_gpu_indices) == ("starting", [2, 3])
        assert job.assigned_gpu_uuids == [gpus[2].uuid, gpus[3].uuid]
        held = Allocation.objects.live().filter(attempt=attempt)
        assert [(a.gpu_id, a.vram_mb, a.is_exclusive) for a in held] == [
            (gpus[2].pk, 48 * GB, True),
            (gpus[3].pk, 48 * GB, True),
        ]

    def test_a_gpu_that_was_taken_meanwhile_loses_all_of_it(
        self, gpus: list[GPU]
    ) -> None:
        job = make_job(gpu_count=2, min_vram_mb=40 * GB)
        placed = decide(job)
        hold(make_live_attempt(make_job()), gpus[3], 1)
        with pytest.raises(ReservationLost, match="alone"):
            reserve(placed)
        job.refresh_from_db()
        assert job.status == Status.QUEUED
        assert job.attempts.count() == 0
        assert Allocation.objects.count() == 1

    def test_a_job_that_was_cancelled_meanwhile_is_lost(
        self, gpus: list[GPU], alice: User
    ) -> None:
        job = make_job(alice)
        placed = decide(job)
        lifecycle.request_cancel(job, by=alice)
        with pytest.raises(ReservationLost):
            reserve(placed)

    def test_it_can_not_be_reserved_twice(self, gpus: list[GPU]) -> None:
        placed = decide(make_job())
        reserve(placed)
        with pytest.raises(ReservationLost):
            reserve(placed)


class TestRelease:
    def test_once_is_enough(self, gpus: list[GPU]) -> None:
        attempt = reserve(decide(make_job(gpu_count=2)))
        assert release(attempt) == 2
        assert release(attempt) == 0

    def test_a_clock_set_back_does_not_keep_a_gpu(self, gpus: list[GPU]) -> None:
        attempt = make_live_attempt(make_job())
        future = timezone.now() + timedelta(hours=1)
        held = Allocation.objects.create(
            attempt=attempt,
            gpu=gpus[0],
            vram_mb=1,
            is_exclusive=False,
            reserved_at=future,
        )
        release(attempt)
        held.refresh_from_db()
        assert held.released_at == future

    def test_usage_is_counted_per_gpu(self, gpus: list[GPU]) -> None:
        attempt = make_live_attempt(make_job())
        now = timezone.now()
        for gpu, seconds in ((gpus[0], 10), (gpus[1], 20)):
            Allocation.objects.create(
                attempt=attempt,
                gpu=gpu,
                vram_mb=100,
                is_exclusive=False,
                reserved_at=now,
                released_at=now + timedelta(seconds=seconds),
            )
        assert reservation.usage_of(attempt) == lifecycle.Usage(
            gpu_seconds=30, vram_mb_seconds=3000
        )


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

    def test_a_wake_during_a_pass_is_not_absorbed(
        self, gpus: list[GPU], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        passes = []

        def one_pass() -> int:
            passes.append(1)
            if len(passes) == 1:
                wake()
            return 0

        monkeypatch.setattr(reservation, "one_pass", one_pass)
        wake()
        run_passes()
        assert len(passes) == 2

    def test_another_process_at_it_is_left_alone(self, gpus: list[GPU]) -> None:
        make_job()
        wake()
        PassLease.objects.update(
            holder="other", expires_at=timezone.now() + timedelta(seconds=9)
        )
        assert run_passes() == 0

    def test_the_lease_of_a_dead_process_runs_out(self, gpus: list[GPU]) -> None:
        make_job()
        wake()
        PassLease.objects.update(
            holder="dead", expires_at=timezone.now() - timedelta(seconds=1)
        )
        assert run_passes() == 1

    def test_so_does_that_of_one_that_died_before_the_clock_was_set_back(
        self, gpus: list[GPU]
    ) -> None:
        make_job()
        wake()
        PassLease.objects.update(
            holder="dead", expires_at=timezone.now() + timedelta(hours=1)
        )
        assert run_passes() == 1

    def test_a_pass_that_fails_gives_the_lease_back_and_serves_nothing(
        self, gpus: list[GPU], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken() -> int:
            raise RuntimeError

        monkeypatch.setattr(reservation, "one_pass", broken)
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
        self, gpus: list[GPU], monkeypatch: pytest.MonkeyPatch, settings: Any
    ) -> None:
        settings.RUNNER = "docker"
        monkeypatch.setattr(reservation, "HEAD", 2)
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
        assert job.wait_reason == ""

    def test_nothing_to_do_is_no_silence(self, job: Job) -> None:
        self.woken(3600)
        PassLease.objects.update(served=F("wakes"))
        reservation.tell_of_silence()
        job.refresh_from_db()
        assert job.wait_reason == ""

    def test_the_next_pass_takes_it_back(self, job: Job) -> None:
        GPU.objects.update(state=GpuState.DRAINING)
        self.woken(31)
        reservation.tell_of_silence()
        run_passes()
        job.refresh_from_db()
        assert job.wait_reason == WaitReason.DRAINING


class TestConsider:
    def request(self, **fields: object) -> placement.Request:
        return placement.Request(job_id="", gpu_count=1, **fields)  # type: ignore[arg-type]

    def test_now(self, gpus: list[GPU]) -> None:
        refusal, decision = reservation.consider(self.request())
        assert refusal == ""
        assert isinstance(decision, placement.Placement)

    def test_later_since_others_are_ahead(self, gpus: list[GPU]) -> None:
        for _ in gpus:
            make_job()
        refusal, decision = reservation.consider(self.request())
        assert refusal == ""
        assert isinstance(decision, placement.Wait)

    def test_now_since_those_that_wait_have_a_lower_priority(
        self, gpus: list[GPU]
    ) -> None:
        for _ in gpus:
            make_job(priority=10)
        _, decision = reservation.consider(self.request(), priority=50)
        assert isinstance(decision, placement.Placement)

    def test_never(self, gpus: list[GPU]) -> None:
        refusal, decision = reservation.consider(self.request(min_vram_mb=99 * GB))
        assert "49,152 MiB usable" in refusal
        assert decision is None
