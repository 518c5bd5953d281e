"""0003 gives the rows that are there what they need, and loses none and no guard."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import IntegrityError, connection
from django.db.migrations.executor import MigrationExecutor

from jobs.models import Job, JobEvent
from jobs.sealing import Check, seal
from tests.factories import IMAGE

pytestmark = pytest.mark.django_db(transaction=True)

# What the scheduler's migrations need of the jobs' goes back and forth with it.
BEFORE = [("jobs", "0002_guards"), ("scheduler", "0002_guards")]


def migrate(targets: list[tuple[str, str]]) -> Any:
    executor = MigrationExecutor(connection)
    executor.migrate(targets)
    return MigrationExecutor(connection).loader.project_state(targets).apps


def latest() -> list[tuple[str, str]]:
    leaves = MigrationExecutor(connection).loader.graph.leaf_nodes()
    return [leaf for leaf in leaves if leaf[0] in ("jobs", "scheduler")]


@pytest.fixture
def before() -> Iterator[Any]:
    """The models as they were; afterwards all is as it is, whatever happened."""
    try:
        yield migrate(BEFORE)
    finally:
        migrate(latest())


def test_rows_from_before_are_kept_with_what_they_had(before: Any) -> None:
    old_user, old_job = (before.get_model("jobs", name) for name in ("User", "Job"))
    owner = old_user.objects.create(email="old@example.org")
    kept = old_job.objects.create(
        owner=owner, name="old", image=IMAGE, env={"A": "1"}, priority=7
    )
    before.get_model("jobs", "JobEvent").objects.create(
        job=kept, event_type="queued", actor=owner.email
    )
    migrate(latest())
    job = Job.objects.get()
    assert (job.pk, job.owner.email, job.env) == (kept.pk, owner.email, {"A": "1"})
    assert (job.priority, job.created_at) == (7, kept.created_at)
    assert (job.group, job.node_labels, job.array) == ("", {}, "")
    assert (job.begin_at, job.held_at, job.array_id) == (None, None, None)
    assert JobEvent.objects.get().job == job


def test_audit_records_from_before_are_sealed(before: Any) -> None:
    old = before.get_model("jobs", "AuditRecord")
    for number in range(3):
        old.objects.create(actor="alice", action="job.queued", target=number)
    migrate(latest())
    assert seal() == 3
    assert list(Check().flaws()) == []


def test_the_guards_are_there_afterwards(before: Any) -> None:
    owner = before.get_model("jobs", "User").objects.create(email="old@example.org")
    before.get_model("jobs", "Job").objects.create(owner=owner, name="old", image=IMAGE)
    migrate(latest())
    with pytest.raises(IntegrityError), connection.cursor() as cursor:
        cursor.execute("UPDATE jobs_job SET status = 'succeeded'")
