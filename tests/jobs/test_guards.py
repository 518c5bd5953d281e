"""What the database itself refuses, tried with raw SQL past all of our code."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import IntegrityError, connection, transaction

from jobs import audit
from jobs.models import (
    Attempt,
    AuditRecord,
    Job,
    JobDependency,
    JobEvent,
    Quota,
    User,
)
from jobs.status import TERMINAL, TRANSITIONS, Condition, Status
from tests.factories import make_job, make_user

pytestmark = pytest.mark.django_db

NOW = "'2026-11-30 12:00:00+00:00'"
LATER = "'2999-01-01 00:00:00+00:00'"


def sql(statement: str, *parameters: Any) -> int:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return int(cursor.rowcount)


@contextmanager
def refused() -> Iterator[None]:
    with pytest.raises(IntegrityError):
        yield


def key(job: Job) -> Any:
    return job.pk.hex if connection.vendor == "sqlite" else job.pk


def update_job(job: Job, assignments: str) -> None:
    assert sql(f"UPDATE jobs_job SET {assignments} WHERE id = %s", key(job)) == 1


IN_STATUS = {
    Status.QUEUED: "started_at = NULL, finished_at = NULL",
    Status.STARTING: "started_at = NULL, finished_at = NULL",
    Status.RUNNING: f"started_at = {NOW}, finished_at = NULL",
    Status.SUCCEEDED: f"started_at = {NOW}, finished_at = {LATER}, exit_code = 0, reason = 'completed'",
    Status.FAILED: f"finished_at = {LATER}, reason = 'nonzero_exit'",
    Status.CANCELLED: f"finished_at = {LATER}, reason = 'cancelled_by_user'",
}
MOVES = [(source, to) for source in Status for to in Status if source != to]


def bring_to(job: Job, status: Status) -> None:
    """By legal moves, with raw SQL."""
    path = {
        Status.STARTING: [Status.STARTING],
        Status.RUNNING: [Status.STARTING, Status.RUNNING],
        Status.SUCCEEDED: [Status.STARTING, Status.RUNNING, Status.SUCCEEDED],
    }.get(status, [] if status == Status.QUEUED else [status])
    for step in path:
        update_job(job, f"status = '{step}', {IN_STATUS[step]}")


@pytest.mark.parametrize(
    ("source", "to"), MOVES, ids=[f"{source} to {to}" for source, to in MOVES]
)
def test_only_the_moves_of_the_life_of_a_job_are_possible(
    source: Status, to: Status
) -> None:
    job = make_job()
    bring_to(job, source)
    if to in TRANSITIONS[source]:
        update_job(job, f"status = '{to}', {IN_STATUS[to]}")
    else:
        with refused():
            update_job(job, f"status = '{to}', {IN_STATUS[to]}")


ILLEGAL = [
    (
        "a finished time on a job that has not ended",
        Status.QUEUED,
        f"finished_at = {NOW}",
    ),
    ("an unknown status", Status.QUEUED, "status = 'lost'"),
    ("an end without its time", Status.QUEUED, "status = 'failed', reason = 'unknown'"),
    (
        "an end without a reason",
        Status.QUEUED,
        f"status = 'failed', finished_at = {NOW}",
    ),
    ("running without having started", Status.STARTING, "status = 'running'"),
    (
        "success with exit code 1",
        Status.RUNNING,
        f"status = 'succeeded', finished_at = {LATER}, exit_code = 1, reason = 'completed'",
    ),
    (
        "success whose exit code nobody saw",
        Status.RUNNING,
        f"status = 'succeeded', finished_at = {LATER}, exit_code = NULL, reason = 'completed'",
    ),
    (
        "an end before the start",
        Status.RUNNING,
        "status = 'failed', finished_at = '2001-01-01 00:00:00+00:00', reason = 'unknown'",
    ),
    ("a cancel wish by nobody", Status.QUEUED, f"cancel_requested_at = {NOW}"),
    ("a negative number of GPUs", Status.QUEUED, "gpu_count = -1"),
    ("no VRAM at all", Status.QUEUED, "min_vram_mb = 0"),
    ("a priority above 100", Status.QUEUED, "priority = 101"),
    ("a model by no policy", Status.QUEUED, "model_name = 'm', risk = 'low'"),
    ("a risk without a model", Status.QUEUED, "risk = 'low'"),
    ("no image", Status.QUEUED, "image = ''"),
    ("a share of unknown size", Status.QUEUED, "share = TRUE"),
    ("a hold by nobody", Status.QUEUED, f"held_at = {NOW}"),
    ("a holder without a hold", Status.QUEUED, "held_by_id = owner_id"),
    ("an array without an index", Status.QUEUED, "\"array\" = '0-1', array_id = id"),
    ("an index without an array", Status.QUEUED, "array_index = 1"),
    ("an array's id without an array", Status.QUEUED, "array_id = id"),
    (
        "a negative index",
        Status.QUEUED,
        "\"array\" = '0-1', array_id = id, array_index = -1",
    ),
]


@pytest.mark.parametrize(
    ("status", "change"), [r[1:] for r in ILLEGAL], ids=[r[0] for r in ILLEGAL]
)
def test_a_job_can_not_have(status: Status, change: str) -> None:
    job = make_job()
    bring_to(job, status)
    with refused():
        update_job(job, change)


@pytest.mark.parametrize("status", TERMINAL)
@pytest.mark.parametrize(
    "change",
    [
        f"finished_at = {NOW}",
        "exit_code = 77",
        "reason = 'unknown'",
        "command = NULL",
        "image = 'other'",
        "gpu_count = 9",
    ],
)
def test_an_ended_job_is_frozen(status: Status, change: str) -> None:
    job = make_job(command="true")
    bring_to(job, status)
    with refused():
        update_job(job, change)


class TestAttempts:
    def test_two_live_attempts_of_a_job_are_impossible(self) -> None:
        job = make_job()
        Attempt.objects.create(job=job, number=1, node="gauss")
        with refused(), transaction.atomic():
            Attempt.objects.create(job=job, number=2, node="gauss")

    def test_a_validator_attempt_may_live_beside_it(self) -> None:
        job = make_job()
        own = Attempt.objects.create(job=job, number=1, node="gauss")
        beside = {"job": job, "number": 2, "node": "gauss", "kind": "validator"}
        Attempt.objects.create(**beside, subject=own, validator="tests pass")

    def test_a_validator_attempt_looks_at_another_for_a_validator(self) -> None:
        job = make_job()
        own = Attempt.objects.create(job=job, number=1, node="gauss")
        beside = {"job": job, "number": 2, "node": "gauss", "kind": "validator"}
        for missing in ({"subject": own}, {"validator": "tests pass"}, {}):
            with refused(), transaction.atomic():
                Attempt.objects.create(**beside, **missing)

    def test_a_container_belongs_to_one_attempt(self) -> None:
        one, other = make_job(), make_job()
        Attempt.objects.create(job=one, number=1, node="gauss", container_id="c")
        with refused(), transaction.atomic():
            Attempt.objects.create(job=other, number=1, node="gauss", container_id="c")

    def test_a_job_does_not_end_while_an_attempt_lives(self) -> None:
        job = make_job()
        Attempt.objects.create(job=job, number=1, node="gauss")
        bring_to(job, Status.RUNNING)
        with refused():
            update_job(job, f"status = 'failed', {IN_STATUS[Status.FAILED]}")

    @pytest.mark.parametrize(
        "change",
        [
            f"ended_at = {NOW}",
            "phase = ''",
            "reason = 'unknown'",
            "phase = 'dreaming'",
            "stop_reason = 'timed_out'",
            f"stop_requested_at = {NOW}",
            "stop_reason = 'completed', stop_requested_at = '2026-01-01 00:00:00'",
        ],
    )
    def test_a_live_attempt_can_not_have(self, change: str) -> None:
        Attempt.objects.create(job=make_job(), number=1, node="gauss")
        with refused():
            sql(f"UPDATE jobs_attempt SET {change}")

    @pytest.mark.parametrize(
        "change",
        ["node = 'noether'", "exit_code = 9", "reason = 'gpu_lost'", "number = 7"],
    )
    def test_an_ended_attempt_is_frozen(self, change: str) -> None:
        Attempt.objects.create(job=make_job(), number=1, node="gauss")
        sql(
            f"UPDATE jobs_attempt SET ended_at = {LATER}, phase = '', reason = 'unknown'"
        )
        with refused():
            sql(f"UPDATE jobs_attempt SET {change}")

    def test_an_ended_attempt_is_not_revived(self) -> None:
        Attempt.objects.create(job=make_job(), number=1, node="gauss")
        sql(
            f"UPDATE jobs_attempt SET ended_at = {LATER}, phase = '', reason = 'unknown'"
        )
        with refused():
            sql(
                "UPDATE jobs_attempt SET ended_at = NULL, phase = 'running', reason = ''"
            )


@pytest.mark.parametrize("table", ["jobs_jobevent", "jobs_auditrecord"])
class TestHistory:
    @pytest.fixture(autouse=True)
    def _story(self) -> None:
        make_job()

    def test_it_is_not_updated(self, table: str) -> None:
        with refused():
            sql(f"UPDATE {table} SET actor = 'nobody'")

    def test_it_is_not_deleted(self, table: str) -> None:
        with refused():
            sql(f"DELETE FROM {table}")

    def test_it_is_not_replaced(self, table: str) -> None:
        if connection.vendor == "sqlite":
            with refused():
                sql(f"INSERT OR REPLACE INTO {table} SELECT * FROM {table}")
        else:
            with refused():
                sql("SET CONSTRAINTS ALL IMMEDIATE")  # or it would have pending events
                sql(f"TRUNCATE {table} CASCADE")

    def test_the_door_of_the_other_kind_does_not_open_it(self, table: str) -> None:
        other = "audit" if table == "jobs_jobevent" else "events"
        with refused(), audit.purge_door(other):
            sql(f"DELETE FROM {table}")

    def test_its_own_door_does_and_closes_after(self, table: str) -> None:
        own = "events" if table == "jobs_jobevent" else "audit"
        with audit.purge_door(own):
            assert sql(f"DELETE FROM {table}") == 1
        make_job()
        with refused():
            sql(f"DELETE FROM {table}")

    def test_no_door_lets_it_be_updated(self, table: str) -> None:
        own = "events" if table == "jobs_jobevent" else "audit"
        with refused(), audit.purge_door(own):
            sql(f"UPDATE {table} SET actor = 'nobody'")

    def test_an_error_behind_the_door_closes_it(self, table: str) -> None:
        own = "events" if table == "jobs_jobevent" else "audit"
        with pytest.raises(RuntimeError), audit.purge_door(own):
            raise RuntimeError
        with refused():
            sql(f"DELETE FROM {table}")


def test_an_e_mail_address_is_taken_in_any_case(alice: User) -> None:
    with refused(), transaction.atomic():
        make_user("ALICE@example.org")


@pytest.mark.parametrize(("uid", "gid"), [(1000, None), (None, 1000), (0, 0)])
def test_an_owner_has_both_ids_and_never_roots(
    uid: int | None, gid: int | None
) -> None:
    with refused(), transaction.atomic():
        make_user(uid=uid, gid=gid)


def test_one_task_per_index_of_an_array(alice: User) -> None:
    first = make_job(alice, array="0-1")
    other = make_job(alice)
    task = f"\"array\" = '0-1', array_id = '{key(first)}'"
    with refused():
        update_job(other, f"{task}, array_index = 1")
    update_job(other, f"{task}, array_index = 2")


class TestDependencies:
    def test_a_job_does_not_wait_for_itself(self) -> None:
        job = make_job()
        with refused(), transaction.atomic():
            JobDependency.objects.create(
                job=job, parent_id=job.pk, condition=Condition.AFTER_OK
            )

    def test_nor_twice_for_one(self) -> None:
        job, parent = make_job(), make_job()
        JobDependency.objects.create(
            job=job, parent_id=parent.pk, condition=Condition.AFTER_OK
        )
        with refused(), transaction.atomic():
            JobDependency.objects.create(
                job=job, parent_id=parent.pk, condition=Condition.AFTER_ANY
            )


class TestQuotas:
    def test_a_row_is_of_a_user_or_of_a_group(self, alice: User) -> None:
        group = Group.objects.create(name="vision")
        with refused(), transaction.atomic():
            Quota.objects.create(user=alice, group=group)

    @pytest.mark.parametrize("of", ["user", "group", "everybody"])
    def test_there_is_one_row_for_each(self, alice: User, of: str) -> None:
        group = Group.objects.create(name="vision")
        known: dict[str, Any] = {"user": alice, "group": group}
        whose = {of: known[of]} if of in known else {}
        Quota.objects.create(**whose)
        with refused(), transaction.atomic():
            Quota.objects.create(**whose)

    def test_nobodys_share_is_nothing(self, alice: User) -> None:
        Quota.objects.create(user=alice)
        with refused():
            sql("UPDATE jobs_quota SET shares = 0")


def test_one_submission_per_idempotency_key(alice: User, bob: User) -> None:
    make_job(alice, idempotency_key="k")
    make_job(bob, idempotency_key="k")
    with refused(), transaction.atomic():
        make_job(alice, idempotency_key="k")


def test_history_is_written_by_the_move_that_it_tells_of() -> None:
    with transaction.atomic():
        make_job()
        transaction.set_rollback(True)
    assert not JobEvent.objects.exists()
    assert not AuditRecord.objects.exists()
