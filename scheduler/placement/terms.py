"""What a placement is decided from, and what comes out. Sizes are integer MiB."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from jobs.status import WaitReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What one live attempt has of one GPU."""

    promised_mb: int
    measured_mb: int = 0
    is_exclusive: bool = False

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
    state: str = "enabled"
    state_reason: str = ""
    is_present: bool = True
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
class Node:
    name: str
    state: str = "up"
    cpus: int = 1024
    memory_mb: int = 1024 * 1024
    # Room for jobs without a GPU: one CPU each.
    cpus_free: int = 1
    images: frozenset[str] = frozenset()
    # Of images that are not there: what became of the last pull.
    pulls: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a job asks for. `min_vram_mb` of None takes any whole GPU."""

    job_id: str
    gpu_count: int
    min_vram_mb: int | None = None
    share: bool = False
    gpu_name: str = ""
    image: str = ""
    cpus: float | None = None
    memory_mb: int | None = None

    def __str__(self) -> str:
        if not self.gpu_count:
            return "no GPU"
        count = f"{self.gpu_count} GPU{'s' if self.gpu_count > 1 else ''}"
        named = f" named {self.gpu_name}" if self.gpu_name else ""
        each = " each" if self.gpu_count > 1 else ""
        vram = f" with {self.min_vram_mb:,} MiB{each}" if self.min_vram_mb else ""
        return f"{count}{named}{vram}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    nodes: Mapping[str, Node]
    gpus: Mapping[int, Gpu]
    # Foreign use that an exclusive job puts up with: a desktop session.
    foreign_tolerance_mb: int = 0
    # GPUs kept for the head of the line, which is blocked.
    held: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One GPU's part of an answer; `blocked_by` is empty where it would do."""

    gpu: Gpu
    blocked_by: str = ""
    missing_mb: int = 0
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    request: Request
    node: str
    gpus: tuple[Gpu, ...]
    vram_mb: tuple[int, ...]
    lines: tuple[Line, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    request: Request
    reason: WaitReason
    text: str
    lines: tuple[Line, ...] = field(default=(), repr=False)
