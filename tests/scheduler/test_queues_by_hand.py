"""Queues whose order, reasons and expected starts were worked out by hand.

It is noon; times are seconds from now. A job that "lasts 600" may hold its GPUs so long
with its limit, its grace and the minute for starting and clearing away. Each row: place
in line, reason, expected start, and how sure that is.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.contrib.auth.models import Group
from rest_framework.test import APIClient

from jobs import lifecycle
from jobs.models import Attempt, Job, Quota, UsageRecord, User
from jobs.spec import Parent
from jobs.status import Condition, Fault
from scheduler.models import GPU, Node
from tests.factories import make_attempt, make_job, make_user
from tests.scheduler.factories import GB, hold, make_gpu, make_node

Expected = tuple[int | None, str, int | None, str]
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
# SLACK_S of the placement, and the grace of a job that says none.
SLACK, GRACE = 60, 10


@dataclass(frozen=True)
class Runs:
    """Holds GPU number `gpu`, whole or so many GB of it, at the latest until then."""

    gpu: int
    until: int
    gb: int | None = None
    owner: str = "zoe"


@dataclass(frozen=True)
class Waits:
    name: str
    expected: Expected
    owner: str = "alice"
    lasts: int = 600
    age: int = 0
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    says: str
    gpus: list[int]
    queue: list[Waits]
    runs: list[Runs] = field(default_factory=list)
    used: dict[str, float] = field(default_factory=dict)
    prepare: Callable[[], Any] = lambda: None
    settings: dict[str, Any] = field(default_factory=dict)


def waits(
    name: str,
    place: int | None,
    reason: str,
    at: int | None,
    certainty: str,
    *,
    owner: str = "alice",
    lasts: int = 600,
    age: int = 0,
    **fields: Any,
) -> Waits:
    return Waits(name, (place, reason, at, certainty), owner, lasts, age, fields)


def exclusive(gb: int | None = None) -> dict[str, Any]:
    return {"min_vram_mb": gb * GB if gb else None}


def shared(gb: int) -> dict[str, Any]:
    return {"min_vram_mb": gb * GB, "share": True}


def of_gpu(**fields: Any) -> Callable[[], Any]:
    return lambda: GPU.objects.update(**fields)


def of_node(**fields: Any) -> Callable[[], Any]:
    return lambda: Node.objects.update(**fields)


def limited(**limits: int) -> Callable[[], Any]:
    return lambda: Quota.objects.create(user=User.objects.get(name="alice"), **limits)


def second_gpu_is(name: str) -> Callable[[], Any]:
    return lambda: GPU.objects.filter(index=1).update(name=name)


CASES = [
    Case(
        "on a free GPU the first starts with the next pass, the second after it",
        [24],
        [
            waits("a", 1, "", 0, "now"),
            waits("b", 2, "resources", 600, "latest", age=-1),
        ],
    ),
    Case(
        "a held GPU comes free at the limit of its job; the next one adds its own",
        [24],
        [
            waits("a", 1, "resources", 1000, "latest", age=9),
            waits("b", 2, "priority", 1600, "estimate", age=8),
            waits("c", 3, "priority", 2200, "estimate", age=7),
        ],
        runs=[Runs(0, 1000)],
    ),
    Case(
        "the higher priority is first though younger",
        [24],
        [
            waits("old", 2, "resources", 1600, "estimate", age=99, priority=40),
            waits("high", 1, "resources", 1000, "latest", priority=50),
        ],
        runs=[Runs(0, 1000)],
    ),
    Case(
        "of one priority whoever used less is first though younger",
        [24],
        [
            waits("alices", 2, "resources", 1600, "estimate", age=99),
            waits("bobs", 1, "resources", 1000, "latest", owner="bob"),
        ],
        runs=[Runs(0, 1000)],
        used={"alice": 10.0, "bob": 9.0},
    ),
    Case(
        "of equal use the older is first, and then owners take turns",
        [24],
        [
            waits("a1", 1, "resources", 1000, "latest", age=99),
            waits("a2", 3, "priority", 2200, "estimate", age=98),
            waits("b1", 2, "resources", 1600, "estimate", owner="bob"),
        ],
        runs=[Runs(0, 1000)],
    ),
    Case(
        "a group's use counts for each of its members",
        [24],
        [
            waits("alices", 2, "resources", 1600, "estimate", age=9, group="vision"),
            waits("bobs", 1, "resources", 1000, "latest", owner="bob", group="text"),
        ],
        runs=[Runs(0, 1000)],
        used={"carol vision": 10.0},
    ),
    Case(
        "six hours at the head of its lane are a point of priority",
        [24],
        [
            waits("aged", 1, "resources", 1000, "latest", age=21_601, priority=49),
            waits("new", 2, "resources", 1600, "estimate", owner="bob"),
        ],
        runs=[Runs(0, 1000)],
    ),
    Case(
        "a second less is not yet a point",
        [24],
        [
            waits("aged", 2, "resources", 1600, "estimate", age=21_599, priority=49),
            waits("new", 1, "resources", 1000, "latest", owner="bob"),
        ],
        runs=[Runs(0, 1000)],
    ),
    Case(
        "what an operator moved to the top is first",
        [24],
        [
            waits("high", 2, "resources", 1600, "estimate", age=9, priority=100),
            waits("top", 1, "resources", 1000, "latest", priority=0, topped_at=NOON),
        ],
        runs=[Runs(0, 1000)],
    ),
    Case(
        "two GPUs come free at the later of two limits",
        [24, 24],
        [waits("pair", 1, "resources", 4000, "latest", gpu_count=2)],
        runs=[Runs(0, 1000), Runs(1, 4000)],
    ),
    Case(
        "a job that is over before the head starts passes it",
        [24, 24],
        [
            waits("pair", 1, "resources", 1000, "latest", age=9, gpu_count=2),
            waits("short", 2, "", 0, "now", lasts=1000),
        ],
        runs=[Runs(0, 1000)],
    ),
    Case(
        "one that may last a second longer waits until the head is over",
        [24, 24],
        [
            waits("pair", 1, "resources", 1000, "latest", age=9, gpu_count=2),
            waits("long", 2, "priority", 1600, "estimate", lasts=1001),
        ],
        runs=[Runs(0, 1000)],
    ),
    Case(
        "a single GPU that comes free long before the pair's is used meanwhile",
        [24, 24],
        [
            waits("pair", 1, "resources", 9000, "latest", age=9, gpu_count=2),
            waits("one", 2, "resources", 1000, "estimate"),
        ],
        runs=[Runs(0, 1000), Runs(1, 9000)],
    ),
    Case(
        "shared jobs fill a GPU to the last MiB",
        [24],
        [waits("a", 1, "", 0, "now", **shared(14))],
        runs=[Runs(0, 1000, gb=10)],
    ),
    Case(
        "one GB too much waits for the first of those that hold it",
        [24],
        [waits("a", 1, "resources", 800, "latest", **shared(15))],
        runs=[Runs(0, 1000, gb=4), Runs(0, 800, gb=6)],
    ),
    Case(
        "an exclusive job waits for the last of those that share the GPU",
        [24],
        [waits("a", 1, "resources", 1000, "latest", **exclusive(2))],
        runs=[Runs(0, 1000, gb=4), Runs(0, 800, gb=6)],
    ),
    Case(
        "a small shared job passes a large one if both fit in the end",
        [24],
        [
            waits("large", 1, "resources", 1000, "latest", age=9, **shared(20)),
            waits("small", 2, "", 0, "now", lasts=9000, **shared(4)),
        ],
        runs=[Runs(0, 1000, gb=14)],
    ),
    Case(
        "and waits until the large one is over if they do not",
        [24],
        [
            waits("large", 1, "resources", 1000, "latest", age=9, **shared(20)),
            waits("small", 2, "priority", 1600, "estimate", lasts=9000, **shared(5)),
        ],
        runs=[Runs(0, 1000, gb=14)],
    ),
    Case(
        "nobody knows when a process outside ends: no time, and nothing passes",
        [24],
        [
            waits("a", 1, "foreign_use", None, "unknown", age=9, **exclusive(22)),
            waits("b", 2, "priority", None, "unknown", **shared(2)),
        ],
        prepare=of_gpu(foreign_mb=20 * GB),
    ),
    Case(
        "a GPU that an operator took out has no time",
        [24],
        [waits("a", 1, "draining", None, "unknown")],
        prepare=of_gpu(state="quarantined", state_reason="fell off the bus"),
    ),
    Case(
        "nor has a node that is drained",
        [24],
        [waits("a", 1, "draining", None, "unknown")],
        prepare=of_node(state="draining", state_reason="new kernel"),
    ),
    Case(
        "nor one that fell silent",
        [24],
        [waits("a", 1, "node_down", None, "unknown")],
        prepare=of_node(heartbeat_at=NOON - timedelta(minutes=5)),
    ),
    Case(
        "who is at a limit has no time, and keeps nobody from the GPU",
        [24, 24],
        [
            # What runs is use, so bob is first.
            waits("a", 2, "quota", None, "unknown", age=9),
            waits("b", 1, "", 0, "now", owner="bob"),
        ],
        runs=[Runs(0, 1000, owner="alice")],
        prepare=limited(running_jobs=1),
    ),
    Case(
        "a job waits for a GPU of its type while another type is free",
        [24, 80],
        [
            waits("a", 1, "resources", 2000, "latest", age=9, gpu_name="*A100*"),
            waits("b", 2, "", 0, "now", lasts=99_999),
        ],
        runs=[Runs(1, 2000)],
        prepare=second_gpu_is("NVIDIA A100-SXM4-80GB"),
    ),
    Case(
        "an image that is not there yet has no time, and keeps nobody from the GPU",
        [24],
        [
            waits("a", 1, "image_pull", None, "unknown", age=9, image="new:1"),
            waits("b", 2, "", 0, "now"),
        ],
        settings={"RUNNER": "docker"},
    ),
    Case(
        "with two reservations the second is kept too, but less sure than the first",
        [24],
        [
            waits("a", 1, "resources", 1000, "latest", age=9, **exclusive(1)),
            waits("b", 2, "resources", 1600, "estimate", age=8, **exclusive(2)),
            waits("c", 3, "resources", 2200, "estimate", age=7, **exclusive(3)),
        ],
        runs=[Runs(0, 1000)],
        settings={"RESERVATIONS": 2},
    ),
    Case(
        "a job past its limit is expected to be gone within the minute",
        [24],
        [waits("a", 1, "resources", 60, "latest")],
        runs=[Runs(0, -500)],
    ),
    Case(
        "CPUs are waited for like GPUs",
        [24, 24],
        [waits("a", 1, "resources", 1000, "latest", cpus=6.0)],
        runs=[Runs(0, 1000)],
        prepare=lambda: Attempt.objects.update(cpus=4.0),
    ),
    Case(
        "what is held or is to begin later has no place in line",
        [24],
        [
            waits("held", None, "held", None, "unknown", age=9, hold=True),
            waits(
                "later",
                None,
                "begin_time",
                None,
                "unknown",
                age=8,
                begin_at=NOON + timedelta(hours=1),
            ),
            waits("b", 1, "", 0, "now"),
        ],
    ),
]


def people() -> dict[str, User]:
    names = ("alice", "bob", "carol", "zoe")
    users = {name: make_user(f"{name}@example.org", name=name) for name in names}
    for name in ("vision", "text"):
        Group.objects.create(name=name)
    return users


def run(users: dict[str, User], gpus: list[GPU], one: Runs) -> None:
    began = NOON - timedelta(hours=10)
    whole = (NOON - began).total_seconds() + one.until - SLACK - GRACE
    with time_machine.travel(began, tick=False):
        job = make_job(users[one.owner], timeout_s=int(whole))
        attempt = make_attempt(job)
        gpu = gpus[one.gpu]
        vram_mb = one.gb * GB if one.gb else gpu.total_mb
        hold(attempt, gpu, vram_mb, exclusive=one.gb is None)


def queue(users: dict[str, User], one: Waits) -> Job:
    later = {k: one.fields[k] for k in ("topped_at",) if k in one.fields}
    fields = {k: v for k, v in one.fields.items() if k not in later}
    timeout_s = one.lasts - SLACK - GRACE
    job = make_job(users[one.owner], name=one.name, timeout_s=timeout_s, **fields)
    created_at = NOON - timedelta(seconds=one.age)
    Job.objects.filter(pk=job.pk).update(created_at=created_at, **later)
    return job


def answered(client: APIClient, job: Job) -> Expected:
    said = client.get(f"/api/v1/jobs/{job.pk}/explain").json()
    at = said["eta"]
    seconds = None
    if at is not None:
        seconds = round((datetime.fromisoformat(at) - NOON).total_seconds())
    return said["place_in_line"], said["reason"], seconds, said["eta_certainty"]


@pytest.mark.django_db
@pytest.mark.parametrize("case", CASES, ids=[case.says for case in CASES])
def test_the_api_says_what_was_worked_out_by_hand(
    case: Case, api: Callable[..., APIClient], settings: Any
) -> None:
    for name, value in case.settings.items():
        setattr(settings, name, value)
    with time_machine.travel(NOON, tick=False):
        users = people()
        node = make_node()
        gpus = [make_gpu(node, gb * GB) for gb in case.gpus]
        for one in case.runs:
            run(users, gpus, one)
        for who, vram_mb_seconds in case.used.items():
            owner, _, group = who.partition(" ")
            UsageRecord.objects.create(
                owner=f"{owner}@example.org",
                group=group,
                job=who,
                attempt_number=1,
                gpu_seconds=1,
                vram_mb_seconds=vram_mb_seconds,
                fault=Fault.NOBODY,
            )
        jobs = {one.name: queue(users, one) for one in case.queue}
        case.prepare()
        said = {
            one.name: answered(api(users[one.owner]), jobs[one.name])
            for one in case.queue
        }
    assert said == {one.name: one.expected for one in case.queue}


def test_a_job_that_depends_on_another_has_no_place_until_that_has_ended(
    api: Callable[..., APIClient], alice: User
) -> None:
    make_gpu(make_node())
    parent = make_job(alice)
    waits_for = [Parent(job_id=parent.pk, condition=Condition.AFTER_ANY)]
    child = make_job(alice, depends_on=waits_for)
    assert answered(api(alice), child) == (None, "dependency", None, "unknown")
    lifecycle.request_cancel(parent, by=alice)
    lifecycle.resolve_dependencies(by="scheduler")
    place, reason, _, certainty = answered(api(alice), child)
    assert (place, reason, certainty) == (1, "", "now")
