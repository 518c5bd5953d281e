"""What a job without a policy asks for after memory was not enough: pure.

One rung for each try: of VRAM the next larger size that the cluster has, then the whole
of the largest GPU; of main memory twice as much, then what the largest node has.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

# So many rungs; who needs more should say what the job needs.
MOST_RUNGS = 4
# Where nothing was asked for: what an attempt is given by its GPUs is not known here.
FIRST_MEMORY_MB = 16 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """What changes of the request; nothing where there is no higher rung."""

    changes: dict[str, Any] = field(default_factory=dict)
    text: str


def more_vram(
    min_vram_mb: int | None, *, is_shared: bool, had_mb: int, sizes_mb: Iterable[int]
) -> Rung:
    """`had_mb` is what the attempt could use of its smallest GPU, `sizes_mb` what jobs
    can use of each healthy GPU that the job may have."""
    sizes = sorted(set(sizes_mb))
    asked = min_vram_mb or 0
    # An exclusive job had all of its GPU, however little it had asked for.
    least = asked if is_shared else max(asked, had_mb)
    larger = [size for size in sizes if size > least]
    if larger:
        return Rung(
            changes={"min_vram_mb": larger[0]},
            text=f"It is tried with {larger[0]:,} MiB of VRAM after {least:,} MiB.",
        )
    if is_shared and sizes:
        return Rung(
            changes={"share": False},
            text=f"It is tried on a GPU of its own: none is larger than {least:,} MiB.",
        )
    return Rung(
        text=f"No healthy GPU that it may have has more than {least:,} MiB, which was "
        "not enough."
    )


def more_memory(given_mb: int | None, nodes_mb: Iterable[int]) -> Rung:
    """`given_mb` is what the attempt had, `nodes_mb` what jobs can have of each node."""
    had = given_mb or FIRST_MEMORY_MB
    most = max(nodes_mb, default=0)
    if most <= had:
        return Rung(
            text=f"No node has more than {had:,} MiB of memory, which was not enough."
        )
    more = min(2 * had, most)
    return Rung(
        changes={"memory_mb": more},
        text=f"It is tried with {more:,} MiB of memory after {had:,} MiB.",
    )
