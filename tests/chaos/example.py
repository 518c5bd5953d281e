"""Evidence of a run in which all is well, for the tests of the checks to spoil."""

from collections import Counter
from typing import Any

from jobs.status import Reason
from tests.chaos.actors import Cancel
from tests.chaos.evidence import Evidence, Left, Start
from tests.chaos.kills import Kill
from tests.chaos.programs import Program
from tests.chaos.rows import AttemptRow, EventRow, GpuRow, HoldRow, JobRow, Rows
from tests.chaos.watcher import Sighting
from tests.rig.machine import GpuStart

GPU = "GPU-0"
WORKS = Program(
    key="works",
    kind="works",
    script="",
    ends=frozenset({Reason.COMPLETED}),
    exit_code=0,
    lines=2,
    artifact="word",
)
STOPPED = Program(
    key="stopped",
    kind="is_cancelled",
    script="",
    ends=frozenset({Reason.CANCELLED_BY_USER}),
    lines=9,
    cancel_after_s=1.0,
)


def a_job(key: str, status: str, reason: str, code: int | None) -> JobRow:
    return JobRow(
        id=f"id-{key}",
        idempotency_key=key,
        status=status,
        reason=reason,
        reason_text="",
        exit_code=code,
        gpu_count=1,
        cancel_requested_at=None,
        created_at=0.0,
        finished_at=20.0,
    )


def an_attempt(key: str, number: int, reason: str, begin: float) -> AttemptRow:
    return AttemptRow(
        id=f"{key}/{number}",
        job_id=f"id-{key}",
        number=number,
        phase="",
        reason=reason,
        container_id=f"c-{key}-{number}",
        created_at=begin,
        started_at=begin,
        ended_at=begin + 5,
    )


def a_hold(key: str, number: int, begin: float, **fields: Any) -> HoldRow:
    asked = {"vram_mb": 100, "is_exclusive": True, "released_at": begin + 4, **fields}
    return HoldRow(attempt_id=f"{key}/{number}", gpu=GPU, reserved_at=begin, **asked)


def an_event(key: str, event_type: str) -> EventRow:
    return EventRow(job_id=f"id-{key}", event_type=event_type, created_at=1.0)


ROWS = Rows(
    jobs=[
        a_job("works", "succeeded", "completed", 0),
        a_job("stopped", "cancelled", "cancelled_by_user", None),
    ],
    attempts=[
        an_attempt("works", 1, "interrupted", 1.0),
        an_attempt("works", 2, "completed", 7.0),
        an_attempt("stopped", 1, "cancelled_by_user", 13.0),
    ],
    events=[
        an_event("works", "queued"),
        an_event("works", "succeeded"),
        an_event("stopped", "cancelled"),
    ],
    holds=[
        a_hold("works", 1, 1.0),
        a_hold("works", 2, 7.0),
        a_hold("stopped", 1, 13.0),
    ],
    gpus=[
        GpuRow(uuid=GPU, usable_mb=150, foreign_mb=0, state="enabled", is_present=True)
    ],
    usage=["id-works 1", "id-works 2", "id-stopped 1"],
    failed_tasks=[],
)


def a_start(key: str, attempt: int, token: str = "t") -> Start:
    return Start(job=f"id-{key}", attempt=attempt, token=token, at=1.0)


def a_gpu_start(key: str, attempt: int, at: float) -> GpuStart:
    return GpuStart(at=at, container_id=f"c-{key}-{attempt}", uuids=(GPU,))


def a_sighting(key: str, attempt: int, died_at: float) -> Sighting:
    job = f"id-{key}"
    return Sighting(name="n", job=job, attempt=attempt, died_at=died_at)


def all_is_well() -> Evidence:
    """All is well: one job ran twice for an infra reason, one was cancelled."""
    return Evidence(
        programs={"works": WORKS, "stopped": STOPPED},
        acknowledged={"works": {"id-works"}, "stopped": {"id-stopped"}},
        cancels={"id-stopped": Cancel(asked_at=14, accepted_at=15, status="running")},
        answers=Counter({"GET jobs: 200": 1}),
        refused=[],
        rows=ROWS,
        starts=[a_start("works", 1), a_start("works", 2), a_start("stopped", 1)],
        conflicts=[],
        gpu_starts=[
            a_gpu_start("works", 1, 1.0),
            a_gpu_start("works", 2, 7.0),
            a_gpu_start("stopped", 1, 13.0),
        ],
        containers={
            "c-works-1": a_sighting("works", 1, 5.0),
            "c-works-2": a_sighting("works", 2, 11.0),
            "c-stopped-1": a_sighting("stopped", 1, 17.0),
        },
        doubles=set(),
        logs={"id-works": b"line 1\nline 2\n", "id-stopped": b"line 1\n"},
        artifacts={"id-works": "word\n"},
        left=Left(),
        kills=[Kill(at=2.0, victim="supervisor")],
        kill_failures=[],
        web_errors=Counter(),
        verified="",
    )
