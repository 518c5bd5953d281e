"""A database that is away is 503 with a word when to try again, never 500."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import (
    DatabaseError,
    IntegrityError,
    InterfaceError,
    InternalError,
    OperationalError,
    ProgrammingError,
    connection,
)
from django.test import Client
from django.urls import reverse

from jobs.models import Job, User
from jobs.outage import is_outage
from jobs.signals import job_queued
from tests.factories import make_job

pytestmark = pytest.mark.django_db


class ReadOnly(Exception):
    sqlstate = "25006"


class TooManyColumns(Exception):
    sqlstate = "54011"


class NoSuchTable(Exception):
    sqlite_errorcode = sqlite3.SQLITE_ERROR


class Malformed(Exception):
    sqlite_errorcode = sqlite3.SQLITE_CORRUPT_INDEX


class ReadError(Exception):
    sqlite_errorcode = sqlite3.SQLITE_IOERR_READ


def caused(error: Exception, by: Exception) -> Exception:
    error.__cause__ = by
    return error


@pytest.mark.parametrize(
    ("error", "is_one"),
    [
        (OperationalError("server closed the connection unexpectedly"), True),
        (OperationalError("database is locked"), True),
        (OperationalError("database or disk is full"), True),
        (OperationalError("attempt to write a readonly database"), True),
        (InterfaceError("connection already closed"), True),
        (caused(InternalError("cannot execute INSERT"), ReadOnly()), True),
        (caused(OperationalError("disk I/O error"), ReadError()), True),
        (caused(DatabaseError("is malformed"), Malformed()), True),
        (caused(OperationalError("no such table"), NoSuchTable()), False),
        (caused(OperationalError("too many columns"), TooManyColumns()), False),
        (ProgrammingError('relation "jobs_job" does not exist'), False),
        (IntegrityError("duplicate key"), False),
        (DatabaseError("something else"), False),
        (caused(ValueError("not of the database"), ReadOnly()), False),
        (None, False),
    ],
    ids=str,
)
def test_what_is_an_outage(error: Exception | None, is_one: bool) -> None:
    assert is_outage(error) is is_one


@contextmanager
def away(error: Exception | None = None) -> Iterator[None]:
    def refuse(*_: Any) -> None:
        raise error or OperationalError("connection to db.internal refused")

    with connection.execute_wrapper(refuse):
        yield


API = [
    ("get", "/api/v1/jobs"),
    ("post", "/api/v1/jobs"),
    ("get", "/api/v1/gpus"),
    ("get", "/api/v1/nodes"),
    ("get", "/api/v1/health"),
    ("get", "/api/v1/jobs/00000000-0000-0000-0000-000000000000"),
    ("post", "/api/v1/jobs/00000000-0000-0000-0000-000000000000/cancel"),
    ("post", "/api/v1/auth/login"),
]


@pytest.mark.parametrize(("verb", "path"), API)
def test_the_api_answers_a_problem(alice: User, api: Any, verb: str, path: str) -> None:
    body = {"image": "busybox", "email": "a@example.org", "password": "x" * 12}
    client = api() if "auth" in path else api(alice)
    with away():
        answer = getattr(client, verb)(path, None if verb == "get" else body)
    if (answer.status_code, verb) == (400, "post"):
        return  # refused before anything was asked of the database
    assert answer.status_code == 503
    assert answer["Content-Type"] == "application/problem+json"
    assert answer["Retry-After"] == "5"
    assert answer.json()["code"] == "no_database"
    assert "db.internal" not in answer.content.decode()


@pytest.mark.parametrize("path", ["/", "/jobs/", "/submit/", "/admin/", "/login/"])
def test_so_do_pages_in_words(
    alice: User, client: Client, settings: Any, path: str
) -> None:
    settings.DEBUG = False
    client.force_login(alice)
    client.raise_request_exception = False
    with away():
        answer = client.get(path)
    assert answer.status_code == 503
    assert answer["Retry-After"] == "5"
    assert "Jobs go on running" in answer.content.decode()


def test_a_server_that_only_follows_accepts_nothing_and_says_so(
    alice: User, api: Any
) -> None:
    read_only = caused(InternalError("cannot execute INSERT"), ReadOnly())
    with away(read_only):
        assert api(alice).get("/api/v1/jobs").status_code == 503


def test_a_query_that_is_wrong_stays_our_fault(alice: User, client: Client) -> None:
    job = make_job(alice)
    client.force_login(alice)
    client.raise_request_exception = False
    url = reverse("job-detail", args=[job.pk])
    with away(ProgrammingError("column does not exist")):
        assert client.get(url).status_code == 500


@pytest.mark.django_db(transaction=True)
def test_a_wake_that_fails_after_the_commit_fails_no_submission(
    alice: User, api: Any
) -> None:
    """It was committed: an error would have it sent again."""

    def broken(**_: Any) -> None:
        raise OperationalError("terminating connection")

    job_queued.connect(broken, dispatch_uid="broken")
    try:
        answer = api(alice).post("/api/v1/jobs", {"image": "busybox"})
    finally:
        job_queued.disconnect(dispatch_uid="broken")
    assert answer.status_code == 201
    assert Job.objects.filter(pk=answer.json()["id"]).exists()
