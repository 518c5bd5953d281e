"""POST /jobs/{id}/hold, /release and /top, of one job and of an array."""

from typing import Any

import pytest
from django.test import Client

from jobs import lifecycle
from jobs.models import AuditRecord, Job, User
from tests.asserts import assert_problem
from tests.factories import make_attempt, make_job

pytestmark = pytest.mark.django_db

VERBS = ["hold", "release", "top"]


def path(job: Job, verb: str = "hold") -> str:
    return f"/api/v1/jobs/{job.pk}/{verb}"


def held(job: Job) -> bool:
    return Job.objects.get(pk=job.pk).is_held


@pytest.mark.parametrize("slash", ["", "/"])
def test_a_queued_job_is_held_and_released(api: Any, alice: User, slash: str) -> None:
    job = make_job(alice)
    answer = api(alice).post(path(job) + slash)
    assert answer.status_code == 200
    body = answer.json()
    assert (body["status"], body["is_held"], body["wait_reason"]) == (
        "queued",
        True,
        "held",
    )
    assert body["held_at"].endswith("Z")
    body = api(alice).post(path(job, "release") + slash).json()
    assert (body["is_held"], body["held_at"]) == (False, None)
    assert body["wait_reason"] == "priority"
    events = [event.event_type for event in job.events.all()]
    assert events == ["queued", "held", "released"]
    actions = AuditRecord.objects.filter(target=job.pk).values_list("action", flat=True)
    assert list(actions) == ["job.queued", "job.held", "job.released"]


@pytest.mark.parametrize("verb", ["hold", "release"])
def test_asking_again_is_fine_and_leaves_no_second_event(
    api: Any, alice: User, verb: str
) -> None:
    job = make_job(alice, hold=verb == "release")
    first, again = (api(alice).post(path(job, verb)) for _ in range(2))
    assert (first.status_code, again.status_code) == (200, 200)
    assert first.json() == again.json()
    assert job.events.count() == 2


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("status", ["starting", "running", "succeeded", "cancelled"])
def test_a_job_that_is_not_queued_is_a_conflict(
    api: Any, olga: User, status: str, verb: str
) -> None:
    job = make_job(olga, status=status)
    body = assert_problem(api(olga).post(path(job, verb)), 409, "conflict")
    assert body["job_status"] == status
    assert f"it is {status}" in body["detail"]
    assert not held(job)


def test_an_operators_hold_is_403_for_the_owner(
    api: Any, alice: User, olga: User
) -> None:
    job = make_job(alice)
    api(olga).post(path(job))
    answer = api(alice).post(path(job, "release"))
    body = assert_problem(answer, 403, "operators_only")
    assert "ask an operator" in body["detail"]
    assert held(job)
    assert api(olga).post(path(job, "release")).status_code == 200


def test_an_operator_moves_a_job_to_the_top(api: Any, alice: User, olga: User) -> None:
    job = make_job(alice)
    assert api(olga).post(path(job, "top")).status_code == 200
    event = job.events.latest("id")
    assert (event.event_type, event.actor) == ("moved_to_top", olga.email)
    job.refresh_from_db()
    assert job.topped_at is not None


def test_the_top_is_403_for_the_owner(api: Any, alice: User) -> None:
    job = make_job(alice)
    assert_problem(api(alice).post(path(job, "top")), 403, "operators_only")
    job.refresh_from_db()
    assert job.topped_at is None


@pytest.mark.parametrize("verb", VERBS)
def test_a_stranger_changes_nothing(
    api: Any, alice: User, bob: User, verb: str
) -> None:
    job = make_job(alice, hold=verb == "release")
    assert_problem(api(bob).post(path(job, verb)), 404, "not_found")
    assert_problem(api().post(path(job, verb)), 401, "not_authenticated")
    assert job.events.count() == 1


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("method", ["get", "put", "patch", "delete"])
def test_another_method_is_405(api: Any, olga: User, method: str, verb: str) -> None:
    job = make_job(olga)
    answer = getattr(api(olga), method)(path(job, verb))
    assert_problem(answer, 405, "method_not_allowed")
    assert job.events.count() == 1


@pytest.mark.parametrize("verb", VERBS)
def test_a_body_is_refused(api: Any, olga: User, verb: str) -> None:
    job = make_job(olga)
    answer = api(olga).post(path(job, verb), {"until": "noon"})
    assert_problem(answer, 400, "unknown_field", "/until")
    assert job.events.count() == 1


@pytest.mark.parametrize("verb", VERBS)
def test_a_session_needs_the_csrf_token(olga: User, verb: str) -> None:
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(olga)
    job = make_job(olga)
    assert_problem(browser.post(path(job, verb)), 403, "permission_denied")
    assert job.events.count() == 1


# --- ?array=true ---------------------------------------------------------------------


def tasks(first: Job) -> list[Job]:
    return list(Job.objects.filter(array_id=first.array_id).order_by("array_index"))


def test_without_the_parameter_it_is_of_one_task(api: Any, alice: User) -> None:
    first = make_job(alice, array="0-2")
    for query in ("", "?array=false"):
        api(alice).post(path(first) + query)
    assert [held(task) for task in tasks(first)] == [True, False, False]
    api(alice).post(path(first, "cancel"))
    assert [task.status for task in tasks(first)] == ["cancelled", "queued", "queued"]


def test_with_it_it_is_of_every_task_whichever_is_named(api: Any, alice: User) -> None:
    first = make_job(alice, array="0-2")
    last = tasks(first)[2]
    body = api(alice).post(path(last) + "?array=true").json()
    assert (body["id"], body["is_held"]) == (str(last.pk), True)
    assert all(map(held, tasks(first)))
    api(alice).post(path(last, "release") + "?array=true")
    assert not any(map(held, tasks(first)))
    body = api(alice).post(path(last, "cancel") + "?array=true").json()
    assert (body["id"], body["status"]) == (str(last.pk), "cancelled")
    assert {task.status for task in tasks(first)} == {"cancelled"}


def test_tasks_that_run_are_asked_to_stop_and_ended_ones_are_left(
    api: Any, alice: User
) -> None:
    first = make_job(alice, array="0-2")
    ended, running, _ = tasks(first)
    lifecycle.request_cancel(ended, by=alice)
    make_attempt(running)
    answer = api(alice).post(path(ended, "cancel") + "?array=true")
    assert answer.status_code == 200
    assert [task.status for task in tasks(first)] == [
        *["cancelled", "running", "cancelled"],
    ]
    assert tasks(first)[1].cancel_requested
    assert ended.events.filter(event_type="cancelled").count() == 1


@pytest.mark.parametrize("verb", ["cancel", "hold", "release"])
def test_where_nothing_is_left_to_do_it_is_a_conflict(
    api: Any, alice: User, verb: str
) -> None:
    first = make_job(alice, array="0-1")
    api(alice).post(path(first, "cancel") + "?array=true")
    answer = api(alice).post(path(first, verb) + "?array=true")
    body = assert_problem(answer, 409, "conflict")
    assert "Every task of this array has already ended" in body["detail"]


@pytest.mark.parametrize("verb", ["cancel", "hold", "release"])
def test_a_job_that_is_no_task_has_no_array(api: Any, alice: User, verb: str) -> None:
    job = make_job(alice)
    answer = api(alice).post(path(job, verb) + "?array=true")
    assert_problem(answer, 400, "no_task", "/array")
    assert job.events.count() == 1


@pytest.mark.parametrize("said", ["", "True", "1", "yes", "%00", "x" * 5000, "\u2713"])
def test_the_parameter_is_true_or_false(api: Any, alice: User, said: str) -> None:
    first = make_job(alice, array="0-1")
    answer = api(alice).post(f"{path(first, 'cancel')}?array={said}")
    assert_problem(answer, 400, "bad_array", "/array")
    assert {task.status for task in tasks(first)} == {"queued"}


@pytest.mark.parametrize(
    ("verb", "query"),
    [("cancel", "aray=true"), ("hold", "all=true"), ("top", "array=true")],
)
def test_an_unknown_parameter_changes_nothing(
    api: Any, olga: User, verb: str, query: str
) -> None:
    first = make_job(olga, array="0-1")
    answer = api(olga).post(f"{path(first, verb)}?{query}")
    assert_problem(answer, 400, "unknown_parameter")
    assert first.events.count() == 1


def test_a_strangers_array_does_not_exist(api: Any, alice: User, bob: User) -> None:
    first = make_job(alice, array="0-1")
    answer = api(bob).post(path(first, "cancel") + "?array=true")
    assert_problem(answer, 404, "not_found")
    assert {task.status for task in tasks(first)} == {"queued"}
