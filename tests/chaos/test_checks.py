"""The chaos run's checks: all is well where it is, and each planted violation is found."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.chaos.actors import Cancel
from tests.chaos.evidence import Evidence, Left
from tests.chaos.example import (
    GPU,
    ROWS,
    a_gpu_start,
    a_hold,
    a_job,
    a_sighting,
    a_start,
    all_is_well,
    an_attempt,
    an_event,
)
from tests.chaos.gathering import errors
from tests.chaos.invariants import gpus, violations
from tests.chaos.invariants.faces import wrong_order
from tests.chaos.kills import Kill
from tests.chaos.programs import KINDS, programs
from tests.chaos.report import summary, text


@pytest.fixture
def well() -> Evidence:
    return all_is_well()


def test_nothing_is_found_where_all_is_well(well: Evidence) -> None:
    assert violations(well) == []
    told = summary(well, [], seed=1, took_s=1.0, load=(0.1, 0.1, 0.1), notes={})
    assert told["requeues"] == {"interrupted": 1}
    assert told["cancel_s"]["p99"] == 5.0
    assert "no violation" in text(told)


def of_rows(**changes: Any) -> Callable[[Evidence], Evidence]:
    return lambda seen: replace(seen, rows=replace(seen.rows, **changes))


def of(**changes: Any) -> Callable[[Evidence], Evidence]:
    return lambda seen: replace(seen, **changes)


def of_job(**changes: Any) -> Callable[[Evidence], Evidence]:
    return of_rows(jobs=[replace(ROWS.jobs[0], **changes), ROWS.jobs[1]])


def of_attempt(position: int, **changes: Any) -> Callable[[Evidence], Evidence]:
    attempts = list(ROWS.attempts)
    attempts[position] = replace(attempts[position], **changes)
    return of_rows(attempts=attempts)


LATE = Cancel(asked_at=0, accepted_at=5, status="running")
PLANTED = {
    "a key without a job": (of_rows(jobs=ROWS.jobs[:1]), "has 0 jobs"),
    "a key with two jobs": (of_rows(jobs=[*ROWS.jobs, ROWS.jobs[0]]), "has 2 jobs"),
    "an id that vanished": (
        of(acknowledged={"works": {"id-0"}}),
        "was acknowledged as",
    ),
    "a job that never ended": (
        of_job(status="running", reason="", finished_at=None),
        "is running at the end",
    ),
    "a false success": (of_job(exit_code=143), "has exit code 143"),
    "a success that was to be cancelled": (
        of_rows(jobs=[ROWS.jobs[0], a_job("stopped", "succeeded", "completed", 0)]),
        "ended with completed",
    ),
    "an end that is not its status's": (of_job(status="failed"), "is failed for"),
    "giving up too early": (
        of_job(status="failed", reason="launch_fault"),
        "ended with launch_fault",
    ),
    "two terminal events": (
        of_rows(events=[*ROWS.events, an_event("works", "failed")]),
        "has 2 terminal events",
    ),
    "a story that goes on": (
        of_rows(events=[*ROWS.events, an_event("works", "requeued")]),
        "requeued came after its end",
    ),
    "an attempt that is charged twice": (
        of_rows(usage=[*ROWS.usage, "id-works 1"]),
        "has 2 usage records",
    ),
    "a program that started twice": (
        lambda seen: replace(seen, starts=[*seen.starts, a_start("works", 2, "u")]),
        "started 2 times",
    ),
    "a start that nobody knows": (
        lambda seen: replace(seen, starts=[*seen.starts, a_start("works", 3)]),
        "ran and has no row",
    ),
    "a success that never started": (
        lambda seen: replace(seen, starts=seen.starts[:1]),
        "is completed and never started",
    ),
    "a user's end that is tried again": (
        of_attempt(0, reason="nonzero_exit"),
        "was started again after nonzero_exit",
    ),
    "a number that is left out": (of_attempt(1, number=3), "has the attempts [1, 3]"),
    "allocations that overlap": (
        of_rows(holds=[ROWS.holds[0], a_hold("works", 2, 4.0), ROWS.holds[2]]),
        "began on GPU-0 beside",
    ),
    "containers that overlap": (
        lambda seen: replace(
            seen, gpu_starts=[*seen.gpu_starts[:1], a_gpu_start("works", 2, 4.0)]
        ),
        "began on GPU-0 beside id-works attempt 1",
    ),
    "a lock that was taken": (
        of(conflicts=[f"id-works 2 {GPU}"]),
        "while another job's processes had it",
    ),
    "two containers of a job": (
        of(doubles={"id-works: 2 containers at once"}),
        "2 containers at once",
    ),
    "two containers of an attempt": (
        lambda seen: replace(
            seen,
            gpu_starts=[*seen.gpu_starts, a_gpu_start("works", 9, 11.0)],
            containers={**seen.containers, "c-works-9": a_sighting("works", 2, 11.5)},
        ),
        "2 containers with GPUs were started",
    ),
    "a line that is missing": (of(logs={"id-works": b"line 1\n"}), "has 1 lines of 2"),
    "a line that is doubled": (
        of(logs={"id-works": b"line 1\nline 1\nline 2\n"}),
        "line 2 of the log is 'line 1'",
    ),
    "another's artifact": (of(artifacts={"id-works": "other"}), "its artifact is"),
    "a refusal": (of(refused=["GET /jobs: 500"]), "GET /jobs: 500"),
    "an unhandled error": (of(web_errors=Counter({"KeyError": 2})), "2 unhandled"),
    "a cancel that takes long": (
        of(cancels={"id-stopped": LATE}, kills=[]),
        "took 15.0 s to end; 13.0 s are allowed",
    ),
    "a GPU that is still held": (
        of_rows(holds=[*ROWS.holds[:2], a_hold("stopped", 1, 13.0, released_at=None)]),
        "still holds 100 MiB",
    ),
    "an attempt that lives": (of_attempt(2, ended_at=None), "is live"),
    "a GPU out of service": (
        of_rows(gpus=[replace(ROWS.gpus[0], state="quarantined")]),
        "is quarantined",
    ),
    "a container": (of(left=Left(containers=["gpujob"])), "gpujob is left"),
    "a shim": (of(left=Left(shims=["7 shim"])), "7 shim is left"),
    "a process": (of(left=Left(container_processes=["7 sh"])), "7 sh is left"),
    "a service": (of(left=Left(processes=["7 manage.py"])), "7 manage.py is left"),
    "a work folder": (of(left=Left(work_folders=["gpujob"])), "gpujob is left"),
    "what verify found": (of(verified="I1 wrong: x"), "I1 wrong: x"),
    "a kill that failed": (of(kill_failures=["dockerd: no"]), "dockerd: no"),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_what_is_wrong_is_found(well: Evidence, planted: str) -> None:
    plant, told = PLANTED[planted]
    found = violations(plant(well))
    assert any(told in str(violation) for violation in found), found


def test_shared_jobs_may_meet_as_far_as_they_fit() -> None:
    uses = [
        gpus.Use(who=who, gpu=GPU, begin=begin, end=10.0, vram_mb=60)
        for who, begin in (("a", 0.0), ("b", 1.0), ("c", 2.0))
    ]
    assert list(gpus.overlaps(uses[:2], {GPU: 150})) == []
    assert list(gpus.overlaps(uses, {GPU: 150})) == ["c began on GPU-0 beside a, b"]


class TestAKillThatExcuses:
    """Only what it can have caused."""

    def test_five_infra_ends_in_a_row_fail_a_job(self, well: Evidence) -> None:
        job = replace(ROWS.jobs[0], status="failed", reason="launch_fault")
        attempts = [an_attempt("works", n, "interrupted", n * 1.0) for n in range(1, 6)]
        rows = replace(
            ROWS,
            jobs=[job, ROWS.jobs[1]],
            attempts=[*attempts, ROWS.attempts[2]],
            events=[an_event("works", "failed"), ROWS.events[2]],
            usage=[*(f"id-works {n}" for n in range(1, 6)), "id-stopped 1"],
        )
        assert violations(replace(well, rows=rows, starts=well.starts[:1])) == []

    def test_lines_may_be_lost_with_dockerd(self, well: Evidence) -> None:
        lost = replace(well, logs={**well.logs, "id-works": b"line 2\n"})
        assert len(violations(lost)) == 1
        for at, count in ((8.0, 0), (30.0, 1)):
            dead = [Kill(at=at, victim="dockerd", down_s=1.0)]
            assert len(violations(replace(lost, kills=dead))) == count

    def test_but_not_their_order(self) -> None:
        assert wrong_order(b"line 1\n\n[gpujobs: lost]\nline 3\n") == ""
        assert wrong_order(b"line 2\nline 2\n") != ""

    def test_a_cancel_may_wait_for_what_was_killed(self, well: Evidence) -> None:
        kills = [Kill(at=6.0, victim="supervisor")]
        seen = replace(well, cancels={"id-stopped": LATE}, kills=kills)
        assert violations(seen) == []


def test_the_same_seed_makes_the_same_jobs() -> None:
    first, again = list(programs(7, 60)), list(programs(7, 60))
    assert first == again
    assert len({program.key for program in first}) == 60
    assert len({program.kind for program in first}) == len(KINDS)
    assert list(programs(8, 60)) != first


def test_tracebacks_are_told_by_their_last_line() -> None:
    log = (
        "fine\nTraceback (most recent call last):\n"
        '  File "x.py", line 1, in f\n    g()\nKeyError: 1\nfine\n'
    )
    assert errors(log) == {"KeyError: 1": 1}
