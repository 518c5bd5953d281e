"""What must hold: tables of facts and findings. Each row carries its sentence."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobs.status import Phase, Reason, Status
from scheduler.invariants import (
    INVARIANTS,
    Allocated,
    ArtifactFacts,
    AttemptFacts,
    Finding,
    GpuFacts,
    GpuProcess,
    HostFacts,
    JobFacts,
    LogFacts,
    Look,
    check_gpu,
    check_guards,
    check_host,
    check_job,
    confirmed,
    could_not_look,
)
from scheduler.runner.base import ContainerState, Observation, Stray
from scheduler.strays import OurStray

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
HOUR, MINUTE, SECOND = (
    timedelta(**{unit: 1}) for unit in ("hours", "minutes", "seconds")
)
GB = 1024

# --- Jobs ----------------------------------------------------------------------------

HELD = Allocated(
    allocation_id=1,
    attempt="gpujob-x-1",
    uuid="GPU-a",
    gpu_node="gauss",
    vram_mb=8 * GB,
    is_exclusive=False,
    reserved_at=NOW - HOUR,
)
RUNS = AttemptFacts(
    name="gpujob-x-1",
    number=1,
    node="gauss",
    nonce="n1",
    phase=Phase.RUNNING,
    started_at=NOW - HOUR,
    allocations=(HELD,),
)
RELEASED = replace(HELD, released_at=NOW, may_hold=False)
OVER: dict[str, Any] = {
    "phase": "",
    "ended_at": NOW,
    "exited_at": NOW,
    "allocations": (RELEASED,),
}
WELL = replace(RUNS, **OVER, reason=Reason.COMPLETED, exit_code=0)
LOST = replace(RUNS, **OVER, reason=Reason.NODE_LOST)
FAILED = replace(RUNS, **OVER, reason=Reason.NONZERO_EXIT, exit_code=1)


def again(attempt: AttemptFacts, **fields: Any) -> AttemptFacts:
    return replace(attempt, number=2, name="gpujob-x-2", **fields)


def job(status: str, *attempts: AttemptFacts, **fields: Any) -> JobFacts:
    is_over = status in ("succeeded", "failed", "cancelled")
    defaults: dict[str, Any] = {
        "finished_at": NOW if is_over else None,
        "endings": int(is_over),
        "exit_code": attempts[-1].exit_code if is_over and attempts else None,
    }
    told = {"job_id": "x", "status": status, "gpu_count": 1, "attempts": attempts}
    return JobFacts(**defaults | told | fields)


SUCCEEDED = job(Status.SUCCEEDED, WELL)
ASKED: dict[str, Any] = {
    "stop_reason": Reason.TIMED_OUT,
    "stop_requested_at": NOW - MINUTE,
}

JOBS = [
    ("a queued job has nothing", job("queued"), []),
    ("a running job holds what it asked for", job("running", RUNS), []),
    (
        "a starting job holds it too",
        job("starting", replace(RUNS, phase=Phase.STARTING)),
        [],
    ),
    (
        "after the exit was seen it holds nothing, and is running still",
        job("running", replace(RUNS, phase=Phase.COLLECTING, allocations=(RELEASED,))),
        [],
    ),
    (
        "a job without a GPU",
        job("running", replace(RUNS, allocations=()), gpu_count=0),
        [],
    ),
    ("a job that succeeded", SUCCEEDED, []),
    ("a job that failed", job("failed", FAILED), []),
    ("a job cancelled before it started", job("cancelled"), []),
    ("queued again after an infra fault", job("queued", LOST), []),
    ("an infra fault, then success", job("succeeded", LOST, again(WELL)), []),
    (
        "ended without a time",
        replace(SUCCEEDED, finished_at=None),
        ["I2 finished_at"],
    ),
    (
        "a time of its end, and queued",
        job("queued", finished_at=NOW),
        ["I2 finished_at"],
    ),
    ("it ended twice", replace(SUCCEEDED, endings=2), ["I2 endings"]),
    ("nobody told of its end", replace(SUCCEEDED, endings=0), ["I2 endings"]),
    ("its end is told and it runs", job("running", RUNS, endings=1), ["I2 endings"]),
    ("running without an attempt", job("running"), ["I3 live_job"]),
    ("running after its attempt ended", job("running", LOST), ["I3 live_job"]),
    (
        "two live attempts",
        job("running", RUNS, again(RUNS)),
        ["I3 live_job", "I5 started_again"],
    ),
    ("queued with a live attempt", job("queued", RUNS), ["I3 ended_job"]),
    (
        "failed with a live attempt",
        job("failed", RUNS),
        ["I3 ended_job"],
    ),
    (
        "an ended attempt that holds a GPU",
        job("failed", replace(FAILED, allocations=(HELD,))),
        ["I3 holds"],
    ),
    (
        "one that is being collected and holds a GPU",
        job("running", replace(RUNS, phase=Phase.COLLECTING)),
        ["I3 holds"],
    ),
    (
        "one that runs and holds none",
        job("running", replace(RUNS, allocations=())),
        ["I3 holds"],
    ),
    (
        "one that holds two and asked for one",
        job("running", replace(RUNS, allocations=(HELD, HELD))),
        ["I3 holds"],
    ),
    (
        "one that holds a GPU of another node",
        job("running", replace(RUNS, allocations=(replace(HELD, gpu_node="noether"),))),
        ["I3 other_node"],
    ),
    (
        "a success with exit code 1",
        job("succeeded", replace(WELL, exit_code=1)),
        ["I6 false_success"],
    ),
    (
        "a success whose exit code nobody saw",
        job("succeeded", replace(WELL, exit_code=None)),
        ["I6 false_success"],
    ),
    (
        "a success that never started",
        job("succeeded", replace(WELL, started_at=None)),
        ["I6 false_success"],
    ),
    (
        "a success that Docker stopped",
        job("succeeded", replace(WELL, kill_seen=True)),
        ["I6 false_success"],
    ),
    (
        "a success after it was asked to stop",
        job("succeeded", replace(WELL, **ASKED)),
        ["I6 false_success"],
    ),
    (
        "a success after it was asked to stop, and nobody knows when it exited",
        job("succeeded", replace(WELL, **ASKED, exited_at=None)),
        ["I6 false_success"],
    ),
    (
        "the wish came when it had exited",
        job("succeeded", replace(WELL, **ASKED, exited_at=NOW - 2 * MINUTE)),
        [],
    ),
    (
        "a success of which the attempt knows nothing",
        job("succeeded", FAILED, exit_code=0),
        ["I6 false_success"],
    ),
    (
        "started again after its own fault",
        job("succeeded", FAILED, again(WELL)),
        ["I5 started_again"],
    ),
    (
        "started again by a decision to try the next tier",
        job("succeeded", FAILED, again(WELL, decision=2)),
        [],
    ),
    (
        "an attempt is missing",
        job("succeeded", again(WELL)),
        ["I5 attempt_numbers"],
    ),
]


def codes(findings: Iterable[Finding]) -> list[str]:
    return [f"{each.invariant} {each.code}" for each in findings]


@pytest.mark.parametrize(
    ("facts", "wanted"), [row[1:] for row in JOBS], ids=[r[0] for r in JOBS]
)
def test_a_job_and_its_attempts(facts: JobFacts, wanted: list[str]) -> None:
    assert codes(check_job(facts)) == wanted


# --- GPUs ----------------------------------------------------------------------------

CARD = GpuFacts(uuid="GPU-a", hardware_mb=24 * GB, usable_mb=22 * GB)
ALONE = replace(HELD, allocation_id=9, is_exclusive=True, attempt="gpujob-y-1")


def held(gb: int, number: int = 1, **fields: Any) -> Allocated:
    return replace(HELD, allocation_id=number, vram_mb=gb * GB, **fields)


def was(start: int, end: int | None, **fields: Any) -> Allocated:
    """Held from so many minutes on."""
    fields = {"reserved_at": NOW + start * MINUTE, **fields}
    return held(8, released_at=None if end is None else NOW + end * MINUTE, **fields)


GPUS = [
    ("nobody", [], []),
    ("shared to the last MiB", [held(10), held(12, 2)], []),
    ("one that has it for itself", [replace(ALONE, vram_mb=22 * GB)], []),
    ("promised twice", [held(16), held(16, 2)], ["I1 over_allocated"]),
    (
        "beside one that has it for itself",
        [ALONE, held(4, 2)],
        ["I1 exclusive_not_alone"],
    ),
    (
        "the same, in the other order",
        [held(4), ALONE],
        ["I1 exclusive_not_alone"],
    ),
    (
        "held by an attempt that has no container",
        [replace(HELD, may_hold=False)],
        ["I3 held_by_nobody"],
    ),
    (
        "one after the other",
        [was(0, 10, is_exclusive=True), was(10, 20), was(20, None, is_exclusive=True)],
        [],
    ),
    ("side by side, shared", [was(0, 10), was(5, 20)], []),
    (
        "they overlapped once, long ago",
        [was(0, 10, is_exclusive=True), was(5, 20), was(60, None)],
        ["I1 exclusive_not_alone"],
    ),
    (
        "clocks that differ by less than a second",
        [
            was(0, 10, is_exclusive=True),
            was(10, 20, reserved_at=NOW + 10 * MINUTE - SECOND / 2),
        ],
        [],
    ),
    (
        "a shared one that is long gone does not hide the one before it",
        [
            was(0, 30, is_exclusive=True),
            was(31, 32),
            was(33, 40, is_exclusive=True),
            was(34, 35),
        ],
        ["I1 exclusive_not_alone"],
    ),
]


@pytest.mark.parametrize(
    ("allocations", "wanted"), [row[1:] for row in GPUS], ids=[r[0] for r in GPUS]
)
def test_a_gpu_and_who_held_it(allocations: list[Allocated], wanted: list[str]) -> None:
    assert codes(check_gpu(CARD, allocations)) == wanted


def test_a_headroom_raised_over_running_jobs_is_only_told() -> None:
    [finding] = check_gpu(CARD, [held(12), held(11, 2)])
    assert (finding.code, finding.is_information) == ("over_allocated", True)
    [finding] = check_gpu(CARD, [held(12), held(13, 2)])
    assert (finding.code, finding.is_information) == ("over_allocated", False)


# --- Guards --------------------------------------------------------------------------


def test_a_guard_that_is_gone_is_named() -> None:
    expected = {"jobs_job": {"guard_row", "job_sizes"}, "jobs_user": {"once"}}
    assert list(check_guards(expected, expected)) == []
    found = {"jobs_job": {"guard_row", "job_sizes", "more"}, "jobs_user": set()}
    [finding] = check_guards(expected, found)
    assert "jobs_user are gone or off: once" in finding.what
    assert [f.rows for f in check_guards(expected, {})] == [
        ("table jobs_job",),
        ("table jobs_user",),
    ]


# --- A node --------------------------------------------------------------------------

BOX = Observation(
    name="gpujob-x-1",
    nonce="n1",
    container_id="c1",
    state=ContainerState.RUNNING,
    gpu_uuids=("GPU-a",),
)
OTHER = replace(
    RUNS,
    name="gpujob-y-1",
    nonce="n2",
    allocations=(replace(HELD, uuid="GPU-b", is_exclusive=True),),
)
OTHER_BOX = replace(
    BOX, name="gpujob-y-1", nonce="n2", container_id="c2", gpu_uuids=("GPU-b",)
)
LONG_AGO: dict[str, Any] = {
    "phase": "",
    "ended_at": NOW - 2 * MINUTE,
    "allocations": (),
}
STRAY = OurStray(
    name="gpujob-x-1", stray=Stray(container_id="c9", processes=((7, "1@b"),))
)
LOG = LogFacts(attempt="gpujob-x-1", path="logs/x/1.log", size=5)
RESULT = ArtifactFacts(
    attempt="gpujob-x-1", path="m.pt", size=3, stored_size=3, is_hashed=True
)


def node(*attempts: AttemptFacts, **fields: Any) -> HostFacts:
    defaults: dict[str, Any] = {
        "now": NOW,
        "log_cap_mb": 1,
        "attempts": {each.nonce: each for each in attempts},
        "containers": (),
    }
    return HostFacts(**defaults | fields)


def boxes(*containers: Observation) -> dict[str, Any]:
    return {"containers": containers}


def process(uuid: str, container_id: str | None) -> dict[str, Any]:
    return {"processes": (GpuProcess(uuid=uuid, pid=7, container_id=container_id),)}


HOSTS = [
    ("nothing runs", node(), []),
    ("each container has its attempt", node(RUNS, OTHER, **boxes(BOX, OTHER_BOX)), []),
    (
        "it is about to be created",
        node(replace(RUNS, phase=Phase.STARTING)),
        [],
    ),
    (
        "it exited and is being collected",
        node(
            replace(RUNS, phase=Phase.COLLECTING, allocations=()),
            **boxes(replace(BOX, state=ContainerState.EXITED)),
        ),
        [],
    ),
    (
        "it ended just now, and is being removed",
        node(replace(WELL, ended_at=NOW - SECOND), **boxes(BOX)),
        [],
    ),
    (
        "it ended two minutes ago and is still there",
        node(replace(RUNS, **LONG_AGO), **boxes(BOX)),
        ["I4 left"],
    ),
    (
        "it ended in two minutes, by a clock that was set back",
        node(replace(RUNS, **LONG_AGO | {"ended_at": NOW + 2 * MINUTE}), **boxes(BOX)),
        ["I4 left"],
    ),
    ("a nonce that no attempt had", node(**boxes(BOX)), ["I4 foreign"]),
    (
        "one with an attempt's nonce and another name",
        node(RUNS, **boxes(BOX, replace(BOX, name="mine"))),
        ["I4 foreign"],
    ),
    ("said to run, and not there", node(RUNS), ["I4 no_container"]),
    ("Docker does not answer: nothing is missing", node(RUNS, containers=None), []),
    (
        "its GPUs were released, and it runs",
        node(replace(RUNS, phase=Phase.COLLECTING, allocations=()), **boxes(BOX)),
        ["I4 runs_on"],
    ),
    (
        "it was given a GPU that it does not hold",
        node(RUNS, **boxes(replace(BOX, gpu_uuids=("GPU-a", "GPU-z")))),
        ["I1 gpu_not_held"],
    ),
    (
        "two on a GPU that one has for itself",
        node(RUNS, OTHER, **boxes(replace(BOX, gpu_uuids=("GPU-b",)), OTHER_BOX)),
        ["I1 gpu_not_held", "I1 containers_share"],
    ),
    (
        "two on a GPU that they share",
        node(
            RUNS,
            replace(OTHER, allocations=(HELD,)),
            **boxes(BOX, replace(OTHER_BOX, gpu_uuids=("GPU-a",))),
        ),
        [],
    ),
    (
        "two on a GPU, and one has exited",
        node(
            replace(RUNS, allocations=(replace(HELD, is_exclusive=True),)),
            replace(OTHER, phase=Phase.COLLECTING, allocations=()),
            **boxes(
                BOX,
                replace(
                    BOX, name="gpujob-y-1", nonce="n2", state=ContainerState.EXITED
                ),
            ),
        ),
        [],
    ),
    ("processes that Docker forgot", node(strays=(STRAY,)), ["I9 stray"]),
    (
        "a process on its own GPU",
        node(RUNS, **boxes(BOX), **process("GPU-a", "c1")),
        [],
    ),
    (
        "a process on another's GPU",
        node(RUNS, **boxes(BOX), **process("GPU-b", "c1")),
        ["I9 gpu_process"],
    ),
    (
        "a process on a GPU after the attempt ended",
        node(WELL, **boxes(BOX), **process("GPU-a", "c1")),
        ["I9 gpu_process"],
    ),
    (
        "a forgotten process on a GPU",
        node(strays=(STRAY,), **process("GPU-a", "c9")),
        ["I9 stray", "I9 gpu_process"],
    ),
    ("somebody's own process", node(**process("GPU-a", None)), []),
    ("a process in somebody's container", node(**process("GPU-a", "c5")), []),
    (
        "asked to stop, within its grace",
        node(replace(RUNS, **ASKED, grace_s=60), **boxes(BOX)),
        [],
    ),
    (
        "asked to stop, and still there long after its grace",
        node(replace(RUNS, **ASKED, grace_s=5), **boxes(BOX)),
        ["I11 not_stopped"],
    ),
    (
        "asked to stop, and exited",
        node(
            replace(RUNS, **ASKED, phase=Phase.COLLECTING, allocations=()),
            **boxes(replace(BOX, state=ContainerState.EXITED)),
        ),
        [],
    ),
    ("a log within its cap", node(logs=(LOG,)), []),
    (
        "a log that was cut: its mark comes on top",
        node(logs=(replace(LOG, size=2**20 + 200),)),
        [],
    ),
    ("a log beyond its cap", node(logs=(replace(LOG, size=2**21),)), ["I8 log"]),
    ("an empty log", node(logs=(replace(LOG, size=0),)), []),
    ("a log that is gone", node(logs=(replace(LOG, size=None),)), ["I8 log"]),
    ("a result that is whole", node(artifacts=(RESULT,)), []),
    (
        "a result that was cut",
        node(artifacts=(replace(RESULT, stored_size=1),)),
        ["I12 artifact"],
    ),
    (
        "a result that is gone",
        node(artifacts=(replace(RESULT, stored_size=None),)),
        ["I12 artifact"],
    ),
    (
        "a result that was never hashed",
        node(artifacts=(replace(RESULT, is_hashed=False),)),
        ["I12 artifact"],
    ),
    ("a folder that is left", node(folders=("gpujob-x-1",)), ["I12 work_folder"]),
]


@pytest.mark.parametrize(
    ("facts", "wanted"), [row[1:] for row in HOSTS], ids=[r[0] for r in HOSTS]
)
def test_a_node(facts: HostFacts, wanted: list[str]) -> None:
    assert codes(check_host(facts)) == wanted


def test_a_container_that_is_foreign_is_only_told() -> None:
    [finding] = check_host(node(**boxes(BOX)))
    assert finding.is_information


def test_every_finding_belongs_to_an_invariant_that_is_written_down() -> None:
    checks: list[tuple[Any, list[tuple[str, Any, list[str]]]]] = [
        (check_job, JOBS),
        (lambda held: check_gpu(CARD, held), GPUS),
        (check_host, HOSTS),
    ]
    found = [f for check, table in checks for row in table for f in check(row[1])]
    assert {finding.invariant for finding in found} < INVARIANTS.keys()
    assert all(each.what and each.rows and each.do for each in found)


# --- Two looks -----------------------------------------------------------------------

WRONG = could_not_look("I4", "the containers", "no answer", "Start Docker.")


def test_what_is_seen_once_may_be_on_its_way() -> None:
    assert confirmed(None, Look(at=NOW, passing=(WRONG,))) == []
    assert confirmed(Look(at=NOW), Look(at=NOW, passing=(WRONG,))) == []
    assert confirmed(Look(at=NOW, passing=(WRONG,)), Look(at=NOW)) == []


def test_what_is_seen_twice_counts_whatever_its_sentence_says_now() -> None:
    before = Look(at=NOW, passing=(replace(WRONG, what="another sentence"),))
    assert confirmed(before, Look(at=NOW, passing=(WRONG,))) == [WRONG]


def test_another_row_is_another_finding() -> None:
    before = Look(at=NOW, passing=(replace(WRONG, rows=("the logs",)),))
    assert confirmed(before, Look(at=NOW, passing=(WRONG,))) == []


def test_rows_of_one_moment_count_at_once() -> None:
    assert confirmed(None, Look(at=NOW, settled=(WRONG,))) == [WRONG]
