"""What the database holds when all is quiet, as plain data.

`dump` runs inside the product (manage.py shell), `Rows.read` in the harness.
"""

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    id: str
    idempotency_key: str
    status: str
    reason: str
    reason_text: str
    exit_code: int | None
    gpu_count: int
    cancel_requested_at: float | None
    created_at: float
    finished_at: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRow:
    id: str
    job_id: str
    number: int
    phase: str
    reason: str
    container_id: str | None
    created_at: float
    started_at: float | None
    ended_at: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRow:
    job_id: str
    event_type: str
    created_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldRow:
    """An allocation."""

    attempt_id: str
    gpu: str
    vram_mb: int
    is_exclusive: bool
    reserved_at: float
    released_at: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRow:
    uuid: str
    usable_mb: int
    foreign_mb: int
    state: str
    is_present: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    jobs: list[JobRow]
    attempts: list[AttemptRow]
    events: list[EventRow]
    holds: list[HoldRow]
    gpus: list[GpuRow]
    # Of an attempt, "JOB NUMBER" for each record of what it used.
    usage: list[str]
    # The last line of each task that failed.
    failed_tasks: list[str]

    @classmethod
    def read(cls, path: Path) -> "Rows":
        told = json.loads(path.read_text())
        kinds = {
            "jobs": JobRow,
            "attempts": AttemptRow,
            "events": EventRow,
            "holds": HoldRow,
            "gpus": GpuRow,
        }
        made = {
            name: [kind(**row) for row in told[name]] for name, kind in kinds.items()
        }
        return cls(**{**told, **made})


def _plain(row: Any, kind: type[Any]) -> dict[str, Any]:
    values = {field.name: getattr(row, field.name) for field in fields(kind)}
    for name, value in values.items():
        if hasattr(value, "timestamp"):
            values[name] = value.timestamp()
        elif name == "id" or name.endswith("_id"):
            values[name] = value and str(value)
    return values


def dump(path: str) -> None:
    """Called where Django is set up."""
    from jobs.models import Attempt, Job, JobEvent, UsageRecord  # noqa: PLC0415
    from scheduler.models import GPU, Allocation, TaskMessage  # noqa: PLC0415

    failed = TaskMessage.objects.exclude(failed_at=None).values_list("error", flat=True)
    rows = Rows(
        jobs=[JobRow(**_plain(row, JobRow)) for row in Job.objects.all()],
        attempts=[AttemptRow(**_plain(a, AttemptRow)) for a in Attempt.objects.all()],
        events=[EventRow(**_plain(row, EventRow)) for row in JobEvent.objects.all()],
        holds=[_hold(row) for row in Allocation.objects.select_related("gpu")],
        gpus=[_gpu(row) for row in GPU.objects.all()],
        usage=[f"{u.job} {u.attempt_number}" for u in UsageRecord.objects.all()],
        failed_tasks=[error.strip().rpartition("\n")[2] for error in failed],
    )
    Path(path).write_text(json.dumps(asdict(rows)))


def _hold(row: Any) -> HoldRow:
    return HoldRow(
        attempt_id=str(row.attempt_id),
        gpu=row.gpu.uuid,
        vram_mb=row.vram_mb,
        is_exclusive=row.is_exclusive,
        reserved_at=row.reserved_at.timestamp(),
        released_at=row.released_at and row.released_at.timestamp(),
    )


def _gpu(row: Any) -> GpuRow:
    return GpuRow(
        uuid=row.uuid,
        usable_mb=row.total_mb - row.reserved_mb - row.headroom_mb,
        foreign_mb=row.foreign_mb,
        state=row.state,
        is_present=row.is_present,
    )
