"""What a routing policy is: tiers from the smallest model on, rules, checks.

Sizes are integer MiB, times seconds. Nothing in here knows a database.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


class Risk(enum.StrEnum):
    """What a wrong result may cost, as its submitter declares it."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"

    @property
    def rank(self) -> int:
        return list(Risk).index(self)


class Work(enum.StrEnum):
    GENERAL = "general"
    CODE = "code"  # the result is a program: only running it shows what it is worth


class Prefer(enum.StrEnum):
    SMALLEST = "smallest"  # a busy tier is waited for
    SOONEST = "soonest"  # the smallest eligible tier that starts now


class Review(enum.StrEnum):
    """When a person must accept what the validators accepted."""

    NEVER = "never"
    HIGH_RISK = "high_risk"
    ALWAYS = "always"


class Trouble(enum.StrEnum):
    """What the next tier may be tried for."""

    REJECTED = "rejected"
    CUDA_OOM = "cuda_oom"
    MEMORY_OOM = "memory_oom"
    TIMED_OUT = "timed_out"


class Measure(enum.StrEnum):
    VALUE = "value"  # as it is
    LENGTH = "length"  # characters of a text, items of a list, names of an object
    WORDS = "words"
    BYTES = "bytes"  # of it as JSON


class Comparison(enum.StrEnum):
    AT_LEAST = "at_least"
    AT_MOST = "at_most"
    EQUALS = "equals"
    ONE_OF = "one_of"
    MATCHES = "matches"  # a pattern of RE2, anywhere in a text


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Adds its weight to a task's complexity where it holds."""

    name: str
    weight: float
    of: str  # a dotted path into the params; empty is all of them
    measure: Measure
    comparison: Comparison
    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """One size of model, and how it is run."""

    name: str
    image: str
    command: str | tuple[str, ...] | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    gpu_count: int = 1
    min_vram_mb: int | None = None
    share: bool = False
    # Patterns of GPU names, the one to be tried first first; none is any GPU.
    gpu_names: tuple[str, ...] = ()
    cpus: float | None = None
    memory_mb: int | None = None
    shm_mb: int | None = None
    timeout_s: int = 3600
    grace_s: int = 10
    model_version: str
    prompt_version: str = ""
    prompt: str = ""  # {{ name }} stands for a param
    # The most that it may be trusted with; None is whatever comes.
    max_complexity: float | None = None
    max_risk: Risk = Risk.MEDIUM


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitCodeCheck:
    """Makes an exit code other than 0 a rejection, where it would end the job."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactCheck:
    name: str
    path: str
    min_bytes: int = 0
    max_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaCheck:
    """The artifact is JSON of this JSON Schema (2020-12)."""

    name: str
    path: str
    schema: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternCheck:
    """A pattern of RE2 is found in the artifact, or is not where `is_absent`."""

    name: str
    path: str
    pattern: str
    is_absent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberCheck:
    """A number in a JSON artifact is within bounds, both included."""

    name: str
    path: str
    field: str  # a dotted path into the document
    at_least: float | None = None
    at_most: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionCheck:
    """A container of its own looks at the artifacts: its exit code and its JSON count."""

    name: str
    image: str
    command: str | tuple[str, ...] | None = None
    timeout_s: int = 600
    cpus: float | None = None
    memory_mb: int | None = None


Validator = (
    ExitCodeCheck
    | ArtifactCheck
    | SchemaCheck
    | PatternCheck
    | NumberCheck
    | ExecutionCheck
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A named kind of model work. `tiers` go from the smallest to the largest."""

    name: str
    description: str = ""
    work: Work = Work.GENERAL
    prefer: Prefer = Prefer.SMALLEST
    params_schema: Any = None
    rules: tuple[Rule, ...] = ()
    tiers: tuple[Tier, ...]
    validators: tuple[Validator, ...] = ()
    escalate_on: frozenset[Trouble] = frozenset()
    max_escalations: int = 0
    review: Review = Review.NEVER
    review_within_s: int = 86_400
    # By rubric item the least score, 0 to 1, that a version must reach to go live.
    thresholds: Mapping[str, float] = field(default_factory=dict)
    # By how much it may be worse than the one that is live, in any item.
    max_regression: float = 0.0

    def tier(self, name: str) -> Tier:
        return next(tier for tier in self.tiers if tier.name == name)

    @property
    def execution_checks(self) -> tuple[ExecutionCheck, ...]:
        return tuple(v for v in self.validators if isinstance(v, ExecutionCheck))
