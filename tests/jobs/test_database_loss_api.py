"""A database that really refuses, really hangs, or is full: what the client is told."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.contrib.sessions.backends.base import UpdateError
from django.contrib.sessions.exceptions import SessionInterrupted
from django.db import OperationalError, connection
from django.test import Client, RequestFactory

from jobs.api import problems
from jobs.models import Job, User
from tests.asserts import assert_problem

# Too long to find room in what the database has already.
SPEC = {"image": "busybox:1", "command": "true #" + "x" * 20_000}
NO_ROOM = """
    CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql
        AS $$ BEGIN RAISE EXCEPTION USING ERRCODE = 'disk_full'; END $$;
    CREATE TRIGGER no_room BEFORE INSERT ON jobs_job EXECUTE FUNCTION no_room();
"""
PASSWORD = "correct-horse-battery"

pytestmark = pytest.mark.django_db(transaction=True)


@contextmanager
def only_read() -> Iterator[None]:
    """As a server that follows another one, or a file that may not be written."""
    on, off = {
        "postgresql": (
            "SET default_transaction_read_only = on",
            "SET default_transaction_read_only = off",
        ),
        "sqlite": ("PRAGMA query_only = on", "PRAGMA query_only = off"),
    }[connection.vendor]
    with _set(on, off):
        yield


@contextmanager
def no_room() -> Iterator[None]:
    """The disk is full, or PostgreSQL says so."""
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("VACUUM")  # free pages would be used first
            cursor.execute("PRAGMA page_count")
            [pages] = cursor.fetchone()
        limit = "PRAGMA max_page_count = {}"
        with _set(limit.format(pages), limit.format(2**31)):
            yield
    else:
        with _set(NO_ROOM, "DROP FUNCTION no_room CASCADE"):
            yield


@contextmanager
def hard_to_write() -> Iterator[None]:
    """Somebody else holds the lock that a writer needs, for longer than we wait."""
    if connection.vendor == "postgresql":
        with _other_postgres() as other, other.transaction():
            other.execute("LOCK TABLE jobs_job IN ACCESS EXCLUSIVE MODE")
            with _set("SET statement_timeout = 200", "RESET statement_timeout"):
                yield
        return
    name = connection.settings_dict["NAME"]
    with closing(sqlite3.connect(name, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with _set("PRAGMA busy_timeout = 200", "PRAGMA busy_timeout = 20000"):
            yield
        other.execute("ROLLBACK")


@contextmanager
def cut_off() -> Iterator[None]:
    """The connection is there, and at its other end is nobody."""
    connection.ensure_connection()
    if connection.vendor == "postgresql":
        pid = connection.connection.info.backend_pid
        with _other_postgres() as other:
            other.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
        yield
    else:
        # SQLite has no connection that could be cut: its file can not be opened.
        connection.close()
        name = connection.settings_dict["NAME"]
        connection.settings_dict["NAME"] = str(Path(name).parent)
        try:
            yield
        finally:
            connection.close()
            connection.settings_dict["NAME"] = name


@contextmanager
def _other_postgres() -> Iterator[Any]:
    with closing(connection.copy()) as other:
        other.ensure_connection()
        yield other.connection


@contextmanager
def _set(on: str, off: str) -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute(on)
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute(off)


def told_to_come_back(answer: Any) -> None:
    assert_problem(answer, 503, "no_database")
    assert int(answer["Retry-After"]) > 0


@pytest.fixture
def client() -> Client:
    return Client(raise_request_exception=False)


@pytest.fixture
def nobody_waits_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection with which a test makes an outage is kept for it to end it."""
    monkeypatch.setattr("gpujobs.middleware._start_afresh", lambda: None)


@pytest.mark.usefixtures("nobody_waits_in_vain")
@pytest.mark.parametrize("refuse", [only_read, hard_to_write, no_room])
def test_a_write_that_is_refused_is_503_and_nothing_is_written(
    api: Any, alice: User, refuse: Callable[[], Any]
) -> None:
    with refuse():
        told_to_come_back(api(alice).post("/api/v1/jobs", SPEC))
    assert not Job.objects.exists()
    assert api(alice).post("/api/v1/jobs", SPEC).status_code == 201


@pytest.mark.usefixtures("nobody_waits_in_vain")
def test_nobody_logs_in_where_nothing_can_be_written(
    alice: User, client: Client
) -> None:
    alice.set_password(PASSWORD)
    alice.save()
    with only_read():
        told = {"username": alice.email, "password": PASSWORD}
        answer = client.post("/login/", told)
    assert answer.status_code == 503
    assert answer["Content-Type"].startswith("text/html")
    assert answer["Retry-After"]


def test_a_connection_that_was_cut_costs_one_answer_at_most(
    api: Any, alice: User
) -> None:
    with cut_off():
        answer = api(alice).get("/api/v1/jobs")
        # A connection is tried before it is used: then nobody notices.
        if answer.status_code != 200:
            told_to_come_back(answer)
    assert api(alice).get("/api/v1/jobs").status_code == 200


def test_a_session_that_can_not_be_written_is_not_told_of_as_deleted() -> None:
    request = RequestFactory().get("/jobs/")
    lost, deleted = SessionInterrupted(), SessionInterrupted()
    lost.__context__, deleted.__context__ = UpdateError(), UpdateError()
    lost.__context__.__context__ = OperationalError("server closed the connection")
    assert problems.bad_request(request, lost).status_code == 503
    assert problems.bad_request(request, deleted).status_code == 400
