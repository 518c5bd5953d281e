"""T47: the job list as CSV: what is seen, and nothing that a spreadsheet computes."""

import csv
import io
from typing import Any

import pytest
from django.test import Client

from jobs.exporting import COLUMNS, inert
from jobs.models import User
from jobs.status import Status
from tests.asserts import whole
from tests.factories import make_job


def rows(client: Client, query: str = "") -> list[dict[str, str]]:
    told = whole(client.get(f"/jobs.csv{query}")).decode()
    return list(csv.DictReader(io.StringIO(told, newline="")))


def test_what_one_sees_with_the_filters_of_the_list(
    client: Client, alice: User, bob: User, olga: User
) -> None:
    make_job(alice, name="mine", status=Status.FAILED)
    make_job(alice, name="waits")
    make_job(bob, name="his")
    client.force_login(alice)
    assert {row["name"] for row in rows(client)} == {"mine", "waits"}
    (failed,) = rows(client, "?status=failed")
    assert tuple(failed) == COLUMNS
    assert (failed["owner"], failed["exit_code"]) == ("alice@example.org", "1")
    assert failed["finished_at"].endswith("+00:00")
    client.force_login(olga)
    assert len(rows(client)) == 3


@pytest.mark.parametrize(
    "name",
    [
        *("=1+1", "+1", "-1", "@SUM(A1)", '=HYPERLINK("https://evil.example","x")'),
        *('a","=1+1', "a;b", 'say "hi"', "-2+3+cmd|' /C calc'!A0"),
    ],
)
def test_no_name_is_a_formula(client: Client, alice: User, name: str) -> None:
    make_job(alice, name=name)
    client.force_login(alice)
    (row,) = rows(client)
    assert not row["name"].startswith(("=", "+", "-", "@"))
    assert row["name"].removeprefix("'") == name


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        ("=x", "'=x"),
        ("\tx", "'\tx"),
        ("\rx", "'\rx"),
        ("x=", "x="),
        (-1, -1),
        (None, ""),
    ],
)
def test_only_texts_are_made_inert(value: Any, cell: Any) -> None:
    assert inert(value) == cell


def test_it_is_a_file_and_no_page(client: Client, alice: User) -> None:
    client.force_login(alice)
    answer = client.get("/jobs.csv")
    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    assert answer.headers["Content-Disposition"].startswith("attachment; filename=")
    whole(answer)


def test_many_jobs_take_no_more_queries(
    client: Client, alice: User, django_assert_max_num_queries: Any
) -> None:
    for _ in range(30):
        make_job(alice)
    client.force_login(alice)
    with django_assert_max_num_queries(6):
        assert len(rows(client)) == 30
