"""What a pass decides on: nodes, GPUs with both ledgers, images, accounts."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import Q
from django.utils import timezone

from jobs.models import Attempt
from jobs.status import WITH_CONTAINER, Kind
from scheduler import placement
from scheduler.models import GPU, Allocation, ImageState, Node, NodeImage, NodeState
from scheduler.placement import CHARGED_AT_ONCE_S, SLACK_S, Holding, Lane, Taken
from scheduler.reservation.accounts import Live, load_accounts
from scheduler.reservation.line import SHAPE, request_from

# A node whose supervisor was not heard of for so long takes no new job.
SILENCE = timedelta(seconds=30)
# Of a node's memory, for the system and us.
MOST_SYSTEM_MB = 4096


@dataclass(slots=True)
class _Live:
    """A live attempt, with what it holds, and what it held until its exit."""

    row: dict[str, Any]
    request: placement.Request
    until: float
    gpus: int = 0
    vram_mb: int = 0
    gpu_seconds: float = 0.0
    usage: float = 0.0

    @property
    def is_running(self) -> bool:
        return self.row["phase"] in WITH_CONTAINER

    def add(self, now: datetime, allocation: Allocation) -> None:
        ended_at = allocation.released_at or now
        held_s = max(0.0, (ended_at - allocation.reserved_at).total_seconds())
        self.gpu_seconds += held_s
        if allocation.released_at is None:
            self.gpus += 1
            self.vram_mb += allocation.vram_mb
            held_s = max(held_s, min(self.request.timeout_s, CHARGED_AT_ONCE_S))
        self.usage += allocation.vram_mb * held_s


def load_snapshot(
    now: datetime | None = None, lanes: Iterable[Lane] = ()
) -> placement.Snapshot:
    """With the accounts of those whose jobs run or are in `lanes`."""
    now = now or timezone.now()
    live = _live_attempts(now)
    holdings = _holdings(now, live)
    running = [one for one in live.values() if one.is_running]
    waiting = list(lanes)
    owners, groups = load_accounts(
        now,
        [_account_of(one) for one in live.values()],
        {lane.owner for lane in waiting} | {one.row["owner"] for one in live.values()},
        {lane.group for lane in waiting} | {one.row["group"] for one in live.values()},
    )
    shapes = Counter(one.request for one in running)
    nodes = {node.name: node for node in _nodes(now, running)}
    return placement.Snapshot(
        now=now.timestamp(),
        nodes=nodes,
        # A node may have joined between the two looks.
        gpus={gpu.id: gpu for gpu in _gpus(holdings) if gpu.node in nodes},
        foreign_tolerance_mb=settings.FOREIGN_TOLERANCE_MB,
        reservations=settings.RESERVATIONS,
        aging_s=settings.AGING_H * 3600,
        owners=owners,
        groups=groups,
        running=tuple(shapes.items()),
    )


def load_hardware() -> placement.Snapshot:
    """Nodes and GPUs alone: for what could never be placed, whoever has what."""
    nodes = {node.name: node for node in _nodes(timezone.now(), ())}
    gpus = {gpu.id: gpu for gpu in _gpus(defaultdict(list)) if gpu.node in nodes}
    return placement.Snapshot(nodes=nodes, gpus=gpus)


def _live_attempts(now: datetime) -> dict[Any, _Live]:
    columns = {
        "pk": "pk",
        "node": "node",
        "phase": "phase",
        "kind": "kind",
        "cpus": "cpus",
        "memory_mb": "memory_mb",
        "created_at": "created_at",
        "started_at": "started_at",
        "owner": "job__owner__email",
        "group": "job__group",
    }
    shape = [f"job__{name}" for name in SHAPE]
    rows = Attempt.objects.live().order_by("pk")
    live = {}
    for values in rows.values_list(*columns.values(), *shape):
        row = dict(zip(columns, values, strict=False))
        request = request_from(tuple(values[len(columns) :]))
        live[row["pk"]] = _Live(row, request, _until(now, row, request))
    return live


def _until(now: datetime, row: dict[str, Any], request: placement.Request) -> float:
    """When it is gone at the latest. Late starts count from when they came, and until
    then from now; a usual start is within the slack, so that this does not drift."""
    began = row["created_at"].timestamp() + SLACK_S
    came = row["started_at"] or now
    return max(began, came.timestamp()) + request.limit_s


def _holdings(now: datetime, live: dict[Any, _Live]) -> dict[int, list[Holding]]:
    """By GPU, what is held; and onto the live attempts, what each holds and held."""
    holdings: dict[int, list[Holding]] = defaultdict(list)
    still = Q(released_at__isnull=True) | Q(attempt__ended_at__isnull=True)
    for allocation in Allocation.objects.filter(still).order_by("id"):
        one = live.get(allocation.attempt_id)
        if one is not None:
            one.add(now, allocation)
        if allocation.released_at is None:
            holding = Holding(
                promised_mb=allocation.vram_mb,
                measured_mb=allocation.measured_mb,
                is_exclusive=allocation.is_exclusive,
                until=one.until if one else float("inf"),
            )
            holdings[allocation.gpu_id].append(holding)
    return holdings


def _account_of(one: _Live) -> Live:
    return Live(
        owner=one.row["owner"],
        group=one.row["group"],
        # A validator attempt is part of a job that has run.
        is_running=one.is_running and one.row["kind"] == Kind.JOB,
        gpus=one.gpus,
        vram_mb=one.vram_mb,
        gpu_seconds=one.gpu_seconds,
        usage=one.usage,
    )


def _nodes(now: datetime, running: Iterable[_Live]) -> list[placement.Node]:
    images: dict[int, set[str]] = defaultdict(set)
    pulls: dict[int, dict[str, str]] = defaultdict(dict)
    for row in NodeImage.objects.all():
        if row.state == ImageState.PRESENT:
            images[row.node_id].add(row.image)
        else:
            pulls[row.node_id][row.image] = row.text or row.state
    taken: dict[str, list[Taken]] = defaultdict(list)
    for one in running:
        taken[one.row["node"]].append(_taken(one))
    return [
        placement.Node(
            name=node.name,
            state=_state(node, now),
            state_reason=_why_out(node),
            cpus=node.cpus,
            memory_mb=node.memory_mb - min(node.memory_mb // 10, MOST_SYSTEM_MB),
            labels=node.labels,
            taken=tuple(taken[node.name]),
            images=frozenset(images[node.pk]),
            pulls=pulls[node.pk],
        )
        for node in Node.objects.all()
    ]


def _state(node: Node, now: datetime) -> str:
    if node.heartbeat_at and node.heartbeat_at > now - SILENCE:
        return node.state
    return NodeState.DOWN.value


def _taken(one: _Live) -> Taken:
    return Taken(
        millicpus=round((one.row["cpus"] or 0) * 1000),
        memory_mb=one.row["memory_mb"] or 0,
        until=one.until,
    )


def _gpus(holdings: dict[int, list[Holding]]) -> list[placement.Gpu]:
    return [
        placement.Gpu(
            id=gpu.pk,
            uuid=gpu.uuid,
            index=gpu.index,
            name=gpu.name,
            node=gpu.node.name,
            total_mb=gpu.total_mb,
            reserved_mb=gpu.reserved_mb,
            headroom_mb=gpu.headroom_mb,
            foreign_mb=gpu.foreign_mb,
            foreign_by=_foreign_by(gpu.foreign_processes),
            state=gpu.state,
            state_reason=_why_out(gpu),
            is_present=gpu.is_present,
            peers=tuple(sorted(gpu.nvlink_peers)),
            holdings=tuple(holdings[gpu.pk]),
        )
        for gpu in GPU.objects.select_related("node").order_by("node__name", "index")
    ]


def _why_out(row: Node | GPU) -> str:
    """With the time at which it comes back, which is meant for those who wait."""
    if row.state_until is None:
        return row.state_reason
    until = row.state_until.astimezone(UTC)
    return f"{row.state_reason}, until {until:%Y-%m-%d %H:%M} UTC"


def _foreign_by(processes: list[dict[str, Any]]) -> str:
    """The largest of them, in words."""
    if not processes:
        return ""
    largest = max(processes, key=lambda process: process["used_mb"] or 0)
    inside = f" in container {largest['container']}" if largest["container"] else ""
    # Of a process that has just ended only its number is known.
    who = f"{largest['process']} of {largest['user']}, " if largest["user"] else ""
    told = f"{who}pid {largest['pid']}{inside}"
    more = len(processes) - 1
    return told + (f", and {more} more" if more else "")
