from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from jobs.models import Attempt, Job, User
from jobs.status import Status
from scheduler.models import GPU, Allocation, Node
from scheduler.placement import Taken
from scheduler.reservation import load_snapshot, never, release
from tests.factories import finish, make_job
from tests.scheduler.factories import (
    GB,
    hold,
    make_gpu,
    make_live_attempt,
    make_node,
    place,
)

pytestmark = pytest.mark.django_db


def test_it_holds_both_ledgers(gpus: list[GPU]) -> None:
    held = hold(make_live_attempt(make_job()), gpus[0], 4 * GB)
    Allocation.objects.filter(pk=held.pk).update(measured_mb=5 * GB)
    GPU.objects.filter(pk=gpus[0].pk).update(foreign_mb=GB, reserved_mb=500)
    seen = load_snapshot().gpus[gpus[0].pk]
    assert (seen.promised_mb, seen.measured_mb) == (4 * GB, 5 * GB)
    assert seen.free_mb == 24 * GB - 500 - 5 * GB - GB


def test_what_was_released_is_not_in_it(gpus: list[GPU]) -> None:
    attempt = make_live_attempt(make_job())
    hold(attempt, gpus[0], 4 * GB)
    release(attempt)
    assert load_snapshot().gpus[gpus[0].pk].holdings == ()


def test_a_node_that_fell_silent_is_down() -> None:
    node = make_node()
    assert load_snapshot().nodes["gauss"].state == "up"
    node.heartbeat_at = timezone.now() - timedelta(minutes=1)
    node.save()
    assert load_snapshot().nodes["gauss"].state == "down"


def test_part_of_a_nodes_memory_is_the_systems() -> None:
    make_node("small", memory_mb=10_000)
    make_node("large", memory_mb=512 * GB)
    nodes = load_snapshot().nodes
    assert nodes["small"].memory_mb == 9_000
    assert nodes["large"].memory_mb == 508 * GB


def test_what_an_attempt_was_given_is_taken_of_its_node_until_its_limits(
    gpus: list[GPU],
) -> None:
    job = make_job(cpus=1.5, memory_mb=2000, timeout_s=600, grace_s=20)
    attempt = place(job)
    (taken,) = load_snapshot().nodes["gauss"].taken
    until = attempt.created_at.timestamp() + 60 + 600 + 20
    assert taken == Taken(millicpus=1500, memory_mb=2000, until=until)
    (holding,) = load_snapshot().gpus[gpus[0].pk].holdings
    assert (holding.until, holding.is_exclusive) == (until, True)


def test_one_that_started_late_has_its_whole_limit_from_then(gpus: list[GPU]) -> None:
    attempt = place(make_job(timeout_s=600, grace_s=0))
    late = attempt.created_at + timedelta(minutes=5)
    Attempt.objects.filter(pk=attempt.pk).update(started_at=late)
    (holding,) = load_snapshot().gpus[gpus[0].pk].holdings
    assert holding.until == late.timestamp() + 600


def test_one_whose_exit_was_seen_takes_nothing_of_its_node(gpus: list[GPU]) -> None:
    job = make_job(gpu_count=0, status=Status.RUNNING)
    attempt = job.attempts.get()
    assert load_snapshot().nodes["gauss"].taken
    Attempt.objects.filter(pk=attempt.pk).update(phase="collecting")
    assert load_snapshot().nodes["gauss"].taken == ()
    Attempt.objects.filter(pk=attempt.pk).update(phase="running")
    finish(attempt, "completed")
    assert load_snapshot().nodes["gauss"].taken == ()


def test_whose_the_foreign_use_is_comes_in_words(gpus: list[GPU]) -> None:
    def process(**fields: Any) -> dict[str, Any]:
        usual = {"pid": 7, "user": "ann", "process": "python3", "container": ""}
        return {**usual, "used_mb": 100, **fields}

    GPU.objects.filter(pk=gpus[0].pk).update(foreign_processes=[process()])
    two = [process(used_mb=None), process(pid=8, used_mb=9, container="jup")]
    GPU.objects.filter(pk=gpus[1].pk).update(foreign_processes=two)
    gone = [process(user="", process="")]
    GPU.objects.filter(pk=gpus[3].pk).update(foreign_processes=gone)
    seen = load_snapshot().gpus
    assert seen[gpus[3].pk].foreign_by == "pid 7"
    assert seen[gpus[0].pk].foreign_by == "python3 of ann, pid 7"
    assert seen[gpus[1].pk].foreign_by == (
        "python3 of ann, pid 8 in container jup, and 1 more"
    )
    assert seen[gpus[2].pk].foreign_by == ""


def test_why_a_node_is_out_and_what_it_is_labelled_with() -> None:
    make_node(state="quarantined", state_reason="fan", labels={"rack": "2"})
    node = load_snapshot().nodes["gauss"]
    assert (node.state, node.state_reason) == ("quarantined", "fan")
    assert node.labels == {"rack": "2"}


def test_until_when_something_is_out_is_told_with_the_reason(gpus: list[GPU]) -> None:
    until = datetime(2027, 1, 2, 3, 4, tzinfo=UTC)
    Node.objects.update(state="draining", state_reason="kernel", state_until=until)
    GPU.objects.update(state="draining", state_reason="fan", state_until=until)
    seen = load_snapshot()
    assert seen.nodes["gauss"].state_reason == "kernel, until 2027-01-02 03:04 UTC"
    assert seen.gpus[gpus[0].pk].state_reason == "fan, until 2027-01-02 03:04 UTC"


def test_what_runs_is_counted_by_request(gpus: list[GPU], alice: User) -> None:
    place(make_job(min_vram_mb=10 * GB, timeout_s=60))
    place(make_job(min_vram_mb=10 * GB, timeout_s=60))
    ((request, count),) = load_snapshot().running
    assert (request.min_vram_mb, request.timeout_s, count) == (10 * GB, 60, 2)


def test_its_queries_do_not_grow_with_the_cluster(
    gpus: list[GPU], django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(2):
        place(make_job(min_vram_mb=2 * GB, share=True))
        with django_assert_num_queries(7):
            load_snapshot()
        make_gpu(make_node(f"node{number}"))


def test_what_could_never_be_placed_is_told_from_the_hardware_alone(
    alice: User, gpus: list[GPU], django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    """Each submission asks it: no attempts, no allocations, no usage are read."""
    place(make_job(alice))
    job = Job(owner=alice, image="x:1", gpu_count=5)
    with django_assert_num_queries(3):
        assert "No node could ever hold 5 GPUs" in never(job)
    with django_assert_num_queries(4):
        assert never(Job(owner=alice, image="x:1")) == ""


def test_a_row_of_a_node_that_no_gpu_has_is_no_trouble() -> None:
    Node.objects.create(name="bare")
    assert load_snapshot().nodes["bare"].state == "down"
