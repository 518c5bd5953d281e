from typing import Any

import pytest
from django.core.cache import cache
from django.core.cache.backends.filebased import FileBasedCache

from jobs.api.throttles import Counted
from jobs.models import User
from tests.asserts import assert_problem
from tests.factories import make_job
from tests.jobs.test_tokens_api import holding, issue

pytestmark = pytest.mark.django_db

RATES = {"submit": "3/min", "logs": "2/min", "other": "5/min"}


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Counted, "THROTTLE_RATES", RATES)


def test_who_asks_without_a_pause_is_told_to_wait(api: Any, alice: User) -> None:
    for _ in range(5):
        assert api(alice).get("/api/v1/jobs").status_code == 200
    answer = api(alice).get("/api/v1/gpus")
    assert_problem(answer, 429, "throttled")
    assert 0 < int(answer["Retry-After"]) <= 60


def test_each_kind_is_counted_apart(api: Any, alice: User) -> None:
    job = make_job(alice)
    logs = f"/api/v1/jobs/{job.pk}/logs"
    statuses = [api(alice).get(logs).status_code for _ in range(3)]
    assert statuses == [200, 200, 429]
    statuses = [api(alice).post("/api/v1/jobs", {}).status_code for _ in range(4)]
    assert statuses == [400, 400, 400, 429]
    assert api(alice).get("/api/v1/jobs").status_code == 200


def test_a_person_is_one_whatever_token_is_used(
    api: Any, alice: User, bob: User
) -> None:
    for _ in range(5):
        holding(issue(alice)).get("/api/v1/jobs")
    assert holding(issue(alice)).get("/api/v1/jobs").status_code == 429
    assert api(alice).get("/api/v1/jobs").status_code == 429
    assert api(bob).get("/api/v1/jobs").status_code == 200


def test_processes_count_together(api: Any, alice: User) -> None:
    """Another process has its own cache object, over the same files."""
    for _ in range(5):
        api(alice).get("/api/v1/jobs")
    keys = [f"throttle-other-user-{alice.pk}"]
    other = FileBasedCache(cache._dir, {})  # type: ignore[attr-defined]
    assert [len(value) for value in other.get_many(keys).values()] == [5]


def test_a_full_disk_keeps_nobody_from_looking(
    api: Any, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(FileBasedCache, "set", full)
    assert api(alice).get("/api/v1/jobs").status_code == 200


def test_health_is_not_counted(api: Any, db: None) -> None:
    statuses = {api().get("/api/v1/health").status_code for _ in range(9)}
    assert statuses == {200}
