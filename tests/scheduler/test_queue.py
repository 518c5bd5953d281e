"""The door to django-q2: a task is a row of the caller's transaction."""

import pytest
from django.apps import apps
from django.db import transaction

from scheduler import tasks
from scheduler.queue import enqueue
from tests.scheduler.factories import asked

pytestmark = pytest.mark.django_db


def test_a_task_goes_by_name_with_ids_alone() -> None:
    enqueue("launch", "an-id")
    assert asked("launch") == [("an-id",)]
    (row,) = apps.get_model("django_q.OrmQ").objects.all()
    assert row.task["func"] == "scheduler.tasks.launch"


def test_one_of_a_transaction_that_is_rolled_back_was_never_asked_for() -> None:
    with transaction.atomic():
        enqueue("launch", "an-id")
        transaction.set_rollback(True)
    assert asked("launch") == []


def test_tasks_wait_in_the_order_in_which_they_were_asked_for() -> None:
    for number in "123":
        enqueue("collect", number)
    assert asked("collect") == [("1",), ("2",), ("3",)]


def test_what_a_task_returns_is_not_kept() -> None:
    enqueue("schedule")
    (row,) = apps.get_model("django_q.OrmQ").objects.all()
    assert row.task["save"] is False


@pytest.mark.parametrize("name", ["schedule", "launch", "stop", "collect"])
def test_every_name_that_is_asked_for_is_a_task(name: str) -> None:
    assert callable(getattr(tasks, name))
