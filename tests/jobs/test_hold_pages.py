"""What the pages show and change of a job that waits: hold, top, array, other jobs."""

import re
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from jobs import lifecycle
from jobs.models import Job, User
from jobs.spec import Parent
from jobs.status import Condition, Status
from tests.factories import make_attempt, make_job

pytestmark = pytest.mark.django_db

VERBS = ["hold", "release", "top"]


def page(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def shown(user: User, job: Job) -> str:
    answer = page(user).get(f"/jobs/{job.pk}/")
    assert answer.status_code == 200
    return answer.content.decode()


def names(client: Client, query: str) -> list[str]:
    return [job.name for job in client.get(f"/jobs/{query}").context["page"]]


# --- Buttons -------------------------------------------------------------------------


def test_hold_and_release_change_the_job_and_lead_back_to_it(alice: User) -> None:
    job = make_job(alice)
    client = page(alice)
    for verb, button, is_held in [
        ("hold", "Release", True),
        ("release", "Hold", False),
    ]:
        answer = client.post(f"/jobs/{job.pk}/{verb}/")
        assert (answer.status_code, answer["Location"]) == (303, f"/jobs/{job.pk}/")
        job.refresh_from_db()
        assert job.is_held is is_held
        text = shown(alice, job)
        assert f">{button}</button>" in text
    assert "<b>Released</b>" in text
    assert "<b>Held</b>" in text


def test_a_held_job_says_so_where_it_tells_why_it_waits(alice: User) -> None:
    text = shown(alice, make_job(alice, hold=True))
    assert '<span class="reason ">held</span>' in text
    assert "Its owner holds it." in text
    assert re.search(r"[ :,] hold[,<]", text)
    assert "hold True" not in text


def test_an_operators_hold_is_no_button_of_the_owners(alice: User, olga: User) -> None:
    job = lifecycle.hold(make_job(alice), by=olga)
    assert "Held by an operator" in shown(alice, job)
    assert ">Release</button>" not in shown(alice, job)
    assert ">Release</button>" in shown(olga, job)
    answer = page(alice).post(f"/jobs/{job.pk}/release/", follow=True)
    assert "ask an operator" in answer.content.decode()
    job.refresh_from_db()
    assert job.is_held


def test_the_top_is_an_operators(alice: User, olga: User) -> None:
    job = make_job(alice)
    assert "To the top" not in shown(alice, job)
    assert "To the top" in shown(olga, job)
    answer = page(alice).post(f"/jobs/{job.pk}/top/", follow=True)
    assert "Only an operator" in answer.content.decode()
    job.refresh_from_db()
    assert job.topped_at is None
    answer = page(olga).post(f"/jobs/{job.pk}/top/", follow=True)
    assert "first in the queue" in answer.content.decode()
    assert Job.objects.get().topped_at is not None
    assert "Moved to the top of the queue" in shown(alice, job)


@pytest.mark.parametrize("status", [s for s in Status if s != Status.QUEUED])
def test_a_job_that_does_not_wait_has_none_of_them(olga: User, status: Status) -> None:
    job = make_job(olga, status=status)
    text = shown(olga, job)
    assert not re.search(r"/(hold|release|top)/", text)
    for verb in VERBS:
        answer = page(olga).post(f"/jobs/{job.pk}/{verb}/", follow=True)
        assert f"it is {status}" in answer.content.decode()


@pytest.mark.parametrize("verb", VERBS)
def test_a_strangers_job_does_not_exist(alice: User, bob: User, verb: str) -> None:
    job = make_job(alice)
    assert page(bob).post(f"/jobs/{job.pk}/{verb}/").status_code == 404
    assert job.events.count() == 1


@pytest.mark.parametrize("verb", VERBS)
def test_it_takes_a_login_a_post_and_the_token(olga: User, verb: str) -> None:
    job = make_job(olga)
    path = f"/jobs/{job.pk}/{verb}/"
    assert Client().post(path)["Location"].startswith("/login/?next=")
    assert page(olga).get(path).status_code == 405
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(olga)
    assert strict.post(path).status_code == 403
    assert job.events.count() == 1


# --- What is shown -------------------------------------------------------------------


def test_where_and_when_are_among_the_facts(alice: User) -> None:
    begin_at = timezone.now() + timedelta(days=2)
    done = make_job(alice, status=Status.FAILED)
    waits_for = make_job(alice)
    job = make_job(
        alice,
        group="vision",
        node_name="gauss",
        node_labels={"zone": "lab"},
        begin_at=begin_at,
        depends_on=[Parent(done.pk, Condition.AFTER_ANY), Parent(waits_for.pk)],
    )
    text = shown(alice, job)
    assert "<dt>Group</dt><dd>vision</dd>" in text
    assert "node gauss <code>zone=lab</code>" in text
    assert f'datetime="{begin_at:%Y-%m-%dT%H:%M:%SZ}"' in text
    assert f'<a href="/jobs/{done.pk}/">' in text
    assert "after_any, failed" in text
    assert f'<a href="/jobs/{waits_for.pk}/">' in text


def test_a_job_anywhere_and_now_shows_nothing_of_it(alice: User) -> None:
    text = shown(alice, make_job(alice))
    for word in ("Group", "Only on", "Array", "Not before", "Held", "After"):
        assert f"<dt>{word}</dt>" not in text


def test_hostile_values_are_shown_as_text(alice: User) -> None:
    bad = "<script>alert(1)</script>"
    text = shown(
        alice, make_job(alice, group=bad, node_name=bad, node_labels={bad: bad})
    )
    assert "<script>alert" not in text
    assert text.count("&lt;script&gt;alert") >= 4


# --- Arrays --------------------------------------------------------------------------


def test_a_task_tells_its_index_and_leads_to_the_others(alice: User) -> None:
    first = make_job(alice, array="4-6", name="sweep")
    make_job(alice, name="other")
    assert "task <b>4</b> of array" in shown(alice, first)
    link = f"?array={first.pk}"
    assert f'href="/jobs/{link}"' in shown(alice, first)
    assert names(page(alice), link) == ["sweep"] * 3
    text = page(alice).get(f"/jobs/{link}").content.decode()
    assert f"tasks of array <code>{str(first.pk)[:8]}</code>" in text
    assert f'name="array" value="{first.pk}"' in text
    assert '<span class="muted">task 6</span>' in text
    counts = [tab["count"] for tab in page(alice).get(f"/jobs/{link}").context["tabs"]]
    assert counts == [3, 3, 0, 0]


def test_a_strangers_array_has_no_tasks(alice: User, bob: User) -> None:
    first = make_job(alice, array="0-1")
    assert names(page(bob), f"?array={first.pk}") == []


@pytest.mark.parametrize("said", ["x", "%00", "9" * 3000, "\u2713"])
def test_an_array_that_is_no_id_is_not_understood(alice: User, said: str) -> None:
    make_job(alice)
    text = page(alice).get(f"/jobs/?array={said}").content.decode()
    assert "not understood" in text


def test_a_cancel_of_a_task_offers_all_of_them(alice: User) -> None:
    first = make_job(alice, array="0-2")
    make_attempt(first)
    client = page(alice)
    text = client.get(f"/jobs/{first.pk}/cancel/").content.decode()
    assert "Cancel all tasks of the array" in text
    answer = client.post(f"/jobs/{first.pk}/cancel/", {"array": "true"}, follow=True)
    assert "All tasks are cancelled" in answer.content.decode()
    statuses = Job.objects.order_by("array_index").values_list("status", flat=True)
    assert list(statuses) == ["running", "cancelled", "cancelled"]
    answer = client.post(f"/jobs/{first.pk}/cancel/", {"array": "true"})
    assert answer.status_code == 302


def test_a_cancel_of_one_task_leaves_the_others(alice: User) -> None:
    first = make_job(alice, array="0-2")
    page(alice).post(f"/jobs/{first.pk}/cancel/")
    assert Job.objects.filter(status=Status.QUEUED).count() == 2


def test_a_job_alone_is_offered_no_array(alice: User) -> None:
    job = make_job(alice)
    client = page(alice)
    text = client.get(f"/jobs/{job.pk}/cancel/").content.decode()
    assert "array" not in text
    client.post(f"/jobs/{job.pk}/cancel/", {"array": "true"})
    job.refresh_from_db()
    assert job.status == Status.CANCELLED


def test_an_array_that_has_ended_says_so(alice: User) -> None:
    first = make_job(alice, array="0-1")
    lifecycle.each_task(lifecycle.request_cancel, first, by=alice)
    answer = page(alice).post(
        f"/jobs/{first.pk}/cancel/", {"array": "true"}, follow=True
    )
    assert "Every task of this array has already ended" in answer.content.decode()
