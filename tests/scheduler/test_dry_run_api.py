from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
import time_machine
from django.utils import timezone
from rest_framework.test import APIClient

from jobs.models import AuditRecord, Job, JobEvent, Quota, User
from scheduler.models import GPU, PassLease
from tests.asserts import assert_problem
from tests.factories import IMAGE, make_job
from tests.scheduler.factories import GB, asked, make_gpu

Api = Callable[..., APIClient]
URL = "/api/v1/jobs"
DRY = f"{URL}?dry_run=true"
SPEC = {"image": IMAGE, "gpu_count": 1, "min_vram_mb": 10 * GB}


def spec(**fields: Any) -> dict[str, Any]:
    return {**SPEC, **fields}


def test_now(api: Api, alice: User, gpu: GPU) -> None:
    answer = api(alice).post(DRY, spec())
    assert answer.status_code == 200
    body = answer.json()
    assert (body["outcome"], body["eta_certainty"], body["reason"]) == (
        "now",
        "now",
        "",
    )
    assert datetime.fromisoformat(body["eta"]) <= timezone.now()
    assert [line["blocked_by"] for line in body["gpus"]] == [""]


def test_later_with_the_reason_and_the_numbers(api: Api, alice: User, gpu: GPU) -> None:
    GPU.objects.update(foreign_mb=20 * GB)
    body = api(alice).post(DRY, spec()).json()
    assert (body["outcome"], body["reason"]) == ("later", "foreign_use")
    assert body["gpus"][0]["missing_mb"] == 6 * GB
    assert "20,480 MiB are used by processes outside" in body["text"]


def test_later_since_others_are_ahead_with_the_place_and_the_time(
    api: Api, alice: User, bob: User, gpu: GPU
) -> None:
    make_job(bob, timeout_s=530, grace_s=10)
    body = api(alice).post(DRY, spec()).json()
    assert (body["outcome"], body["place_in_line"]) == ("later", 2)
    assert body["eta_certainty"] == "latest"
    in_s = (datetime.fromisoformat(body["eta"]) - timezone.now()).total_seconds()
    assert in_s == pytest.approx(600, abs=60)


def test_now_since_those_that_wait_have_a_lower_priority(
    api: Api, alice: User, bob: User, gpu: GPU
) -> None:
    make_job(bob, priority=10)
    assert api(alice).post(DRY, spec()).json()["outcome"] == "now"


def test_behind_ones_own_jobs_that_ask_for_the_same(
    api: Api, alice: User, gpu: GPU
) -> None:
    for _ in range(2):
        make_job(alice, min_vram_mb=10 * GB)
    body = api(alice).post(DRY, spec()).json()
    assert (body["place_in_line"], body["reason"]) == (3, "priority")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"hold": True}, "held"),
        ({"begin_at": "2027-03-01T00:00:00Z"}, "begin_time"),
    ],
)
def test_later_since_it_would_not_be_in_line(
    api: Api, alice: User, gpu: GPU, fields: dict[str, Any], reason: str
) -> None:
    with time_machine.travel("2027-01-01T00:00:00Z", tick=False):
        body = api(alice).post(DRY, spec(**fields)).json()
    assert (body["outcome"], body["reason"]) == ("later", reason)
    assert (body["place_in_line"], body["eta"]) == (None, None)


def test_later_since_it_depends_on_another(api: Api, alice: User, gpu: GPU) -> None:
    parent = make_job(alice)
    body = api(alice).post(DRY, spec(depends_on=[str(parent.pk)])).json()
    assert (body["outcome"], body["reason"]) == ("later", "dependency")


def test_an_exclusive_job_takes_all_of_the_smallest_gpu_of_ones_limit(
    api: Api, alice: User, gpu: GPU
) -> None:
    Quota.objects.create(user=alice, vram_mb=10 * GB)
    body = api(alice).post(DRY, spec(min_vram_mb=2 * GB)).json()
    assert (body["outcome"], body["text"]) == (
        "never",
        "It takes 24,576 MiB of VRAM; you may have 10,240.",
    )
    shared = spec(min_vram_mb=2 * GB, share=True)
    assert api(alice).post(DRY, shared).json()["outcome"] == "now"


def test_the_vram_of_all_its_gpus_counts_together(
    api: Api, alice: User, gpu: GPU
) -> None:
    make_gpu(gpu.node)
    Quota.objects.create(user=alice, vram_mb=10 * GB)
    two = spec(gpu_count=2, min_vram_mb=6 * GB, share=True)
    assert "It takes 12,288 MiB" in api(alice).post(DRY, two).json()["text"]


@pytest.mark.parametrize("fields", [{}, {"array": "0-9"}])
def test_who_may_queue_no_more_is_told_so_as_at_a_submission(
    api: Api, alice: User, gpu: GPU, fields: dict[str, Any]
) -> None:
    Quota.objects.create(user=alice, queued_jobs=9 if fields else 0)
    for url in (DRY, URL):
        assert_problem(api(alice).post(url, spec(**fields)), 422, "over_quota")


def test_never_for_who_may_not_have_as_many(api: Api, alice: User, gpu: GPU) -> None:
    Quota.objects.create(user=alice, gpus=0)
    body = api(alice).post(DRY, spec()).json()
    assert (body["outcome"], body["text"]) == (
        "never",
        "It asks for 1 GPU; you may have 0.",
    )
    assert_problem(api(alice).post(URL, spec()), 422, "never_fits")


def test_never_with_the_numbers(api: Api, alice: User, gpu: GPU) -> None:
    answer = api(alice).post(DRY, spec(min_vram_mb=99 * GB))
    assert answer.status_code == 200
    body = answer.json()
    assert (body["outcome"], body["reason"]) == ("never", "never_fits")
    assert "101,376 MiB" in body["text"]
    assert "24,576 MiB usable" in body["text"]


def test_it_writes_nothing(api: Api, alice: User, gpu: GPU) -> None:
    PassLease.objects.all().delete()
    for vram_mb in (10 * GB, 99 * GB):
        api(alice).post(DRY, spec(min_vram_mb=vram_mb))
    assert not Job.objects.exists()
    assert not JobEvent.objects.exists()
    assert not AuditRecord.objects.exists()
    assert not PassLease.objects.exists()
    assert asked("schedule") == []


def test_false_submits(api: Api, alice: User, gpu: GPU) -> None:
    assert api(alice).post(f"{URL}?dry_run=false", spec()).status_code == 201
    assert Job.objects.count() == 1


@pytest.mark.parametrize("wish", ["1", "True", "yes", ""])
def test_anything_else_is_refused_rather_than_run(
    api: Api, alice: User, gpu: GPU, wish: str
) -> None:
    answer = api(alice).post(f"{URL}?dry_run={wish}", spec())
    assert_problem(answer, 400, "bad_dry_run")
    assert not Job.objects.exists()


def test_said_twice_it_is_refused_rather_than_run(
    api: Api, alice: User, gpu: GPU
) -> None:
    answer = api(alice).post(f"{DRY}&dry_run=false", spec())
    assert_problem(answer, 400, "bad_dry_run")
    assert not Job.objects.exists()


@pytest.mark.parametrize("query", ["dryrun=true", "dry_run=true&node=gauss"])
def test_a_parameter_that_it_does_not_know_is_refused(
    api: Api, alice: User, gpu: GPU, query: str
) -> None:
    assert_problem(api(alice).post(f"{URL}?{query}", spec()), 400, "unknown_parameter")
    assert not Job.objects.exists()


def test_a_malformed_spec_is_told_as_at_a_submission(
    api: Api, alice: User, gpu: GPU
) -> None:
    answer = api(alice).post(DRY, spec(gpu_count=-1))
    assert_problem(answer, 400, "min_value", "/gpu_count")


def test_it_is_for_those_who_are_logged_in(api: Api, gpu: GPU) -> None:
    assert_problem(api().post(DRY, spec()), 401, "not_authenticated")


@pytest.mark.parametrize("url", [URL, DRY])
def test_a_model_that_no_policy_names_is_refused(
    api: Api, alice: User, gpu: GPU, url: str
) -> None:
    answer = api(alice).post(url, {"model_name": "llama", "params": {}})
    assert_problem(answer, 422, "unknown_model")


def test_what_could_never_be_placed_is_refused_at_submission_with_the_numbers(
    api: Api, alice: User, gpu: GPU
) -> None:
    answer = api(alice).post(URL, spec(min_vram_mb=99 * GB))
    problem = assert_problem(answer, 422, "never_fits")
    assert "101,376 MiB" in problem["detail"]
    assert "24,576 MiB usable" in problem["detail"]
    assert not Job.objects.exists()


def test_what_is_only_too_much_today_is_queued(api: Api, alice: User, gpu: GPU) -> None:
    GPU.objects.update(foreign_mb=24 * GB, is_present=False)
    assert api(alice).post(URL, spec()).status_code == 201
