from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.utils import timezone

from scheduler.models import PassLease
from tests.scheduler.factories import make_node

pytestmark = pytest.mark.django_db

PATHS = ["/health", "/health/", "/api/v1/health", "/api/v1/health/"]


@pytest.mark.parametrize("path", PATHS)
def test_health_is_told_to_anybody_with_or_without_a_slash(api: Any, path: str) -> None:
    answer = api().get(path)
    assert answer.status_code == 200
    told = answer.json()
    assert (told["status"], told["database"]) == ("ok", "ok")


def test_a_database_that_does_not_answer_is_503(api: Any) -> None:
    def refuse(*args: Any) -> None:
        raise OperationalError("connection to host db.internal refused")

    with connection.execute_wrapper(refuse):
        answer = api().get("/health")
    assert answer.status_code == 503
    assert answer["Content-Type"] == "application/problem+json"
    assert answer.json()["code"] == "no_database"
    assert "db.internal" not in answer.content.decode()


def test_health_does_not_look_at_a_stale_token(api: Any) -> None:
    answer = api().get("/health", headers={"Authorization": "Bearer stale"})
    assert answer.status_code == 200


def test_health_names_no_host_and_no_version(api: Any) -> None:
    make_node("gauss")
    told = api().get("/health").json()
    assert set(told) == {"status", "database", "scheduler", "nodes"}
    assert "gauss" not in str(told)


@pytest.mark.parametrize(
    ("ago_s", "status", "silent"), [(14, "ok", 0), (16, "degraded", 1)]
)
def test_health_tells_of_a_node_that_was_not_heard_of_for_15_s(
    api: Any, ago_s: int, status: str, silent: int
) -> None:
    make_node("gauss", heartbeat_at=timezone.now() - timedelta(seconds=ago_s))
    make_node("euler")
    told = api().get("/health")
    # A load balancer must not take this server out for it.
    assert told.status_code == 200
    assert told.json()["status"] == status
    assert told.json()["nodes"] == {"known": 2, "silent": silent}


def test_health_tells_of_a_scheduler_that_makes_no_pass(api: Any) -> None:
    long_ago = timezone.now() - timedelta(minutes=1)
    PassLease.objects.create(id=1, wakes=2, served=1, woken_at=long_ago)
    told = api().get("/health").json()
    assert (told["status"], told["scheduler"]) == ("degraded", "silent")


def test_health_can_only_be_read(api: Any) -> None:
    answer = api().post("/health", {})
    assert answer.status_code == 405
    assert answer.json()["code"] == "method_not_allowed"
