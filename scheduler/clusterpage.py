"""What the cluster page shows: each GPU with who is on it, the line, and its health."""

import shutil
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import Avg
from django.db.models.functions import TruncMinute
from django.utils import timezone

from jobs.models import Attempt, Job, User
from jobs.status import TERMINAL, Kind, Status
from scheduler import reservation
from scheduler.bars import Part, parts
from scheduler.models import GPU, Allocation, GpuSample, GpuState, Node, PassLease

# Of a supervisor that beats every second and samples every two.
SILENCE = timedelta(seconds=15)
MOST_NEXT = 6
MOST_ENDED = 6
FULL = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """An attempt on a GPU; `job` is None of one that the person may not see."""

    job: Job | None
    until: datetime | None  # its limit, None while it starts


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    gpu: GPU
    parts: list[Part]
    free_mb: int
    holders: Sequence[Holder]
    strangers: Sequence[Mapping[str, Any]]
    state: str  # free, busy, draining, quarantined, lost
    is_exclusive: bool
    is_stale: bool
    spark: str  # the points of a line, empty where there is nothing to show


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    node: Node
    is_silent: bool
    millicpus: int
    memory_mb: int
    cards: Sequence[Card]


def hosts(user: User, now: datetime) -> list[Host]:
    held = _held()
    seen = set(_visible(user, held))
    sparks = _sparks(now)
    gpus: dict[int, list[Card]] = defaultdict(list)
    for gpu in GPU.objects.select_related("node").order_by("node__name", "index"):
        mine = held.get(gpu.pk, [])
        card = _card(gpu, mine, seen, sparks.get(gpu.pk, {}), now)
        gpus[gpu.node_id].append(card)
    taken = _taken()
    return [
        Host(
            node=node,
            is_silent=not node.heartbeat_at or node.heartbeat_at < now - SILENCE,
            millicpus=taken[node.name][0],
            memory_mb=taken[node.name][1],
            cards=gpus[node.pk],
        )
        for node in Node.objects.order_by("name")
    ]


def _held() -> dict[int, list[Allocation]]:
    rows = Allocation.objects.live().select_related("attempt__job__owner")
    held: dict[int, list[Allocation]] = defaultdict(list)
    for row in rows.order_by("id"):
        held[row.gpu_id].append(row)
    return held


def _visible(user: User, held: Mapping[int, Sequence[Allocation]]) -> Iterable[Any]:
    ids = {row.attempt.job_id for rows in held.values() for row in rows}
    return Job.objects.visible_to(user).filter(pk__in=ids).values_list("pk", flat=True)


def _card(
    gpu: GPU,
    held: Sequence[Allocation],
    seen: set[Any],
    spark: Mapping[datetime, float],
    now: datetime,
) -> Card:
    need = sum(max(row.vram_mb, row.measured_mb) for row in held)
    bar = parts(
        gpu.usable_mb,
        measured_mb=sum(row.measured_mb for row in held),
        need_mb=need,
        foreign_mb=gpu.foreign_mb,
    )
    return Card(
        gpu=gpu,
        parts=bar,
        free_mb=max(0, gpu.usable_mb - sum(part.mb for part in bar)),
        holders=[_holder(row.attempt, seen) for row in held],
        strangers=gpu.foreign_processes,
        state=_state(gpu, held),
        is_exclusive=any(row.is_exclusive for row in held),
        is_stale=gpu.sampled_at is None or gpu.sampled_at < now - SILENCE,
        spark=_points(spark, now),
    )


def _holder(attempt: Attempt, seen: set[Any]) -> Holder:
    job, started = attempt.job, attempt.started_at
    until = started + timedelta(seconds=job.timeout_s) if started else None
    return Holder(job=job if job.pk in seen else None, until=until)


def _state(gpu: GPU, held: Sequence[Allocation]) -> str:
    if not gpu.is_present:
        return "lost"
    if gpu.state != GpuState.ENABLED:
        return str(gpu.state)
    return "busy" if held else "free"


def _taken() -> dict[str, tuple[int, int]]:
    taken: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    rows = Attempt.objects.running().values_list("node", "cpus", "memory_mb")
    for node, cpus, memory_mb in rows:
        before = taken[node]
        added = round((cpus or 0) * 1000), memory_mb or 0
        taken[node] = before[0] + added[0], before[1] + added[1]
    return taken


# --- The last hour -------------------------------------------------------------------

MINUTES, HEIGHT = 60, 30


def _sparks(now: datetime) -> dict[int, dict[datetime, float]]:
    """By GPU the mean utilisation of each minute of the last hour."""
    since = now - timedelta(minutes=MINUTES)
    rows = GpuSample.objects.filter(at__gte=since, utilisation__isnull=False)
    means = rows.annotate(minute=TruncMinute("at")).order_by().values("gpu", "minute")
    found: dict[int, dict[datetime, float]] = defaultdict(dict)
    for row in means.annotate(mean=Avg("utilisation")):
        found[row["gpu"]][row["minute"]] = row["mean"]
    return found


def _points(means: Mapping[datetime, float], now: datetime) -> str:
    """Of a line in a box of MINUTES by HEIGHT; a minute without a sample has no point."""
    last = now.replace(second=0, microsecond=0)
    points = []
    for minute, mean in sorted(means.items()):
        x = MINUTES - 1 - (last - minute) // timedelta(minutes=1)
        if 0 <= x < MINUTES:
            points.append(f"{x},{HEIGHT - mean * (HEIGHT - 2) / 100:.1f}")
    return " ".join(points)


# --- Beside the GPUs -----------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A job in line; `job` is None of one that the person may not see."""

    job: Job | None
    reason: str
    text: str


def next_in_line(user: User, now: datetime) -> list[Waiting]:
    """The first by priority and age; a pass looks at fair share as well."""
    first = list(Job.objects.queued().select_related("owner")[:MOST_NEXT])
    ids = [job.pk for job in first]
    mine = Job.objects.visible_to(user).filter(pk__in=ids)
    seen = set(mine.values_list("pk", flat=True))
    return [
        Waiting(
            job=job if job.pk in seen else None,
            reason=job.wait_reason,
            text=job.wait_text if job.pk in seen else "",
        )
        for job in first
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    passed_at: datetime | None
    is_scheduler_silent: bool
    disk_full: float  # 0 to 1, of the data root
    disk_free_mb: int

    @property
    def is_disk_full(self) -> bool:
        return self.disk_full >= FULL


def health() -> Health:
    lease = PassLease.objects.filter(pk=1).first()
    disk = shutil.disk_usage(settings.DATA_ROOT)
    return Health(
        passed_at=lease.passed_at if lease else None,
        is_scheduler_silent=reservation.is_silent(),
        disk_full=1 - disk.free / disk.total,
        disk_free_mb=disk.free // 2**20,
    )


def counts() -> dict[str, int]:
    """By what is indexed: jobs that ended are many."""
    return {
        "live": Attempt.objects.running().filter(kind=Kind.JOB).count(),
        "queued": Job.objects.filter(status=Status.QUEUED).count(),
    }


def ended_lately(user: User) -> list[Job]:
    """Of the newest jobs those that ended last."""
    rows = Job.objects.visible_to(user).filter(status__in=TERMINAL)
    newest = rows.order_by("-created_at")[: 5 * MOST_ENDED]
    return sorted(newest, key=_finished_at, reverse=True)[:MOST_ENDED]


def _finished_at(job: Job) -> datetime:
    assert job.finished_at is not None
    return job.finished_at


def page(user: User) -> dict[str, Any]:
    """All of it, as one look."""
    now = timezone.now()
    found = hosts(user, now)
    cards = [card for host in found for card in host.cards]
    return {
        "hosts": found,
        "gpus": len(cards),
        "busy": sum(card.state == "busy" for card in cards),
        "foreign": sum(bool(card.gpu.foreign_mb) for card in cards),
        "out": sum(card.state not in ("busy", "free") for card in cards),
        "waiting": next_in_line(user, now),
        "ended": ended_lately(user),
        "health": health(),
        "now": now,
        **counts(),
    }
