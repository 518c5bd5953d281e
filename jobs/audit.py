"""The audit trail, and the one door through which append-only rows may leave."""

import os
import pwd
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection, transaction
from django.db.models import QuerySet
from django.utils import timezone

from jobs.models import AuditRecord

# Set for each request by gpujobs.middleware; empty for what the system does itself.
address: ContextVar[str] = ContextVar("address", default="")


def record(action: str, *, target: object, by: object, **details: Any) -> None:
    """Insert one record in the caller's transaction. `by` is a user or a component."""
    record_each(action, targets=[target], by=by, **details)


def record_each(
    action: str, *, targets: Iterable[object], by: object, **details: Any
) -> None:
    """One record for each target, all by one statement."""
    AuditRecord.objects.bulk_create(
        AuditRecord(
            action=action,
            target=str(target),
            actor=str(by),
            details=details,
            address=address.get(),
        )
        for target in targets
    )


def change(
    action: str,
    *,
    target: object,
    by: object,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
) -> None:
    """Record what a field was and is, of those that differ."""
    names = [
        name for name in {**before, **after} if before.get(name) != after.get(name)
    ]
    record(
        action,
        target=target,
        by=by,
        before={name: _plain(before[name]) for name in names if name in before},
        after={name: _plain(after[name]) for name in names if name in after},
    )


def _plain(value: Any) -> Any:
    """As JSON can hold it, the same on both databases."""
    if value is None or isinstance(value, (bool, int, str, dict)):
        return value
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, (list, tuple, set, QuerySet)):
        return sorted(str(each) for each in value)
    return str(value)


def console() -> str:
    """Who acts by a command: an account of this machine, and who became it by sudo."""
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # of a container, perhaps
        name = f"uid {os.getuid()}"
    before = os.environ.get("SUDO_USER", "")
    return (
        f"{name} for {before} on the console"[:254]
        if before
        else f"{name} on the console"
    )


def recent(action: str, *, target: str, within: timedelta) -> int:
    """How often it was recorded of `target` from the address of this request."""
    since = timezone.now() - within
    rows = AuditRecord.objects.filter(action=action, target=target, at__gt=since)
    return rows.filter(address=address.get()).count()


@contextmanager
def purge_door(kind: str) -> Iterator[None]:
    """Within one transaction, let rows of `kind` ('events' or 'audit') be deleted.

    The triggers look for the pass: a transaction-local setting on PostgreSQL, a row
    that no other connection ever sees on SQLite.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SELECT set_config('gpujobs.purge', %s, true)", [kind])
            yield
            cursor.execute("SELECT set_config('gpujobs.purge', '', true)")
        else:
            cursor.execute("INSERT INTO jobs_purge_pass (kind) VALUES (%s)", [kind])
            yield
            cursor.execute("DELETE FROM jobs_purge_pass WHERE kind = %s", [kind])
