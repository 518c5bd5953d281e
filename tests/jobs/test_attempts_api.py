from typing import Any

import pytest

from jobs.models import Job, User
from tests.asserts import assert_problem
from tests.factories import finish, make_attempt, make_job

pytestmark = pytest.mark.django_db


def path(job: Job, query: str = "") -> str:
    return f"/api/v1/jobs/{job.pk}/attempts{query}"


def test_a_queued_job_has_none(api: Any, alice: User) -> None:
    assert api(alice).get(path(make_job(alice))).json()["results"] == []


@pytest.mark.parametrize("slash", ["", "/"])
def test_each_start_is_one(api: Any, alice: User, slash: str) -> None:
    job = make_job(alice)
    finish(make_attempt(job), "node_lost")
    make_attempt(job)
    first, second = api(alice).get(path(job, slash)).json()["results"]
    assert (first["number"], first["reason"], first["phase"]) == (1, "node_lost", "")
    assert (second["number"], second["reason"]) == (2, "")
    assert (second["phase"], second["node"]) == ("running", "gauss")
    assert first["job_id"] == second["job_id"] == str(job.pk)


def test_the_nonce_that_guards_the_container_is_not_shown(
    api: Any, alice: User
) -> None:
    job = make_job(alice, status="running")
    (attempt,) = api(alice).get(path(job)).json()["results"]
    assert not {"nonce", "boot_id"} & attempt.keys()


def test_an_attempt_that_is_to_stop_says_why(api: Any, alice: User) -> None:
    job = make_job(alice, status="running")
    api(alice).post(f"/api/v1/jobs/{job.pk}/cancel")
    (attempt,) = api(alice).get(path(job)).json()["results"]
    assert (attempt["stop_reason"], attempt["ended_at"]) == ("cancelled_by_user", None)


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("?page=9", 404, "not_found"),
        ("?limit=0", 400, "bad_limit"),
        ("?node=gauss", 400, "unknown_parameter"),
    ],
)
def test_a_page_that_is_not_there(
    api: Any, alice: User, query: str, status: int, code: str
) -> None:
    assert_problem(api(alice).get(path(make_job(alice), query)), status, code)


def test_attempts_are_only_read(api: Any, alice: User) -> None:
    answer = api(alice).post(path(make_job(alice)), {})
    assert_problem(answer, 405, "method_not_allowed")


def test_a_stranger_sees_none(api: Any, alice: User, bob: User, olga: User) -> None:
    job = make_job(alice, status="running")
    assert_problem(api(bob).get(path(job)), 404, "not_found")
    assert api(olga).get(path(job)).json()["count"] == 1
