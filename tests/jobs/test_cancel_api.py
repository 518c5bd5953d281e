from typing import Any

import pytest
from django.test import Client

from jobs.models import AuditRecord, Job, User
from jobs.status import Status
from tests.asserts import assert_problem
from tests.factories import make_job

pytestmark = pytest.mark.django_db


def path(job: Job) -> str:
    return f"/api/v1/jobs/{job.pk}/cancel"


@pytest.mark.parametrize("slash", ["", "/"])
def test_a_queued_job_is_cancelled_at_once(api: Any, alice: User, slash: str) -> None:
    job = make_job(alice)
    answer = api(alice).post(path(job) + slash)
    assert answer.status_code == 200
    body = answer.json()
    assert (body["status"], body["reason"]) == ("cancelled", "cancelled_by_user")
    assert body["finished_at"] is not None
    assert job.events.latest("id").event_type == "cancelled"


@pytest.mark.parametrize("status", ["starting", "running"])
def test_a_live_job_is_only_asked_to_stop(api: Any, alice: User, status: str) -> None:
    job = make_job(alice, status=status)
    body = api(alice).post(path(job)).json()
    assert (body["status"], body["cancel_requested"]) == (status, True)
    assert job.attempts.get().stop_reason == "cancelled_by_user"
    assert job.events.latest("id").event_type == "cancel_requested"
    assert AuditRecord.objects.latest("id").action == "job.cancel_requested"


def test_asking_again_is_fine_and_leaves_no_second_event(api: Any, alice: User) -> None:
    job = make_job(alice, status="running")
    first, again = api(alice).post(path(job)), api(alice).post(path(job))
    assert (first.status_code, again.status_code) == (200, 200)
    assert first.json() == again.json()
    assert job.events.filter(event_type="cancel_requested").count() == 1


@pytest.mark.parametrize("status", ["succeeded", "failed", "cancelled"])
def test_an_ended_job_is_a_conflict_that_says_what_can_be_done(
    api: Any, alice: User, status: str
) -> None:
    job = make_job(alice, status=status)
    body = assert_problem(api(alice).post(path(job)), 409, "conflict")
    assert body["job_status"] == status
    assert body["allowed_actions"] == ["delete"]
    assert status in body["detail"]
    job.refresh_from_db()
    assert (job.status, job.cancel_requested) == (status, status == "cancelled")


def test_an_operator_cancels_in_his_own_name(api: Any, alice: User, olga: User) -> None:
    job = make_job(alice)
    body = api(olga).post(path(job)).json()
    assert body["reason"] == "cancelled_by_operator"
    assert job.events.latest("id").actor == olga.email


def test_a_stranger_cancels_nothing(api: Any, alice: User, bob: User) -> None:
    job = make_job(alice)
    assert_problem(api(bob).post(path(job)), 404, "not_found")
    assert_problem(api().post(path(job)), 401, "not_authenticated")
    job.refresh_from_db()
    assert job.status == "queued"


@pytest.mark.parametrize("method", ["get", "put", "delete"])
def test_looking_at_it_cancels_nothing(api: Any, alice: User, method: str) -> None:
    job = make_job(alice)
    answer = getattr(api(alice), method)(path(job))
    assert_problem(answer, 405, "method_not_allowed")
    job.refresh_from_db()
    assert job.status == "queued"


def test_a_session_needs_the_csrf_token(api: Any, alice: User) -> None:
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(alice)
    job = make_job(alice)
    assert_problem(browser.post(path(job)), 403, "permission_denied")
    job.refresh_from_db()
    assert job.status == "queued"


def test_a_cancel_with_a_body_is_refused_and_cancels_nothing(
    api: Any, alice: User
) -> None:
    job = make_job(alice)
    answer = api(alice).post(f"/api/v1/jobs/{job.pk}/cancel", {"reason": "why not"})
    assert_problem(answer, 400, "unknown_field", "/reason")
    job.refresh_from_db()
    assert job.status == Status.QUEUED
