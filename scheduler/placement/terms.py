"""What a placement is decided from, and what comes out.

Sizes are integer MiB, CPUs thousandths; times are seconds since the epoch, `math.inf`
where nobody can tell.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from jobs.status import WaitReason

# Added to a job's limits: to pull up its container, and to clear it away.
SLACK_S = 60.0
# A job counts at once with so much of what it may use, so that an owner with nothing
# used yet does not take all that is free.
CHARGED_AT_ONCE_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What one live attempt has of one GPU, at the latest until its limits end it."""

    promised_mb: int
    measured_mb: int = 0
    is_exclusive: bool = False
    until: float = math.inf

    @property
    def need_mb(self) -> int:
        return max(self.promised_mb, self.measured_mb)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    id: int
    uuid: str
    index: int
    name: str
    node: str
    total_mb: int
    reserved_mb: int = 0
    headroom_mb: int = 0
    foreign_mb: int = 0
    # Whose the foreign use is, as words: "python3 of alice".
    foreign_by: str = ""
    state: str = "enabled"
    state_reason: str = ""
    is_present: bool = True
    peers: tuple[str, ...] = ()  # UUIDs that NVLink joins it to
    holdings: tuple[Holding, ...] = ()

    @property
    def usable_mb(self) -> int:
        return max(0, self.total_mb - self.reserved_mb - self.headroom_mb)

    @property
    def promised_mb(self) -> int:
        return sum(holding.promised_mb for holding in self.holdings)

    @property
    def measured_mb(self) -> int:
        return sum(holding.measured_mb for holding in self.holdings)

    @property
    def need_mb(self) -> int:
        return sum(holding.need_mb for holding in self.holdings)

    @property
    def free_mb(self) -> int:
        return max(0, self.usable_mb - self.need_mb - self.foreign_mb)

    def __str__(self) -> str:
        return f"{self.node} GPU {self.index}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What one live attempt has of its node's CPUs and memory."""

    millicpus: int
    memory_mb: int = 0
    until: float = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    name: str
    state: str = "up"
    state_reason: str = ""
    cpus: int = 1024
    memory_mb: int = 16 * 1024 * 1024
    labels: Mapping[str, str] = field(default_factory=dict)
    taken: tuple[Taken, ...] = ()
    images: frozenset[str] = frozenset()
    # Of images that are not there: what became of the last pull.
    pulls: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a job asks for: its shape. `min_vram_mb` of None takes any whole GPU."""

    gpu_count: int
    min_vram_mb: int | None = None
    share: bool = False
    gpu_name: str = ""
    image: str = ""
    cpus: float | None = None
    memory_mb: int | None = None
    shm_mb: int | None = None
    node_name: str = ""
    node_labels: tuple[tuple[str, str], ...] = ()
    timeout_s: int = 3600
    grace_s: int = 0

    @property
    def limit_s(self) -> int:
        return self.timeout_s + self.grace_s

    @property
    def vram_mb(self) -> int:
        return self.min_vram_mb or 0

    @property
    def lasts_s(self) -> float:
        """How long it holds its GPUs, at the longest."""
        return self.limit_s + SLACK_S

    def __str__(self) -> str:
        where = f" on node {self.node_name}" if self.node_name else ""
        if self.node_labels:
            told = ", ".join(f"{key}={value}" for key, value in self.node_labels)
            where += f" with labels {told}"
        if not self.gpu_count:
            return f"no GPU{where}"
        count = f"{self.gpu_count} GPU{'s' if self.gpu_count > 1 else ''}"
        named = f" named {self.gpu_name}" if self.gpu_name else ""
        each = " each" if self.gpu_count > 1 else ""
        vram = f" with {self.min_vram_mb:,} MiB{each}" if self.min_vram_mb else ""
        return f"{count}{named}{vram}{where}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What an owner or a group may have at once; None is no limit."""

    running_jobs: int | None = None
    gpus: int | None = None
    vram_mb: int | None = None
    gpu_hours: int | None = None  # in 30 days


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What an owner or a group has and had. `usage` is decayed MiB-seconds of VRAM."""

    usage: float = 0.0
    shares: int = 1
    running_jobs: int = 0
    gpus: int = 0
    vram_mb: int = 0
    gpu_seconds: float = 0.0  # in 30 days, what runs included
    limits: Limits = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """Waiting jobs of one owner, priority and request: the oldest is first.

    A lane ages as one: from when its first job became the first of it.
    """

    request: Request
    jobs: tuple[tuple[str, float], ...]  # ids with created_at, oldest first
    owner: str = ""
    group: str = ""
    priority: int = 50
    aged_from: float = math.inf
    topped_at: float = 0.0
    # Of a job array: how many of its tasks may run at once, and how many do.
    array_id: str = ""
    array_limit: int | None = None
    array_running: int = 0
    # Of which `jobs` may be the first only.
    length: int = 0

    @property
    def waiting(self) -> int:
        return max(self.length, len(self.jobs))


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    nodes: Mapping[str, Node]
    gpus: Mapping[int, Gpu]
    now: float = 0.0
    # Foreign use that an exclusive job puts up with: a desktop session.
    foreign_tolerance_mb: int = 0
    # How many blocked jobs, from the head of the line on, get a reservation.
    reservations: int = 1
    # A point of priority for each such time that the head of a lane has waited.
    aging_s: float = 6 * 3600.0
    owners: Mapping[str, Account] = field(default_factory=dict)
    groups: Mapping[str, Account] = field(default_factory=dict)
    # What runs, by request: what will be asked for is guessed from it and the queue.
    running: tuple[tuple[Request, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One GPU's part of an answer; `blocked_by` is empty where it would do."""

    gpu: Gpu
    blocked_by: str = ""
    missing_mb: int = 0
    free_mb: int = 0  # by the pass: what it placed before this job is taken off
    until: float = math.inf  # when its holders are gone, at the latest
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where a job starts now, and what it is given of the node."""

    request: Request
    node: str
    gpus: tuple[Gpu, ...] = ()
    vram_mb: tuple[int, ...] = ()
    cpus: float | None = None
    memory_mb: int | None = None
    shm_mb: int | None = None
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    request: Request
    reason: WaitReason
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """GPUs kept for a blocked job from `at` on; math.inf if nothing guarantees a time,
    and then they are kept from now on."""

    request: Request
    node: str
    gpu_ids: tuple[int, ...]
    at: float
