"""Jobs of policies that wait for what is gone, or need not wait: routed again."""

from typing import Any

import pytest

from jobs import lifecycle
from jobs.models import Job, RoutingPolicy, User
from jobs.status import Cause, Status, WaitReason
from scheduler import reservation
from scheduler.models import GPU
from scheduler.reservation.routing import routed
from tests.factories import document, make_policy
from tests.scheduler.factories import GB, make_gpu, make_node

TYPES = ["*A6000*", "*3090*"]


@pytest.fixture
def gpus(db: None) -> list[GPU]:
    node = make_node()
    return [make_gpu(node), make_gpu(node, 48 * GB, name="NVIDIA RTX A6000")]


def typed(**changes: Any) -> RoutingPolicy:
    small, large = document()["tiers"]
    return make_policy(tiers=[{**small, "gpu_names": TYPES}, large], **changes)


def submitted(row: RoutingPolicy, by: User) -> Job:
    asked = {"name": "task", "model_name": row.name, "params": {}, "risk": "low"}
    return lifecycle.submit(by=by, **routed(asked, row, by=by))


def quarantine(gpu: GPU) -> None:
    GPU.objects.filter(pk=gpu.pk).update(state="quarantined", state_reason="XID 79")


def causes(job: Job) -> list[tuple[str, str]]:
    return [(made.cause, made.gpu_name) for made in job.decisions.order_by("number")]


def test_what_it_waits_for_is_gone_and_another_type_is_taken(
    alice: User, gpus: list[GPU]
) -> None:
    job = submitted(typed(), alice)
    quarantine(gpus[1])
    reservation.one_pass()  # it is routed anew
    assert causes(job) == [(Cause.SUBMITTED, TYPES[0]), (Cause.FALLBACK, TYPES[1])]
    reservation.one_pass()  # and placed by what it asks for now
    job.refresh_from_db()
    assert (job.status, job.gpu_name) == (Status.STARTING, TYPES[1])
    events = [event.event_type for event in job.events.order_by("id")]
    assert events == ["queued", "rerouted", "starting"]
    assert job.attempts.get().decision == job.decisions.get(number=2)


def test_what_is_only_drained_is_waited_for(alice: User, gpus: list[GPU]) -> None:
    job = submitted(typed(), alice)
    GPU.objects.filter(pk=gpus[1].pk).update(state="draining", state_reason="fan")
    reservation.one_pass()
    job.refresh_from_db()
    assert (job.status, job.wait_reason) == (Status.QUEUED, WaitReason.DRAINING)
    assert len(causes(job)) == 1


def test_where_nothing_is_left_it_waits_and_no_decision_is_written_twice(
    alice: User, gpus: list[GPU]
) -> None:
    job = submitted(typed(), alice)
    for gpu in gpus:
        quarantine(gpu)
    for _ in range(3):
        reservation.one_pass()
    job.refresh_from_db()
    assert job.status == Status.QUEUED
    assert len(causes(job)) == 1


def test_a_busy_type_is_left_only_where_the_policy_prefers_soonest(
    alice: User, gpus: list[GPU]
) -> None:
    GPU.objects.filter(pk=gpus[1].pk).update(foreign_mb=48 * GB)
    waits = submitted(typed(), alice)
    reservation.one_pass()
    waits.refresh_from_db()
    assert (waits.status, waits.gpu_name) == (Status.QUEUED, TYPES[0])
    soon = submitted(typed(prefer="soonest"), alice)
    assert soon.gpu_name == TYPES[1]


def test_where_all_are_busy_it_does_not_go_to_and_fro(
    alice: User, gpus: list[GPU]
) -> None:
    row = typed(prefer="soonest")
    GPU.objects.update(foreign_mb=48 * GB)
    job = submitted(row, alice)
    for _ in range(4):
        reservation.one_pass()
    assert len(causes(job)) == 1
    GPU.objects.filter(pk=gpus[0].pk).update(foreign_mb=0)
    reservation.one_pass()
    reservation.one_pass()
    job.refresh_from_db()
    assert (job.status, job.gpu_name) == (Status.STARTING, TYPES[1])


def test_a_policy_file_that_is_broken_costs_no_pass(
    alice: User, gpus: list[GPU], settings: Any
) -> None:
    job = submitted(typed(), alice)
    quarantine(gpus[1])
    settings.POLICY_FILE.write_text("images = 7")
    reservation.one_pass()
    job.refresh_from_db()
    assert job.status == Status.QUEUED
    settings.POLICY_FILE.unlink()
    reservation.one_pass()
    assert len(causes(job)) == 2
