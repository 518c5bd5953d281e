"""What the checks are told, and what they answer. Times are aware, sizes MiB unless
they say bytes."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from jobs.status import WITH_CONTAINER, Kind
from scheduler.runner.base import Observation
from scheduler.strays import OurStray

INVARIANTS = {
    "I1": "No GPU is promised beyond what it has, and an exclusive job is alone on it.",
    "I2": "A job is in one state, and it ends once.",
    "I3": "GPUs are held by the live attempts of live jobs, and by nobody else.",
    "I4": "Each container belongs to a live attempt.",
    "I5": "A job is started again only where no fault of its own ended it.",
    "I6": "A job succeeded only where its container was seen to exit with 0, unasked.",
    "I7": "The database refuses the illegal, and its records are never changed.",
    "I8": "A log is there, and no larger than its cap.",
    "I9": "Below Docker and on the GPUs nothing runs without a live attempt.",
    "I11": "What was asked to stop is gone soon after its grace.",
    "I12": "An attempt that ended leaves its result, and nothing else.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What is wrong, in which rows, and what to do. One that is only information is
    nobody's fault and needs no haste."""

    invariant: str
    code: str
    what: str
    rows: tuple[str, ...]
    do: str
    is_information: bool = False

    @property
    def key(self) -> tuple[str, ...]:
        """The same in each look, whatever figures its sentence tells."""
        return (self.invariant, self.code, *self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The findings of one look. The settled ones are of rows of one moment; the
    passing ones may be of something that was on its way."""

    at: datetime
    settled: tuple[Finding, ...] = ()
    passing: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocated:
    """An allocation; `may_hold` says whether its attempt has or awaits a container."""

    allocation_id: int
    attempt: str
    uuid: str
    gpu_node: str
    vram_mb: int
    is_exclusive: bool
    reserved_at: datetime
    released_at: datetime | None = None
    may_hold: bool = True

    @property
    def is_open(self) -> bool:
        return self.released_at is None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFacts:
    """`name` is its container's."""

    name: str
    number: int
    node: str
    nonce: str
    kind: str = Kind.JOB
    phase: str = ""
    # By which routing decision it got what it asked for, if by any.
    decision: int | None = None
    reason: str = ""
    exit_code: int | None = None
    started_at: datetime | None = None
    exited_at: datetime | None = None
    ended_at: datetime | None = None
    stop_reason: str = ""
    stop_requested_at: datetime | None = None
    kill_seen: bool = False
    grace_s: int = 0
    allocations: tuple[Allocated, ...] = ()

    @property
    def is_live(self) -> bool:
        return self.ended_at is None

    @property
    def may_hold(self) -> bool:
        """Its container is there or on its way."""
        return self.is_live and self.phase in WITH_CONTAINER

    @property
    def held(self) -> tuple[Allocated, ...]:
        return tuple(each for each in self.allocations if each.is_open)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """`endings` counts the events that tell of its end."""

    job_id: str
    status: str
    gpu_count: int = 0
    finished_at: datetime | None = None
    exit_code: int | None = None
    endings: int = 0
    attempts: tuple[AttemptFacts, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """`hardware_mb` is what the driver leaves; `usable_mb` less, by the headroom."""

    uuid: str
    hardware_mb: int
    usable_mb: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """A process that a GPU's driver lists, and the container that holds it, if any."""

    uuid: str
    pid: int
    container_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """`size` in bytes, None where there is no file."""

    attempt: str
    path: str
    size: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactFacts:
    """What its row says and what lies there, in bytes; None where there is no file."""

    attempt: str
    path: str
    size: int
    stored_size: int | None
    is_hashed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """What is there on one node, and what its rows say of it.

    `attempts` are the live ones, and those whose nonce a container has, by nonce.
    `folders` are names of work folders that no live attempt of any node has.
    """

    now: datetime
    log_cap_mb: int
    attempts: Mapping[str, AttemptFacts]
    # None: the runner did not answer, so that nothing is known to be missing.
    containers: tuple[Observation, ...] | None = None
    strays: tuple[OurStray, ...] = ()
    processes: tuple[GpuProcess, ...] = ()
    logs: tuple[LogFacts, ...] = ()
    artifacts: tuple[ArtifactFacts, ...] = ()
    folders: tuple[str, ...] = ()
