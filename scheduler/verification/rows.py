"""Rows become facts, a few hundred at a time, and all as of one moment."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from django.db import connection, transaction
from django.db.models import Prefetch, Q

from jobs.models import Attempt, Job, JobEvent
from jobs.status import TERMINAL, WITH_CONTAINER
from scheduler.invariants import Allocated, AttemptFacts, GpuFacts, JobFacts
from scheduler.models import GPU, Allocation

AT_ONCE = 500


@contextmanager
def one_snapshot() -> Iterator[None]:
    """Within it, every query sees the rows as they were at the first.

    On SQLite a transaction of ours begins with the one lock of writers; who only reads
    must not take it.
    """
    if connection.in_atomic_block:
        yield
    elif connection.vendor == "postgresql":
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            yield
    else:
        with connection.cursor() as cursor:
            cursor.execute("BEGIN DEFERRED")
            try:
                yield
            finally:
                connection.rollback()


def with_allocations() -> "Prefetch[str]":
    return Prefetch("allocations", Allocation.objects.select_related("gpu__node"))


def jobs(since: datetime | None) -> Iterator[JobFacts]:
    """All jobs; with `since` those that live, or ended after it."""
    rows = Job.objects.order_by()
    if since is not None:
        # A live attempt of an ended job must not hide behind its job's end.
        live = Attempt.objects.live().values("job")
        rows = rows.filter(
            ~Q(status__in=TERMINAL) | Q(finished_at__gte=since) | Q(pk__in=live)
        )
    attempts = Attempt.objects.order_by("number").prefetch_related(with_allocations())
    endings = JobEvent.objects.filter(event_type__in=TERMINAL)
    rows = rows.only("status", "gpu_count", "finished_at", "exit_code", "grace_s")
    fetched = rows.prefetch_related(
        Prefetch("attempts", attempts), Prefetch("events", endings, to_attr="endings")
    )
    for job in fetched.iterator(chunk_size=AT_ONCE):
        yield JobFacts(
            job_id=str(job.pk),
            status=job.status,
            gpu_count=job.gpu_count,
            finished_at=job.finished_at,
            exit_code=job.exit_code,
            endings=len(job.endings),
            attempts=tuple(attempt_facts(each, job) for each in job.attempts.all()),
        )


def attempt_facts(attempt: Attempt, job: Job) -> AttemptFacts:
    return AttemptFacts(
        name=attempt.container_name,
        number=attempt.number,
        node=attempt.node,
        nonce=attempt.nonce,
        kind=attempt.kind,
        phase=attempt.phase,
        decision=attempt.decision_id,
        reason=attempt.reason,
        exit_code=attempt.exit_code,
        started_at=attempt.started_at,
        exited_at=attempt.exited_at,
        ended_at=attempt.ended_at,
        stop_reason=attempt.stop_reason,
        stop_requested_at=attempt.stop_requested_at,
        kill_seen=attempt.kill_seen_at is not None,
        grace_s=job.grace_s,
        allocations=tuple(_allocated(a, attempt) for a in attempt.allocations.all()),
    )


def _allocated(allocation: Allocation, attempt: Attempt) -> Allocated:
    return Allocated(
        allocation_id=allocation.pk,
        attempt=attempt.container_name,
        uuid=allocation.gpu.uuid,
        gpu_node=allocation.gpu.node.name,
        vram_mb=allocation.vram_mb,
        is_exclusive=allocation.is_exclusive,
        reserved_at=allocation.reserved_at,
        released_at=allocation.released_at,
        may_hold=attempt.is_live and attempt.phase in WITH_CONTAINER,
    )


def gpus(since: datetime | None) -> Iterator[tuple[GpuFacts, Iterator[Allocated]]]:
    """Each GPU with its allocations; with `since` the open ones, and those released
    after it."""
    for gpu in GPU.objects.order_by("pk"):
        rows = Allocation.objects.filter(gpu=gpu)
        if since is not None:
            rows = rows.filter(Q(released_at=None) | Q(released_at__gte=since))
        facts = GpuFacts(
            uuid=gpu.uuid,
            hardware_mb=gpu.total_mb - gpu.reserved_mb,
            usable_mb=gpu.usable_mb,
        )
        ordered = rows.order_by("reserved_at", "pk")
        together = ordered.select_related("attempt", "gpu__node")
        yield (
            facts,
            (_allocated(a, a.attempt) for a in together.iterator(chunk_size=AT_ONCE)),
        )
