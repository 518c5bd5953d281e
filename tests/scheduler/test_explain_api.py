from collections.abc import Callable
from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from rest_framework.test import APIClient

from jobs.models import Job, User
from jobs.status import Status
from scheduler.models import GPU, PassLease
from scheduler.placement import forecast
from scheduler.reservation import wake
from tests.asserts import assert_problem
from tests.factories import make_job
from tests.scheduler.factories import (
    GB,
    hold,
    make_gpu,
    make_live_attempt,
    make_node,
)

Api = Callable[..., APIClient]


def url(job: Job) -> str:
    return f"/api/v1/jobs/{job.pk}/explain"


def test_why_a_job_waits_is_told_gpu_by_gpu_with_the_numbers(
    api: Api, alice: User, gpu: GPU
) -> None:
    GPU.objects.update(foreign_mb=4 * GB)
    held = hold(make_live_attempt(make_job()), gpu, 14 * GB)
    held.measured_mb = 15 * GB
    held.save()
    other = make_job(alice, min_vram_mb=20 * GB, share=True)
    job = make_job(alice, min_vram_mb=10 * GB, share=True)
    Job.objects.exclude(pk__in=[job.pk, other.pk]).update(priority=0)
    answer = api(alice).get(url(job)).json()
    assert answer["status"] == "queued"
    assert answer["place_in_line"] == 2
    assert answer["reason"] == "resources"
    assert "gauss GPU 0: 5,120 MiB are free" in answer["text"]
    (line,) = answer["gpus"]
    assert (
        line
        | {
            "node": "gauss",
            "index": 0,
            "uuid": gpu.uuid,
            "total_mb": 24 * GB,
            "promised_mb": 14 * GB,
            "measured_mb": 15 * GB,
            "foreign_mb": 4 * GB,
            "free_mb": 5 * GB,
            "missing_mb": 5 * GB,
        }
        == line
    )
    assert line["blocked_by"]
    assert line["text"]


def test_one_that_is_about_to_start_is_told_so(api: Api, alice: User, gpu: GPU) -> None:
    answer = api(alice).get(url(make_job(alice))).json()
    assert answer["text"] == "It starts on gauss with the next pass."
    assert (answer["reason"], answer["place_in_line"]) == ("", 1)


@pytest.mark.parametrize("status", [Status.RUNNING, Status.SUCCEEDED, Status.CANCELLED])
def test_one_that_does_not_wait_is_told_so(
    api: Api, alice: User, gpu: GPU, status: str
) -> None:
    job = make_job(alice, status=status)
    answer = api(alice).get(url(job)).json()
    assert (answer["status"], answer["place_in_line"]) == (status, None)
    assert answer["gpus"] == []
    assert answer["text"] == job.reason_text or status in answer["text"]


def test_the_smallest_change_that_would_start_it_now_is_told(
    api: Api, alice: User, gpu: GPU
) -> None:
    hold(make_live_attempt(make_job()), gpu, 10 * GB)
    Job.objects.update(priority=0)
    job = make_job(alice, min_vram_mb=16 * GB, share=True)
    assert api(alice).get(url(job)).json()["change"] == {
        "field": "min_vram_mb",
        "before": 16 * GB,
        "after": 14 * GB,
        "text": "With min_vram_mb 14,336 it would start now.",
    }


def test_labels_are_an_object_in_a_change_too(api: Api, alice: User, gpu: GPU) -> None:
    ssd = make_node("euler", labels={"disk": "ssd"})
    make_gpu(ssd, foreign_mb=20 * GB)
    answer = api(alice).get(url(make_job(alice, node_labels={"disk": "ssd"}))).json()
    assert (answer["change"]["before"], answer["change"]["after"]) == (
        {"disk": "ssd"},
        {},
    )


def test_whose_the_foreign_use_is_is_told(api: Api, alice: User, gpu: GPU) -> None:
    process = {"pid": 77, "user": "ann", "process": "python3", "container": ""}
    GPU.objects.update(
        foreign_mb=20 * GB, foreign_processes=[{**process, "used_mb": 20 * GB}]
    )
    answer = api(alice).get(url(make_job(alice))).json()
    assert (answer["reason"], answer["eta"]) == ("foreign_use", None)
    assert answer["gpus"][0]["foreign_by"] == "python3 of ann, pid 77"
    assert "outside GPU Jobs (python3 of ann, pid 77)" in answer["text"]


def test_one_far_back_is_told_its_place_and_no_time(
    api: Api, alice: User, gpu: GPU, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecast, "MOST_AHEAD", 2)
    make_job(priority=80)
    jobs = [make_job(alice) for _ in range(3)]
    make_job(priority=10)
    answer = api(alice).get(url(jobs[-1])).json()
    assert (answer["status"], answer["place_in_line"]) == ("queued", 4)
    assert (answer["reason"], answer["eta"]) == ("priority", None)
    assert answer["text"].startswith("2 jobs ahead of it ask for the same.")


def test_where_no_pass_is_made_that_is_the_reason(
    api: Api, alice: User, gpu: GPU
) -> None:
    job = make_job(alice)
    wake()
    PassLease.objects.update(woken_at=timezone.now() - timedelta(minutes=1))
    answer = api(alice).get(url(job)).json()
    assert (answer["reason"], answer["eta"]) == ("scheduler_down", None)
    assert "manage.py cluster" in answer["text"]


def test_its_queries_do_not_grow_with_the_queue_or_the_cluster(
    api: Api, alice: User, gpu: GPU
) -> None:
    job = make_job(alice)

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert api(alice).get(url(job)).status_code == 200
        return len(captured)

    few = queries()
    for _ in range(5):
        make_job()
        hold(make_live_attempt(make_job()), make_gpu(gpu.node), GB)
    assert queries() == few


def test_a_strangers_job_does_not_exist(
    api: Api, alice: User, bob: User, gpu: GPU
) -> None:
    assert_problem(api(bob).get(url(make_job(alice))), 404, "not_found")


def test_an_operator_sees_every_ones(
    api: Api, alice: User, olga: User, gpu: GPU
) -> None:
    assert api(olga).get(url(make_job(alice))).status_code == 200


def test_what_never_was_does_not_exist(api: Api, alice: User) -> None:
    answer = api(alice).get(f"/api/v1/jobs/{uuid4()}/explain")
    assert_problem(answer, 404, "not_found")


@pytest.mark.parametrize("pk", ["1", "x", "%00"])
def test_what_is_no_id_does_not_exist(api: Api, alice: User, pk: str) -> None:
    answer = api(alice).get(f"/api/v1/jobs/{pk}/explain")
    assert_problem(answer, 404, "not_found")


def test_it_is_for_those_who_are_logged_in(api: Api, alice: User) -> None:
    assert_problem(api().get(url(make_job(alice))), 401, "not_authenticated")


@pytest.mark.parametrize("verb", ["post", "put", "patch", "delete"])
def test_it_can_only_be_read(api: Api, alice: User, verb: str) -> None:
    answer = getattr(api(alice), verb)(url(make_job(alice)))
    assert_problem(answer, 405, "method_not_allowed")


def test_a_parameter_that_it_does_not_know_is_refused(api: Api, alice: User) -> None:
    answer = api(alice).get(url(make_job(alice)), {"verbose": "1"})
    assert_problem(answer, 400, "unknown_parameter")
