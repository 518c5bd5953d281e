"""What the database refuses about who holds a GPU, whatever the code does."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from jobs.migrations import _guards
from jobs.models import Attempt
from scheduler.models import GPU, Allocation, PassLease, TaskMessage
from tests.factories import make_job
from tests.scheduler.factories import GB, hold, make_gpu, make_live_attempt, make_node

pytestmark = pytest.mark.django_db


@contextmanager
def refused(text: str | None = None) -> Iterator[None]:
    with pytest.raises(IntegrityError, match=text), transaction.atomic():
        yield


@pytest.fixture
def gpu() -> GPU:
    return make_gpu(make_node(), 24 * GB)


def attempt() -> Attempt:
    return make_live_attempt(make_job())


def test_shared_allocations_fill_a_gpu_to_the_last_mib(gpu: GPU) -> None:
    hold(attempt(), gpu, 10 * GB)
    hold(attempt(), gpu, 14 * GB)


def test_one_mib_more_than_is_usable_is_refused(gpu: GPU) -> None:
    hold(attempt(), gpu, 10 * GB)
    with refused("over the usable VRAM"):
        hold(attempt(), gpu, 14 * GB + 1)


def test_reserve_and_headroom_are_not_usable() -> None:
    gpu = make_gpu(make_node(), 24 * GB, reserved_mb=500, headroom_mb=1000)
    with refused("over the usable VRAM"):
        hold(attempt(), gpu, 24 * GB - 1499)
    hold(attempt(), gpu, 24 * GB - 1500)


def test_nothing_goes_beside_an_exclusive_one(gpu: GPU) -> None:
    hold(attempt(), gpu, 1, exclusive=True)
    with refused("alone"):
        hold(attempt(), gpu, 1)


def test_an_exclusive_one_goes_beside_nothing(gpu: GPU) -> None:
    hold(attempt(), gpu, 1)
    with refused("alone"):
        hold(attempt(), gpu, 1, exclusive=True)


def test_what_is_released_does_not_count(gpu: GPU) -> None:
    held = hold(attempt(), gpu, 24 * GB, exclusive=True)
    held.released_at = timezone.now()
    held.save(update_fields=["released_at"])
    hold(attempt(), gpu, 24 * GB, exclusive=True)


def test_a_released_one_is_not_opened_again(gpu: GPU) -> None:
    held = hold(attempt(), gpu, GB)
    Allocation.objects.filter(pk=held.pk).update(released_at=timezone.now())
    with refused("opened once"):
        Allocation.objects.filter(pk=held.pk).update(released_at=None)


@pytest.mark.parametrize(
    "change",
    [
        {"vram_mb": 1},
        {"is_exclusive": True},
        {"reserved_at": datetime(2001, 1, 1, tzinfo=UTC)},
    ],
)
def test_an_open_one_is_not_changed(gpu: GPU, change: dict[str, object]) -> None:
    held = hold(attempt(), gpu, GB)
    with refused("opened once"):
        Allocation.objects.filter(pk=held.pk).update(**change)


def test_an_open_one_is_not_moved_to_another_gpu(gpu: GPU) -> None:
    held = hold(attempt(), gpu, GB)
    other = make_gpu(gpu.node)
    with refused("opened once"):
        Allocation.objects.filter(pk=held.pk).update(gpu=other)


def test_an_open_one_is_not_deleted(gpu: GPU) -> None:
    held = hold(attempt(), gpu, GB)
    with refused("still open"):
        held.delete()


@pytest.mark.parametrize("vram_mb", [0, -1])
def test_an_allocation_is_of_something(gpu: GPU, vram_mb: int) -> None:
    with refused():
        hold(attempt(), gpu, vram_mb)


def test_an_attempt_that_ended_opens_none(gpu: GPU) -> None:
    ended = attempt()
    now = timezone.now()
    Attempt.objects.update(ended_at=now, phase="", reason="unknown")
    with refused("not live"):
        hold(ended, gpu, GB)


def test_an_attempt_that_holds_a_gpu_does_not_end(gpu: GPU) -> None:
    hold(attempt(), gpu, GB)
    with refused("still holds"):
        Attempt.objects.update(ended_at=timezone.now(), phase="", reason="unknown")


def test_there_is_one_pass_lease() -> None:
    with refused():
        PassLease.objects.create(id=2)


@pytest.mark.django_db(transaction=True)
def test_no_allocation_is_opened_on_a_stale_snapshot() -> None:
    """A sum over an older snapshot than the GPU's lock would let two pass."""
    gpu, live = make_gpu(make_node()), attempt()
    if connection.vendor == "sqlite":
        assert connection.settings_dict["OPTIONS"]["transaction_mode"] == "IMMEDIATE"
        return
    with refused("READ COMMITTED"):
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        hold(live, gpu, GB)


GUARDS = {
    "sqlite": "SELECT count(*) FROM sqlite_master WHERE type = 'trigger' AND name LIKE 'guard_%'",
    "postgresql": "SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'guard_%'",
}
COUNTS = {"sqlite": 24, "postgresql": 16}


def count_guards() -> int:
    with connection.cursor() as cursor:
        cursor.execute(GUARDS[connection.vendor])
        return int(cursor.fetchone()[0])


def test_every_guard_is_there_after_all_migrations() -> None:
    """A migration that rebuilds a table on SQLite loses its triggers silently."""
    assert count_guards() == COUNTS[connection.vendor]


def test_suspended_guards_come_back_as_they_were(gpu: GPU) -> None:
    if connection.vendor != "sqlite":
        return
    editor: Any = SimpleNamespace(connection=connection)
    apps: Any = None
    _guards.suspend().code(apps, editor)
    assert count_guards() == 0
    _guards.resume().code(apps, editor)
    assert count_guards() == COUNTS["sqlite"]
    hold(attempt(), gpu, 24 * GB)
    with refused("over the usable VRAM"):
        hold(attempt(), gpu, 1)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"claimed_at": timezone.now()}, id="claimed by nobody"),
        pytest.param({"claimed_by": "cluster"}, id="claimed at no time"),
        pytest.param({"failed_at": timezone.now()}, id="failed before it was claimed"),
    ],
)
def test_a_message_is_claimed_by_somebody_before_it_fails(
    fields: dict[str, Any],
) -> None:
    with refused("task_message_claimed_by_somebody"):
        TaskMessage.objects.create(function="schedule", **fields)
    TaskMessage.objects.create(
        function="schedule", claimed_by="cluster", claimed_at=timezone.now()
    )
