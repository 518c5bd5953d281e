"""Messages: asked for in the caller's transaction, claimed once, gone when done."""

import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from django.db import connection, transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from scheduler.models import TaskMessage
from scheduler.queue import beat

# Whatever else a row may name is not run. Functions of scheduler.tasks.
TASKS = ("schedule", "launch", "stop", "collect")
CHANNEL = "gpujobs_tasks"

# What was claimed has so long to be begun: a worker may die with it in its hand.
PATIENCE = timedelta(seconds=2)
KEEP_CLAIMED = timedelta(days=1)
KEEP_FAILED = timedelta(days=7)

# One that is there already is touched: who would claim it waits for this transaction,
# so that the task sees what was written before it was asked for.
_UPSERT = """
    INSERT INTO scheduler_taskmessage
        (queue, function, arguments, created_at, claimed_by, error)
    VALUES (%s, %s, %s, %s, '', '')
    ON CONFLICT (queue, function, arguments) WHERE claimed_at IS NULL
    DO UPDATE SET function = excluded.function
"""


@dataclass(frozen=True, slots=True)
class Claim:
    """A message that is ours to run: `function` is one of TASKS, `arguments` ids."""

    message_id: int
    function: str
    arguments: tuple[str, ...]


def enqueue(name: str, *ids: str, node: str = "") -> None:
    """Ask for a task, in the caller's transaction: of the cluster on `node`, or any.

    Asked for twice before anybody claimed it, it is run once. It is run once at most:
    whoever needs it done asks again. Raises ValueError for what is no task.
    """
    if not _is_task(name, ids):
        raise ValueError(f"{name}{ids} is no task.")
    with connection.cursor() as cursor:
        cursor.execute(_UPSERT, (node, name, json.dumps(ids), timezone.now()))
        if connection.vendor == "postgresql":
            # Heard by nobody before the commit.
            cursor.execute("SELECT pg_notify(%s, '')", [CHANNEL])


def _is_task(function: str, arguments: Iterable[object]) -> bool:
    return function in TASKS and all(map(_is_id, arguments))


def _is_id(argument: object) -> bool:
    try:
        return isinstance(argument, str) and str(uuid.UUID(argument)) == argument
    except ValueError:
        return False


def _unclaimed(node: str) -> QuerySet[TaskMessage]:
    rows = TaskMessage.objects.filter(claimed_at__isnull=True)
    return rows.filter(queue__in=("", node)).order_by("id")


def claim(node: str, by: str) -> Claim | None:
    """The oldest message that this node's cluster may run; None where there is none.

    What is no task of ours is marked as failed, and never run.
    """
    if connection.vendor != "postgresql" and not _unclaimed(node).exists():
        return None  # SQLite has one writer: no lock is taken only to look
    with transaction.atomic():
        free = _unclaimed(node).select_for_update(skip_locked=True)
        row = free.first()
        if row is None:
            return None
        row.claimed_at, row.claimed_by = timezone.now(), by
        row.save(update_fields=["claimed_at", "claimed_by"])
    if isinstance(row.arguments, list) and _is_task(row.function, row.arguments):
        return Claim(row.pk, row.function, tuple(row.arguments))
    fail(row.pk, "This is no task: it was written by somebody else, and was not run.")
    return None


def finish(message_id: int) -> None:
    """It is over. One that failed stays, to be looked at."""
    TaskMessage.objects.filter(pk=message_id, failed_at=None).delete()


def fail(message_id: int, error: str) -> None:
    TaskMessage.objects.filter(pk=message_id).update(
        failed_at=timezone.now(), error=error
    )


def standing(node: str) -> set[tuple[str, ...]]:
    """What this node was asked for and may not have begun: (function, *ids)."""
    now = timezone.now()
    # Either way: a clock that was set back must not make a dead one stand for hours.
    recent = Q(claimed_at__range=(now - PATIENCE, now + PATIENCE))
    rows = TaskMessage.objects.filter(queue=node, failed_at=None)
    rows = rows.filter(Q(claimed_at=None) | recent)
    return {(row.function, *row.arguments) for row in rows}


def oldest_unclaimed(node: str) -> int | None:
    return _unclaimed(node).values_list("pk", flat=True).first()


def forget_dead(node: str) -> None:
    """What clusters of this node claimed that live no more stands no more: whoever
    needs it done need not wait to ask again."""
    claimed = TaskMessage.objects.filter(queue=node, claimed_at__isnull=False)
    claimed = claimed.filter(failed_at=None)
    by = set(claimed.order_by().values_list("claimed_by", flat=True).distinct())
    dead = [identity for identity in by if not beat.lives(identity)]
    claimed.filter(claimed_by__in=dead).delete()


def prune() -> None:
    """Delete what nobody will finish, and failures that were there to be seen."""
    now = timezone.now()
    lost = Q(failed_at=None, claimed_at__lt=now - KEEP_CLAIMED)
    old = Q(failed_at__lt=now - KEEP_FAILED)
    TaskMessage.objects.filter(lost | old).delete()
