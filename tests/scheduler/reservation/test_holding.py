from datetime import timedelta

import pytest
from django.utils import timezone

from jobs import lifecycle
from jobs.models import Job, User
from jobs.status import Status
from scheduler import placement, reservation
from scheduler.models import GPU, Allocation
from scheduler.models import Lane as LaneRow
from scheduler.reservation import ReservationLost, release, reserve
from tests.factories import make_job
from tests.scheduler.factories import GB, hold, make_live_attempt, place

pytestmark = pytest.mark.django_db


def decide(job: Job) -> placement.Placement:
    snapshot = reservation.load_snapshot()
    decision = placement.decide(snapshot, reservation.request_of(job))
    assert isinstance(decision, placement.Placement), decision
    return decision


class TestReserve:
    def test_it_starts_the_job_and_opens_its_allocations(self, gpus: list[GPU]) -> None:
        attempt = place(make_job(gpu_count=2, min_vram_mb=40 * GB))
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
            reserve(str(job.pk), placed)
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
            reserve(str(job.pk), placed)

    def test_one_that_was_held_meanwhile_is_lost(
        self, gpus: list[GPU], alice: User
    ) -> None:
        job = make_job(alice)
        placed = decide(job)
        lifecycle.hold(job, by=alice)
        with pytest.raises(ReservationLost):
            reserve(str(job.pk), placed)

    def test_it_can_not_be_reserved_twice(self, gpus: list[GPU]) -> None:
        job = make_job()
        placed = decide(job)
        reserve(str(job.pk), placed)
        with pytest.raises(ReservationLost):
            reserve(str(job.pk), placed)

    def test_the_attempt_keeps_what_it_was_given_and_the_story_why_there(
        self, gpus: list[GPU]
    ) -> None:
        attempt = place(make_job(min_vram_mb=30 * GB))
        # Of 7 of 8 CPUs and as much of 60 GiB, the part of its VRAM: a third.
        assert (attempt.cpus, attempt.memory_mb) == (2.333, 17_920)
        event = attempt.job.events.get(event_type="starting")
        assert event.payload["why"] == (
            "best fit: gauss GPU 2 (whole, 49,152 MiB free)"
        )

    def test_its_lane_was_served_now(self, gpus: list[GPU]) -> None:
        for _ in range(2):
            job = make_job()
            reserve(str(job.pk), decide(job), lane_key="key")
        lane = LaneRow.objects.get()
        assert abs(lane.served_at - timezone.now()) < timedelta(minutes=1)


class TestRelease:
    def test_once_is_enough(self, gpus: list[GPU]) -> None:
        attempt = place(make_job(gpu_count=2))
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

    def test_usage_ends_with_the_exit_not_when_it_was_seen(
        self, gpus: list[GPU]
    ) -> None:
        attempt = make_live_attempt(make_job())
        now = timezone.now()
        attempt.exited_at = now + timedelta(seconds=10)
        Allocation.objects.create(
            attempt=attempt,
            gpu=gpus[0],
            vram_mb=100,
            is_exclusive=False,
            reserved_at=now,
            released_at=now + timedelta(seconds=110),
        )
        assert reservation.usage_of(attempt).gpu_seconds == 10

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
