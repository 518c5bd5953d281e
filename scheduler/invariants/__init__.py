"""What must always hold, over rows, containers, processes and files. Pure.

Facts in, findings out. What may be in flight counts only when it was seen twice.
"""

from scheduler.invariants.facts import (
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
)
from scheduler.invariants.host import check_host
from scheduler.invariants.looks import confirmed, could_not_look
from scheduler.invariants.rows import check_gpu, check_guards, check_job

__all__ = [
    "INVARIANTS",
    "Allocated",
    "ArtifactFacts",
    "AttemptFacts",
    "Finding",
    "GpuFacts",
    "GpuProcess",
    "HostFacts",
    "JobFacts",
    "LogFacts",
    "Look",
    "check_gpu",
    "check_guards",
    "check_host",
    "check_job",
    "confirmed",
    "could_not_look",
]
