"""What was seen, told and left over: all that the invariants are checked against."""

from collections import Counter
from dataclasses import dataclass, field

from tests.chaos.actors import Cancel
from tests.chaos.kills import Kill
from tests.chaos.programs import Program
from tests.chaos.rows import AttemptRow, JobRow, Rows
from tests.chaos.watcher import Sighting
from tests.rig.machine import GpuStart


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    rule: str
    subject: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.subject}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A program's own word of its start."""

    job: str
    attempt: int
    token: str
    at: float

    @classmethod
    def parse(cls, line: str) -> "Start":
        job, attempt, token, nanoseconds = line.split()
        return cls(
            job=job, attempt=int(attempt), token=token, at=int(nanoseconds) / 1e9
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What is still there although all is quiet."""

    containers: list[str] = field(default_factory=list)
    container_processes: list[str] = field(default_factory=list)
    shims: list[str] = field(default_factory=list)
    processes: list[str] = field(default_factory=list)
    work_folders: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        kinds = (self.containers, self.container_processes, self.shims)
        return any((*kinds, self.processes, self.work_folders))


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    programs: dict[str, Program]
    acknowledged: dict[str, set[str]]
    cancels: dict[str, Cancel]
    answers: Counter[str]
    refused: list[str]
    rows: Rows
    starts: list[Start]
    conflicts: list[str]
    gpu_starts: list[GpuStart]
    containers: dict[str, Sighting]
    doubles: set[str]
    # By job: the last attempt's log, and the text of its artifact where there is one.
    logs: dict[str, bytes]
    artifacts: dict[str, str]
    left: Left
    kills: list[Kill]
    kill_failures: list[str]
    # Unhandled errors in the log of the web server, by their last line.
    web_errors: Counter[str]
    # What `manage.py verify` found; empty where all is well.
    verified: str

    @property
    def by_key(self) -> dict[str, JobRow]:
        return {job.idempotency_key: job for job in self.rows.jobs}

    @property
    def program_of(self) -> dict[str, Program]:
        """By the id of the job."""
        rows = self.rows.jobs
        return {job.id: self.programs[job.idempotency_key] for job in rows}

    @property
    def attempts_of(self) -> dict[str, list[AttemptRow]]:
        found: dict[str, list[AttemptRow]] = {job.id: [] for job in self.rows.jobs}
        for attempt in sorted(self.rows.attempts, key=lambda row: row.number):
            found.setdefault(attempt.job_id, []).append(attempt)
        return found
