"""The queue of tasks: rows of the caller's transaction, claimed once, plain JSON."""

import threading
import uuid
from collections.abc import Iterator
from datetime import timedelta

import pytest
import time_machine
from django.apps import apps
from django.db import OperationalError, connection, connections, transaction
from django.utils import timezone
from django_q.brokers import get_broker
from django_q.signing import SignedPackage

from scheduler import tasks
from scheduler.models import TaskMessage
from scheduler.queue import (
    TASKS,
    beat,
    claim,
    enqueue,
    fail,
    forget_dead,
    prune,
    standing,
)
from scheduler.queue.broker import TaskBroker
from tests.scheduler.factories import asked

A, B, C = (str(uuid.UUID(int=number)) for number in (1, 2, 3))


@pytest.mark.django_db
class TestAsking:
    def test_a_task_goes_by_name_with_ids_alone(self) -> None:
        enqueue("launch", A, node="gauss")
        row = TaskMessage.objects.get()
        told = row.queue, row.function, row.arguments
        assert told == ("gauss", "launch", [A])

    def test_one_of_a_transaction_that_is_rolled_back_was_never_asked_for(self) -> None:
        with transaction.atomic():
            enqueue("launch", A)
            transaction.set_rollback(True)
        assert asked("launch") == []

    def test_asked_for_twice_it_waits_once(self) -> None:
        for _ in range(3):
            enqueue("launch", A)
        enqueue("launch", B)
        enqueue("stop", A)
        assert (asked("launch"), asked("stop")) == ([(A,), (B,)], [(A,)])

    def test_one_that_is_claimed_absorbs_no_new_one(self) -> None:
        enqueue("schedule")
        claim("gauss", by="cluster")
        enqueue("schedule")
        enqueue("schedule")
        assert asked("schedule") == [()]

    @pytest.mark.parametrize(
        ("name", "ids"),
        [
            ("os.system", ["reboot"]),
            ("", []),
            ("run", []),
            ("launch", ["reboot"]),
            ("launch", [A + "\0"]),
            ("launch", [7]),
            ("launch", [None]),
            ("launch", ["x" * 10_000]),
        ],
    )
    def test_what_is_no_task_can_not_be_asked_for(self, name: str, ids: list) -> None:
        with pytest.raises(ValueError, match="is no task"):
            enqueue(name, *ids)
        assert not TaskMessage.objects.exists()

    @pytest.mark.parametrize("name", TASKS)
    def test_every_name_that_is_asked_for_is_a_task(self, name: str) -> None:
        assert callable(getattr(tasks, name))


@pytest.mark.django_db
class TestClaiming:
    def test_the_oldest_first_and_each_once(self) -> None:
        for one in (A, B, C):
            enqueue("collect", one)
        claims = [claim("gauss", by="cluster") for _ in range(4)]
        assert [c and c.arguments for c in claims] == [(A,), (B,), (C,), None]

    def test_another_nodes_task_is_not_ours(self) -> None:
        enqueue("launch", A, node="euler")
        enqueue("schedule")
        claims = [claim("gauss", by="cluster") for _ in range(2)]
        assert [c and c.function for c in claims] == ["schedule", None]

    @pytest.mark.parametrize(
        ("function", "arguments"),
        [
            ("os.system", ["reboot"]),
            ("run", [1, "launch", A]),
            ("launch", ["__import__('os')"]),
            ("launch", {"a": 1}),
            ("launch", A),
            ("launch", [[A]]),
            ("launch", None),
        ],
    )
    def test_what_somebody_else_wrote_is_not_run_and_stands_in_nobodys_way(
        self, function: str, arguments: object
    ) -> None:
        row = TaskMessage(function=function)
        row.arguments = arguments if arguments is not None else []
        if arguments is None:
            row.function = "drop table"
        row.save()
        enqueue("launch", A)
        assert claim("gauss", by="cluster") is None
        assert "no task" in TaskMessage.objects.get(pk=row.pk).error
        found = claim("gauss", by="cluster")
        assert found is not None
        assert found.arguments == (A,)


@pytest.mark.django_db(transaction=True)
class TestSeveralAtOnce:
    def test_one_message_is_claimed_by_one_of_many(self) -> None:
        for number in range(40):
            enqueue("launch", str(uuid.UUID(int=number)))
        claimed: list[object] = []

        def work() -> None:
            try:
                while found := claim("gauss", by=threading.current_thread().name):
                    claimed.append(found.arguments)
            finally:
                connections.close_all()

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # One that is being claimed is passed over: a claimer may leave too early.
        work()
        assert (len(claimed), len(set(claimed))) == (40, 40)

    def test_a_task_sees_what_was_written_before_it_was_asked_for(self) -> None:
        """A message that is there already is not claimed while a transaction is open
        that asked for it again: the task would not see what that one wrote."""
        enqueue("schedule")
        asked_again, done = threading.Event(), threading.Event()

        def ask() -> None:
            try:
                with transaction.atomic():
                    enqueue("schedule")
                    asked_again.set()
                    done.wait(30)
            finally:
                connections.close_all()

        thread = threading.Thread(target=ask)
        thread.start()
        assert asked_again.wait(30)
        if connection.vendor == "postgresql":
            assert claim("gauss", by="cluster") is None
        done.set()
        thread.join()
        assert claim("gauss", by="cluster") is not None


@pytest.mark.django_db
class TestWhatStands:
    def test_asked_for_or_at_work(self) -> None:
        enqueue("launch", A, node="gauss")
        claim("gauss", by="cluster")
        enqueue("stop", B, node="gauss")
        enqueue("stop", C, node="euler")
        assert standing("gauss") == {("launch", A), ("stop", B)}

    def test_what_failed_or_was_claimed_by_the_dead_does_not(self) -> None:
        me = beat.cluster_id()
        for one in (A, B, C):
            enqueue("launch", one, node="gauss")
        failed = claim("gauss", by=me)
        assert failed is not None
        fail(failed.message_id, "no")
        claim("gauss", by=me)
        claim("gauss", by="4194999/1@another-boot")
        forget_dead("gauss")
        assert standing("gauss") == {("launch", B)}

    @pytest.mark.parametrize("days", [0.9, 1.1, 8])
    def test_what_nobody_finishes_goes_after_a_day_and_failures_after_a_week(
        self, days: float
    ) -> None:
        for one in (A, B, C):
            enqueue("launch", one)
        failed = claim("gauss", by="cluster")
        assert failed is not None
        fail(failed.message_id, "no")
        claim("gauss", by="cluster")
        with time_machine.travel(timezone.now() + timedelta(days=days)):
            prune()
        left = [row.arguments[0] for row in TaskMessage.objects.all()]
        assert left == {0.9: [A, B, C], 1.1: [A, C], 8: [C]}[days]


@pytest.mark.django_db(transaction=True)
class TestBroker:
    """As django-q2's pusher uses it."""

    @pytest.fixture
    def broker(self) -> Iterator[TaskBroker]:
        broker = get_broker()
        yield broker
        broker.close()

    def test_a_message_becomes_a_package_of_our_one_function(
        self, broker: TaskBroker
    ) -> None:
        enqueue("launch", A)
        messages = broker.dequeue()
        assert messages
        [(message_id, package)] = messages
        task = SignedPackage.loads(package)
        assert task["func"] == "scheduler.tasks.run"
        assert task["args"] == (message_id, "launch", A)
        assert (task["save"], task["ack_failure"]) == (False, True)

    def test_an_empty_queue_gives_nothing(self, broker: TaskBroker) -> None:
        assert not broker.dequeue()

    def test_a_database_that_is_away_ends_nothing(
        self, broker: TaskBroker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as patched:
            patched.setattr("scheduler.queue.broker.PAUSE_S", 0.0)
            patched.setattr(TaskMessage.objects, "filter", _away)
            assert broker.dequeue() is None
        enqueue("launch", A)
        assert broker.dequeue()

    def test_nothing_else_can_be_put_in(self, broker: TaskBroker) -> None:
        with pytest.raises(NotImplementedError):
            broker.enqueue("a pickle")


def _away(**_: object) -> None:
    connection.close()
    raise OperationalError("server closed the connection")


@pytest.mark.django_db
class TestRunning:
    def test_one_that_is_over_leaves_nothing(self) -> None:
        enqueue("launch", A)
        found = claim("gauss", by="cluster")
        assert found is not None
        tasks.run(found.message_id, found.function, *found.arguments)
        assert not TaskMessage.objects.exists()

    def test_what_a_task_raises_is_told_of_on_its_message(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        enqueue("launch", A)
        found = claim("gauss", by="cluster")
        assert found is not None

        def broken(_: str) -> None:
            raise KeyError("who would have thought")

        monkeypatch.setitem(tasks._FUNCTIONS, "launch", broken)
        tasks.run(found.message_id, found.function, *found.arguments)
        row = TaskMessage.objects.get()
        assert "who would have thought" in row.error
        assert row.failed_at is not None
        # What it needs done can be asked for again, at once.
        enqueue("launch", A)
        assert asked("launch") == [(A,)]

    def test_django_q2_keeps_nothing_of_it(self) -> None:
        for name in ("OrmQ", "Task", "Schedule"):
            assert not apps.get_model("django_q", name).objects.exists()
