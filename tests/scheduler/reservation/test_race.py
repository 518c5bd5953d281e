"""Eight processes reserve at once: the database lets no GPU be given twice.

The same race with the guards dropped does give some twice; without that, the test
would prove nothing.
"""

import multiprocessing
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import DatabaseError, connection, connections
from django.db.models.functions import Greatest, Now

from jobs.models import Attempt, Job
from scheduler.models import Allocation
from tests.factories import IMAGE, make_user
from tests.scheduler.factories import GB, make_gpu, make_node

pytestmark = pytest.mark.django_db(transaction=True)

PROCESSES = 8
SECONDS = 3.0
GPUS = 4
OVER = """
SELECT count(*) FROM (
  SELECT gpu_id FROM scheduler_allocation JOIN scheduler_gpu g ON g.id = gpu_id
  WHERE released_at IS NULL
  GROUP BY gpu_id, g.total_mb
  HAVING sum(vram_mb) > g.total_mb
      OR (max(CASE WHEN is_exclusive THEN 1 ELSE 0 END) = 1 AND count(*) > 1)
) AS over_allocated
"""


def over_allocated() -> int:
    """GPUs that are over-allocated now, by one statement on one snapshot."""
    with connection.cursor() as cursor:
        cursor.execute(OVER)
        return int(cursor.fetchone()[0])


def race(number: int, attempts: list[Any], gpus: list[int], results: Any) -> None:
    """Read what is free, then insert: what a scheduler with no guard would do."""
    random.seed(number)
    reserved = refused = 0
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        try:
            reserved += reserve_or_release(attempts, random.choice(gpus))
        except DatabaseError:
            refused += 1
    results.put((reserved, refused))
    connections.close_all()


def reserve_or_release(attempts: list[Any], gpu_id: int) -> int:
    held = list(Allocation.objects.live().filter(gpu_id=gpu_id))
    free = 24 * GB - sum(allocation.vram_mb for allocation in held)
    exclusive = not held and random.random() < 0.5
    vram_mb = 24 * GB if exclusive else random.randint(6, 12) * GB
    if free < vram_mb or any(allocation.is_exclusive for allocation in held):
        chosen = Allocation.objects.filter(pk=random.choice(held).pk)
        chosen.filter(released_at=None).update(
            released_at=Greatest("reserved_at", Now())
        )
        return 0
    Allocation.objects.create(
        attempt_id=attempts.pop(),
        gpu_id=gpu_id,
        vram_mb=vram_mb,
        is_exclusive=exclusive,
    )
    return 1


def make_attempts(count: int) -> list[Any]:
    owner = make_user()
    jobs = [Job(owner=owner, name="j", image=IMAGE) for _ in range(count)]
    Job.objects.bulk_create(jobs)
    attempts = [Attempt(job=job, number=1, node="gauss") for job in jobs]
    return [attempt.pk for attempt in Attempt.objects.bulk_create(attempts)]


def run_race() -> tuple[int, int, int]:
    """How many were reserved, refused, and seen to be over-allocated."""
    node = make_node()
    gpus = [make_gpu(node).pk for _ in range(GPUS)]
    attempts = make_attempts(PROCESSES * 2000)
    connections.close_all()
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    racers = [
        context.Process(target=race, args=(n, attempts[n::PROCESSES], gpus, results))
        for n in range(PROCESSES)
    ]
    for racer in racers:
        racer.start()
    over = 0
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        over += over_allocated()
    outcomes = [results.get(timeout=120) for _ in racers]
    for racer in racers:
        racer.join()
    reserved, refused = map(sum, zip(*outcomes, strict=True))
    return reserved, refused, over + over_allocated()


@contextmanager
def guards_dropped() -> Iterator[None]:
    index = "allocation_exclusive_alone"
    if connection.vendor == "sqlite":
        look = "SELECT sql FROM sqlite_master WHERE name = %s"
        trigger, drop = "guard_allocation_open", "DROP TRIGGER guard_allocation_open"
    else:
        look = "SELECT indexdef FROM pg_indexes WHERE indexname = %s"
        trigger, drop = (
            "",
            "ALTER TABLE scheduler_allocation DISABLE TRIGGER guard_open",
        )
    with connection.cursor() as cursor:
        saved = []
        for name in filter(None, (index, trigger)):
            cursor.execute(look, [name])
            saved.append(cursor.fetchone()[0])
        cursor.execute(drop)
        cursor.execute(f"DROP INDEX {index}")
    try:
        yield
    finally:
        Allocation.objects.live().update(released_at=Greatest("reserved_at", Now()))
        if connection.vendor != "sqlite":
            saved.append("ALTER TABLE scheduler_allocation ENABLE TRIGGER guard_open")
        with connection.cursor() as cursor:
            for statement in saved:
                cursor.execute(statement)


def test_eight_processes_give_no_gpu_twice() -> None:
    reserved, _, over = run_race()
    assert over == 0
    assert reserved > 100


def test_without_the_guards_the_same_race_gives_some_twice() -> None:
    with guards_dropped():
        _, _, over = run_race()
    assert over > 0
