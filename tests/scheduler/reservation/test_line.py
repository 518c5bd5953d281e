"""The queue as lanes."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from jobs import lifecycle
from jobs.models import Job, User
from jobs.status import Reason
from scheduler.models import GPU
from scheduler.models import Lane as LaneRow
from scheduler.placement import Lane, Request
from scheduler.reservation import load_lanes, release, run_passes, wake
from scheduler.reservation.line import lane_key
from tests.factories import make_job
from tests.scheduler.factories import place

pytestmark = pytest.mark.django_db
ONE_GPU = Request(gpu_count=1)


def lanes() -> list[Lane]:
    return load_lanes(timezone.now()).lanes


def aged(job: Job, hours: float) -> None:
    created_at = timezone.now() - timedelta(hours=hours)
    Job.objects.filter(pk=job.pk).update(created_at=created_at)


def test_jobs_of_one_owner_that_ask_for_the_same_are_a_lane_the_oldest_first(
    alice: User,
) -> None:
    young, old = make_job(alice), make_job(alice)
    aged(old, 1)
    (lane,) = lanes()
    assert [job_id for job_id, _ in lane.jobs] == [str(old.pk), str(young.pk)]
    assert (lane.owner, lane.priority, lane.waiting) == (alice.email, 50, 2)


@pytest.mark.parametrize(
    "fields",
    [
        {"priority": 40},
        {"group": "vision"},
        {"gpu_count": 2},
        {"min_vram_mb": 5},
        {"gpu_name": "*3090*"},
        {"cpus": 2.0},
        {"memory_mb": 100},
        {"shm_mb": 100},
        {"timeout_s": 60},
        {"grace_s": 9},
        {"node_name": "gauss"},
        {"node_labels": {"rack": "1"}},
    ],
)
def test_whatever_differs_makes_another_lane(
    alice: User, fields: dict[str, Any]
) -> None:
    make_job(alice)
    make_job(alice, **fields)
    assert len(lanes()) == 2


def test_so_does_another_owner_and_being_moved_to_the_top(
    alice: User, bob: User, olga: User
) -> None:
    make_job(alice)
    make_job(bob)
    lifecycle.move_to_top(make_job(alice), by=olga)
    assert sorted(lane.topped_at > 0 for lane in lanes()) == [False, False, True]


def test_what_is_called_otherwise_or_runs_another_command_is_the_same_lane(
    alice: User,
) -> None:
    make_job(alice, name="a", command=["a"], env={"A": "1"})
    make_job(alice, name="b", command="b")
    assert len(lanes()) == 1


def test_who_is_not_in_line_is_in_no_lane(alice: User) -> None:
    make_job(alice, hold=True)
    make_job(alice, begin_at=timezone.now() + timedelta(hours=1))
    make_job(alice, status="running")
    assert lanes() == []


def test_an_array_is_a_lane_that_knows_how_many_of_its_tasks_run(
    alice: User, gpus: list[GPU]
) -> None:
    first = make_job(alice, array="0-4%2")
    make_job(alice, array="0-1")
    make_job(alice)
    place(first)
    found = {lane.array_limit: lane for lane in lanes() if lane.array_limit}
    assert found[2].array_running == 1
    assert found[2].waiting == 4
    assert len(lanes()) == 3


class TestAging:
    @pytest.fixture
    def job(self, alice: User, gpus: list[GPU]) -> Job:
        job = make_job(alice)
        aged(job, 10)
        return job

    def served(self, hours_ago: float) -> None:
        (lane,) = lanes()
        at = timezone.now() - timedelta(hours=hours_ago)
        LaneRow.objects.update_or_create(key=lane_key(lane), defaults={"served_at": at})

    def hours(self) -> float:
        (lane,) = lanes()
        return (timezone.now().timestamp() - lane.aged_from) / 3600

    def test_a_lane_that_was_never_served_ages_from_its_first_job(
        self, job: Job
    ) -> None:
        assert self.hours() == pytest.approx(10, abs=0.1)

    def test_one_that_was_served_ages_from_then(self, job: Job) -> None:
        self.served(3)
        assert self.hours() == pytest.approx(3, abs=0.1)

    def test_one_that_was_served_before_its_first_job_came_ages_from_that(
        self, job: Job
    ) -> None:
        self.served(20)
        assert self.hours() == pytest.approx(10, abs=0.1)

    def test_arrays_and_other_limits_of_the_same_lane_age_with_it(
        self, job: Job, alice: User
    ) -> None:
        """Else a flood of them would age as many lanes."""
        for fields in ({"array": "0-1"}, {"array": "0-2"}, {"timeout_s": 3601}):
            aged(make_job(alice, **fields), 10)
        Job.objects.update(created_at=timezone.now() - timedelta(hours=10))
        keys = {lane_key(lane) for lane in lanes()}
        assert len(keys) == 1
        LaneRow.objects.create(key=keys.pop(), served_at=timezone.now())
        ages = [timezone.now().timestamp() - lane.aged_from for lane in lanes()]
        assert (len(ages), max(ages) < 60) == (4, True)

    def test_a_job_that_was_requeued_keeps_its_age(self, job: Job) -> None:
        attempt = place(job)
        release(attempt)
        lifecycle.finish(
            attempt, Reason.NODE_LOST, "", usage=lifecycle.Usage(), by="test"
        )
        self.served(0)
        assert self.hours() == pytest.approx(10, abs=0.1)

    def test_starting_a_job_by_a_pass_serves_its_lane(
        self, job: Job, alice: User
    ) -> None:
        second = make_job(alice)
        aged(second, 9)
        GPU.objects.exclude(index=0).update(state="draining")
        wake()
        run_passes()
        assert self.hours() == pytest.approx(0, abs=0.1)


def test_its_queries_do_not_grow_with_the_queue(alice: User, bob: User) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            lanes()
        return len(captured)

    aged(make_job(alice, array="0-3%1"), 9)
    few = queries()
    for owner in (alice, bob):
        for count in (1, 2, 3):
            aged(make_job(owner, gpu_count=count, array="0-9%2"), 9)
    assert queries() == few


def test_the_key_of_a_lane_is_of_what_it_asks_not_of_its_jobs() -> None:
    lane = Lane(request=ONE_GPU, jobs=((str(uuid4()), 1.0),), owner="a")
    other = Lane(request=ONE_GPU, jobs=((str(uuid4()), 2.0),), owner="a")
    assert lane_key(lane) == lane_key(other)
    assert lane_key(lane) != lane_key(Lane(request=ONE_GPU, jobs=(), owner="b"))
