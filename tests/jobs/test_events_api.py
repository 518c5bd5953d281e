from typing import Any

import pytest

from jobs import lifecycle
from jobs.models import Job, User
from tests.asserts import assert_problem
from tests.factories import make_job

pytestmark = pytest.mark.django_db


def path(job: Job, query: str = "") -> str:
    return f"/api/v1/jobs/{job.pk}/events{query}"


@pytest.mark.parametrize("slash", ["", "/"])
def test_the_story_is_told_in_its_order(api: Any, alice: User, slash: str) -> None:
    job = make_job(alice, status="succeeded")
    body = api(alice).get(path(job, slash)).json()
    told = [event["event_type"] for event in body["results"]]
    assert told == ["queued", "starting", "running", "exit_seen", "succeeded"]
    assert body["count"] == 5


def test_an_event_says_who_and_what_and_when(api: Any, alice: User) -> None:
    job = make_job(alice)
    (event,) = api(alice).get(path(job)).json()["results"]
    assert event.keys() == {
        *["id", "job_id", "event_type", "payload", "actor", "created_at"]
    }
    assert (event["job_id"], event["actor"]) == (str(job.pk), alice.email)
    assert event["payload"] == {"image": job.image, "gpu_count": 1}
    assert event["created_at"].endswith("Z")


def test_the_last_event_tells_the_reason(api: Any, alice: User) -> None:
    job = make_job(alice, status="failed", reason="cuda_oom")
    last = api(alice).get(path(job)).json()["results"][-1]
    assert last["payload"]["reason"] == "cuda_oom"


def test_events_come_in_pages(api: Any, alice: User) -> None:
    job = make_job(alice)
    for number in range(5):
        lifecycle.note(job, "noticed", by="test", number=number)
    page = api(alice).get(path(job, "?limit=4")).json()
    rest = api(alice).get(page["next"]).json()
    assert [len(page["results"]), len(rest["results"])] == [4, 2]


def test_events_of_another_job_are_not_among_them(api: Any, alice: User) -> None:
    job = make_job(alice)
    make_job(alice, status="cancelled")
    assert api(alice).get(path(job)).json()["count"] == 1


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("?page=0", 404, "not_found"),
        ("?limit=1000", 400, "bad_limit"),
        ("?event_type=queued", 400, "unknown_parameter"),
    ],
)
def test_a_page_that_is_not_there(
    api: Any, alice: User, query: str, status: int, code: str
) -> None:
    assert_problem(api(alice).get(path(make_job(alice), query)), status, code)


@pytest.mark.parametrize("method", ["post", "put", "patch", "delete"])
def test_history_is_only_read(api: Any, alice: User, method: str) -> None:
    answer = getattr(api(alice), method)(path(make_job(alice)), {})
    assert_problem(answer, 405, "method_not_allowed")


def test_a_stranger_reads_no_story(api: Any, alice: User, bob: User) -> None:
    assert_problem(api(bob).get(path(make_job(alice))), 404, "not_found")


def test_an_operator_does(api: Any, alice: User, olga: User) -> None:
    assert api(olga).get(path(make_job(alice))).json()["count"] == 1


def test_the_number_of_queries_does_not_grow(
    api: Any, alice: User, django_assert_num_queries: Any
) -> None:
    job = make_job(alice)
    client = api(alice)
    for number in range(3):
        lifecycle.note(job, "noticed", by="test", number=number)
        with django_assert_num_queries(4):  # my groups, the job, the count, the page
            client.get(path(job))
