"""The queue as lanes: jobs of one owner, priority and request, the oldest first."""

import hashlib
from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.conf import settings
from django.db.models import BooleanField, ExpressionWrapper, Q

from jobs.models import Attempt, Job
from jobs.spec.array import parse
from jobs.status import FOR_ALL_BEHIND
from jobs.waiting import IN_LINE, behind
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
_OF_LANE = ("owner__email", "group", "priority", "topped_at", "array_id", "array")
_COLUMNS = (
    "pk",
    "created_at",
    "log_path",
    "wait_reason",
    "is_plain",
    *_OF_LANE,
    *SHAPE,
)
# Whether a job says what is said of all behind a first one.
_IS_PLAIN = ExpressionWrapper(
    Q(wait_text__in=[IN_LINE[1], *(behind(reason)[1] for reason in FOR_ALL_BEHIND)]),
    output_field=BooleanField(),
)


class Line(NamedTuple):
    """The waiting jobs as lanes, and of each job the reason that is written on it; None
    with a text of its own, which it has while it is the first of its lane."""

    lanes: list[Lane]
    reasons: dict[str, str | None]


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
    """Under which it is remembered when the lane was last served: of whatever limit and
    array its jobs are, or a flood with a second more each would age as many."""
    asked = replace(lane.request, timeout_s=0, grace_s=0)
    told = repr((lane.owner, lane.group, lane.priority, asked))
    return hashlib.sha1(told.encode(), usedforsecurity=False).hexdigest()


def load_lanes(now: datetime) -> Line:
    """All jobs that could start, not only the first: which are first is decided by
    what their owners had."""
    grouped: dict[tuple[Any, ...], list[tuple[str, float]]] = {}
    requests: dict[tuple[Any, ...], placement.Request] = {}
    was_started: set[str] = set()
    reasons: dict[str, str | None] = {}
    rows = Job.objects.ready(now).annotate(is_plain=_IS_PLAIN)
    rows = rows.order_by("created_at", "id")
    columns = rows.values_list(*_COLUMNS)
    for pk, created_at, log_path, reason, is_plain, *rest in columns:
        job_id, shape = str(pk), rest[len(_OF_LANE) :]
        shape[-1] = tuple(sorted(shape[-1].items()))
        request = requests.get(tuple(shape)) or request_from(tuple(shape))
        requests[tuple(shape)] = request
        key = (*rest[: len(_OF_LANE)], request)
        grouped.setdefault(key, []).append((job_id, created_at.timestamp()))
        if log_path:
            was_started.add(job_id)
        reasons[job_id] = reason if is_plain else None
    lanes = [_lane(key, jobs) for key, jobs in grouped.items()]
    return Line(_aged(_counted(lanes), was_started, now), reasons)


def _lane(key: tuple[Any, ...], jobs: list[tuple[str, float]]) -> Lane:
    owner, group, priority, topped_at, array_id, array, request = key
    return Lane(
        request=request,
        jobs=tuple(jobs),
        owner=owner,
        group=group,
        priority=priority,
        aged_from=jobs[0][1],
        topped_at=topped_at.timestamp() if topped_at else 0.0,
        array_id=str(array_id) if array_id else "",
        array_limit=parse(array).limit if array else None,
    )


def _counted(lanes: list[Lane]) -> list[Lane]:
    """How many tasks run of each array that lets only so many run at once."""
    limited = {lane.array_id for lane in lanes if lane.array_limit is not None}
    if not limited:
        return lanes
    live = Attempt.objects.running().filter(job__array_id__in=limited)
    running = Counter(map(str, live.values_list("job__array_id", flat=True)))
    return [replace(lane, array_running=running[lane.array_id]) for lane in lanes]


def _aged(lanes: list[Lane], was_started: set[str], now: datetime) -> list[Lane]:
    """A lane ages from when it was last served, except a job that was requeued: that
    keeps its age. Younger lanes than a step of aging are not looked up."""
    since = (now - timedelta(hours=settings.AGING_H)).timestamp()
    old: dict[str, list[int]] = {}
    for i, lane in enumerate(lanes):
        if lane.aged_from <= since and lane.jobs[0][0] not in was_started:
            old.setdefault(lane_key(lane), []).append(i)
    served = LaneRow.objects.filter(key__in=old)
    for key, served_at in served.values_list("key", "served_at"):
        for i in old[key]:
            aged_from = max(lanes[i].aged_from, served_at.timestamp())
            lanes[i] = replace(lanes[i], aged_from=aged_from)
    return lanes
