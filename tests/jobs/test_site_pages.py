"""Login, errors, and what all pages have in common."""

import re
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.template.loader import render_to_string
from django.test import Client
from django.utils import timezone

from jobs.models import AuditRecord, Job, User
from tests.factories import PASSWORD, make_job, make_user

pytestmark = pytest.mark.django_db


def page(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def text_of(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200, answer
    return answer.content.decode()


def test_login_and_logout_leave_a_trace(client: Client, alice: User) -> None:
    fields = {"username": "ALICE@example.org", "password": PASSWORD}
    answer = client.post("/login/", {**fields, "next": "/submit/"})
    assert answer.headers["Location"] == "/submit/"
    assert AuditRecord.objects.get(action="user.logged_in").actor == alice.email
    assert client.get("/logout/").status_code == 405
    assert client.post("/logout/").headers["Location"] == "/login/"
    assert client.get("/jobs/").status_code == 302


def test_login_goes_to_no_other_site(client: Client, alice: User) -> None:
    fields = {"username": alice.email, "password": PASSWORD}
    answer = client.post("/login/", {**fields, "next": "https://evil.example/"})
    assert answer.headers["Location"] == "/jobs/"


@pytest.mark.parametrize("standing", ["wrong", "suspended", "unapproved"])
def test_who_may_not_log_in_learns_nothing_more(client: Client, standing: str) -> None:
    user = make_user("eve@example.org")
    if standing == "suspended":
        User.objects.filter(pk=user.pk).update(suspended_at=timezone.now())
    if standing == "unapproved":
        User.objects.filter(pk=user.pk).update(approved_at=None)
    password = "x" if standing == "wrong" else PASSWORD
    answer = client.post("/login/", {"username": user.email, "password": password})
    assert "do not open an account" in answer.content.decode()
    assert AuditRecord.objects.get().action == "user.login_failed"


def test_suspension_ends_the_session(alice: User) -> None:
    client = page(alice)
    User.objects.update(suspended_at=timezone.now())
    assert client.get("/jobs/").status_code == 302


def test_errors_have_pages(client: Client, alice: User) -> None:
    for anyone in (client, page(alice)):
        answer = anyone.get("/nothing/")
        assert answer.status_code == 404
        assert "There is nothing here" in answer.content.decode()
    assert "This is our fault" in render_to_string("500.html")
    assert "may not do this" in render_to_string("403.html")


@pytest.mark.parametrize(
    ("runner", "inventory", "said"),
    [
        ("process", "nvml", ["no isolation"]),
        ("docker", "simulated", ["are simulated"]),
        ("process", "simulated", ["no isolation", "are simulated"]),
        ("docker", "nvml", []),
    ],
)
def test_every_page_says_what_this_site_lacks(
    olga: User, settings: Any, runner: str, inventory: str, said: list[str]
) -> None:
    settings.RUNNER, settings.INVENTORY = runner, inventory
    job = make_job(olga)
    paths = ("/jobs/", f"/jobs/{job.pk}/", "/submit/", "/admin/")
    for path in (*paths, "/admin/jobs/job/"):
        text = text_of(page(olga), path)
        assert [s for s in ("no isolation", "are simulated") if s in text] == said


def test_times_are_in_the_zone_of_the_person(alice: User) -> None:
    User.objects.update(time_zone="Asia/Tokyo")
    job = make_job(alice)
    Job.objects.update(created_at="2026-03-12T14:12:04Z")
    text = text_of(page(alice), f"/jobs/{job.pk}/")
    assert (
        'datetime="2026-03-12T14:12:04Z" title="Thu 12 Mar 2026 23:12:04 JST"' in text
    )
    assert "Times in Asia/Tokyo" in text
    User.objects.update(time_zone="Not/AZone")
    assert "Times in UTC" in text_of(page(alice), "/jobs/")


def test_a_page_may_load_nothing_from_elsewhere(alice: User) -> None:
    answer = page(alice).get("/jobs/")
    assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
    assert "unsafe" not in answer.headers["Content-Security-Policy"]
    assert not re.search(r'(?:src|href)="(?:https?:)?//', answer.content.decode())


def test_passwords_can_not_be_tried_out_at_the_login_page(alice: User) -> None:
    def log_in(password: str) -> str:
        sent = {"username": alice.email, "password": password}
        answer = Client().post("/login/", sent)
        return answer.content.decode() if answer.status_code == 200 else "in"

    for _ in range(10):
        assert "do not open an account" in log_in("guess")
    assert "Too many tries. Wait a minute" in log_in("guess")
    assert "Too many tries. Wait a minute" in log_in(PASSWORD)
    # What was refused unseen leaves no record: those can not be deleted.
    assert AuditRecord.objects.filter(action="user.login_failed").count() == 10
    with time_machine.travel(timezone.now() + timedelta(seconds=61)):
        assert log_in(PASSWORD) == "in"
