"""Asking for a pass, one pass at a time, and noticing that none is made."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from django.db import connection
from django.db.models import Case, F, Q, Value, When
from django.utils import timezone

from jobs import lifecycle
from jobs.models import Job
from jobs.status import Status, WaitReason
from scheduler.models import PassLease
from scheduler.queue import beat, enqueue
from scheduler.reservation.snapshots import SILENCE

LEASE = timedelta(seconds=30)
# Without a pass for so long, one is made whether anything woke it or not.
SAFETY_NET = timedelta(seconds=5)
MOST_TOLD = 200
# Any number that nobody else of this database takes: "GPUJ".
ADVISORY_LOCK = 0x4750554A


def wake() -> None:
    """Ask for a pass. Wakes coalesce, but none is absorbed by a pass under way."""
    now = timezone.now()
    PassLease.objects.get_or_create(id=1)
    lease = PassLease.objects.filter(id=1)
    first = When(wakes=F("served"), then=Value(now))
    woken_at = Case(first, default=F("woken_at"))
    lease.update(wakes=F("wakes") + 1, woken_at=woken_at)
    enqueue("schedule")


def safety_net() -> None:
    """Wake if jobs wait and no pass was made of late: a wake may have been lost with
    whoever served it, and time itself changes who may start."""
    now = timezone.now()
    # Either way: a clock that was set back must not keep the queue for hours.
    recent = (now - SAFETY_NET, now + SAFETY_NET)
    if PassLease.objects.filter(passed_at__range=recent).exists():
        return
    if Job.objects.filter(status=Status.QUEUED).exists():
        wake()


@contextmanager
def the_only_pass() -> Iterator[int | None]:
    """The number of wakes to serve, or None where another process is at it."""
    # By the process, so that the lease of a dead one is known as such.
    holder = f"{beat.identity(os.getpid())}#{secrets.token_hex(8)}"
    with _advisory_lock() as is_alone:
        wakes = _take_lease(holder) if is_alone else None
        if wakes is None:
            yield None
            return
        mine = PassLease.objects.filter(id=1, holder=holder)
        try:
            yield wakes
            mine.update(served=wakes, passed_at=timezone.now())
        finally:
            mine.update(holder="")


@contextmanager
def _advisory_lock() -> Iterator[bool]:
    """On PostgreSQL, beside the lease: it outlasts one that expired under a slow pass,
    and is gone with the connection of a dead one."""
    if connection.vendor != "postgresql":
        yield True
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [ADVISORY_LOCK])
        (is_held,) = cursor.fetchone()
        try:
            yield is_held
        finally:
            if is_held:
                cursor.execute("SELECT pg_advisory_unlock(%s)", [ADVISORY_LOCK])


def _take_lease(holder: str) -> int | None:
    now = timezone.now()
    # A lease longer than any is of a clock that was set back since.
    over = Q(expires_at__lt=now) | Q(expires_at__gt=now + 2 * LEASE)
    free = Q(holder="") | over | _of_the_dead()
    mine = PassLease.objects.filter(free, id=1, wakes__gt=F("served"))
    if mine.update(holder=holder, expires_at=now + LEASE) != 1:
        return None
    return PassLease.objects.values_list("wakes", flat=True).get(id=1)


def _of_the_dead() -> Q:
    """Leases that nobody will give back. On PostgreSQL that is any: whoever came here
    has the lock that a pass under way would have. SQLite serves one machine, whose
    processes can be looked for."""
    if connection.vendor == "postgresql":
        return ~Q(holder="")
    holder = PassLease.objects.values_list("holder", flat=True).filter(id=1).first()
    if not holder or beat.lives(holder.partition("#")[0]):
        return Q(holder="")
    return Q(holder=holder)


SILENCE_TEXT = (
    f"No scheduling pass was made for {SILENCE.seconds} s. An operator should see "
    "whether the cluster (manage.py cluster) runs."
)


def is_silent() -> bool:
    """Whether a wake stands for too long, and no pass was made since."""
    since = timezone.now() - SILENCE
    unserved = PassLease.objects.filter(wakes__gt=F("served"), woken_at__lt=since)
    return unserved.filter(Q(passed_at=None) | Q(passed_at__lt=since)).exists()


def tell_of_silence() -> None:
    """Where wakes are not served, say so on the jobs that wait. For the supervisor to
    call: it is another process than the cluster, which would say it itself."""
    if is_silent():
        ready = Job.objects.ready(timezone.now())
        ids = list(ready.values_list("pk", flat=True)[:MOST_TOLD])
        lifecycle.explain_waits(ids, WaitReason.SCHEDULER_DOWN, SILENCE_TEXT)
