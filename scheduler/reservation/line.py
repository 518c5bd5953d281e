"""The queue as lanes: jobs of one owner, priority and request, the oldest first."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.conf import settings

from jobs.models import Attempt, Job
from jobs.spec.array import parse
from scheduler import placement
from scheduler.models import Lane as LaneRow
from scheduler.placement import Lane

# The fields of a job that make its request, in the order of `request_from`.
SHAPE = (
    "gpu_count",
    "min_vram_mb",
    "share",
    "gpu_name",
    "image",
    "cpus",
    "memory_mb",
    "shm_mb",
    "node_name",
    "timeout_s",
    "grace_s",
    "node_labels",
)
_COLUMNS = (
    "pk",
    "created_at",
    "log_path",
    "wait_reason",
    "owner__email",
    "group",
    "priority",
    "topped_at",
    "array_id",
    "array",
    *SHAPE,
)


class Line(NamedTuple):
    """The waiting jobs as lanes, and of each job the reason that is written on it."""

    lanes: list[Lane]
    reasons: dict[str, str]


def request_of(job: Job) -> placement.Request:
    return request_from(tuple(getattr(job, name) for name in SHAPE))


def request_from(shape: tuple[Any, ...]) -> placement.Request:
    """Of the values of SHAPE."""
    values = dict(zip(SHAPE, shape, strict=True))
    if settings.RUNNER == "process":  # a process has no image
        values["image"] = ""
    labels = tuple(sorted(dict(values["node_labels"]).items()))
    return placement.Request(**{**values, "node_labels": labels})


def lane_key(lane: Lane) -> str:
    """Under which it is remembered when the lane was last served."""
    told = repr((lane.owner, lane.group, lane.priority, lane.request))
    return hashlib.sha1(told.encode(), usedforsecurity=False).hexdigest()


def load_lanes(now: datetime) -> Line:
    """All jobs that could start, not only the first: which are first is decided by
    what their owners had."""
    grouped: dict[tuple[Any, ...], list[tuple[str, float]]] = {}
    was_started: set[str] = set()
    reasons: dict[str, str] = {}
    rows = Job.objects.ready(now).order_by("created_at", "id").values_list(*_COLUMNS)
    for pk, created_at, log_path, reason, *rest in rows:
        job_id = str(pk)
        reasons[job_id] = reason
        rest[-1] = tuple(rest[-1].items())
        jobs = grouped.setdefault(tuple(rest), [])
        jobs.append((job_id, created_at.timestamp()))
        if log_path:
            was_started.add(job_id)
    lanes = list(_lanes(grouped))
    return Line(_aged(_counted(lanes, grouped), was_started, now), reasons)


def _lanes(
    grouped: Mapping[tuple[Any, ...], list[tuple[str, float]]],
) -> Iterable[Lane]:
    requests: dict[tuple[Any, ...], placement.Request] = {}
    for key, jobs in grouped.items():
        owner, group, priority, topped_at, _, array, *shape = key
        asked = tuple(shape)
        if asked not in requests:
            requests[asked] = request_from(asked)
        yield Lane(
            request=requests[asked],
            jobs=tuple(jobs),
            owner=owner,
            group=group,
            priority=priority,
            aged_from=jobs[0][1],
            topped_at=topped_at.timestamp() if topped_at else 0.0,
            array_limit=parse(array).limit if array else None,
        )


def _counted(lanes: list[Lane], grouped: Mapping[tuple[Any, ...], Any]) -> list[Lane]:
    """How many tasks run of each array that lets only so many run at once."""
    arrays = [key[4] for key in grouped]
    limited = {
        array_id
        for array_id, lane in zip(arrays, lanes, strict=True)
        if lane.array_limit is not None
    }
    if not limited:
        return lanes
    running: dict[Any, int] = {}
    live = Attempt.objects.running().filter(job__array_id__in=limited)
    for array_id in live.values_list("job__array_id", flat=True):
        running[array_id] = running.get(array_id, 0) + 1
    return [
        replace(lane, array_running=running.get(array_id, 0))
        for array_id, lane in zip(arrays, lanes, strict=True)
    ]


def _aged(lanes: list[Lane], was_started: set[str], now: datetime) -> list[Lane]:
    """A lane ages from when it was last served, except a job that was requeued: that
    keeps its age. Younger lanes than a step of aging are not looked up."""
    since = (now - timedelta(hours=settings.AGING_H)).timestamp()
    old = {
        lane_key(lane): i
        for i, lane in enumerate(lanes)
        if lane.aged_from <= since and lane.jobs[0][0] not in was_started
    }
    served = LaneRow.objects.filter(key__in=old, served_at__isnull=False)
    for key, served_at in served.values_list("key", "served_at"):
        lane = lanes[old[key]]
        aged_from = max(lane.aged_from, served_at.timestamp())
        lanes[old[key]] = replace(lane, aged_from=aged_from)
    return lanes
