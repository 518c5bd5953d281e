from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from pytest_django import DjangoAssertNumQueries
from rest_framework.test import APIClient

from jobs.models import User
from tests.asserts import assert_problem
from tests.scheduler.factories import make_node

URL = "/api/v1/nodes"
Api = Callable[..., APIClient]


@pytest.mark.parametrize("url", [URL, f"{URL}/"])
def test_a_node_is_shown_with_what_stands_in_its_way(
    api: Api, alice: User, url: str
) -> None:
    make_node(
        heartbeat_at=datetime(2026, 11, 30, 12, tzinfo=UTC),
        memory_mb=64_000,
        reports=["the daemon does not answer"],
        state="draining",
        state_reason="a new fan comes",
        state_by="olga@example.org",
        state_until=datetime(2026, 12, 1, 8, tzinfo=UTC),
        labels={"gpu": "a100"},
    )
    (shown,) = api(alice).get(url).json()["results"]
    assert shown == {
        "name": "gauss",
        "state": "draining",
        "state_reason": "a new fan comes",
        "state_until": "2026-12-01T08:00:00Z",
        "labels": {"gpu": "a100"},
        "heartbeat_at": "2026-11-30T12:00:00Z",
        "cpus": 8,
        "memory_mb": 64_000,
        "reports": ["the daemon does not answer"],
    }


def test_its_queries_do_not_grow_with_the_cluster(
    api: Api, alice: User, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(5):
        make_node(f"node{number}")
    with django_assert_num_queries(2):
        assert api(alice).get(URL).json()["count"] == 5


def test_it_is_for_those_who_are_logged_in(api: Api, db: None) -> None:
    assert_problem(api().get(URL), 401, "not_authenticated")


@pytest.mark.parametrize("verb", ["post", "put", "patch", "delete"])
def test_it_can_only_be_read(api: Api, alice: User, verb: str) -> None:
    assert_problem(getattr(api(alice), verb)(URL), 405, "method_not_allowed")


def test_a_parameter_that_it_does_not_know_is_refused(api: Api, alice: User) -> None:
    assert_problem(api(alice).get(URL, {"state": "up"}), 400, "unknown_parameter")
