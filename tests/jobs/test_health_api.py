from typing import Any

import pytest
from django.db import OperationalError, connection

pytestmark = pytest.mark.django_db

PATHS = ["/health", "/health/", "/api/v1/health", "/api/v1/health/"]


@pytest.mark.parametrize("path", PATHS)
def test_health_is_told_to_anybody_with_or_without_a_slash(api: Any, path: str) -> None:
    answer = api().get(path)
    assert answer.status_code == 200
    assert answer.json() == {"status": "ok", "database": "ok"}


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
    assert set(api().get("/health").json()) == {"status", "database"}


def test_health_can_only_be_read(api: Any) -> None:
    answer = api().post("/health", {})
    assert answer.status_code == 405
    assert answer.json()["code"] == "method_not_allowed"
