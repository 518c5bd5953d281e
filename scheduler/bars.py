"""A GPU's VRAM as a bar: what is used, promised and foreign, in percent of the usable."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A stretch of the bar, in percent."""

    kind: str
    mb: int
    start: float
    width: float


def parts(
    usable_mb: int, *, measured_mb: int, need_mb: int, foreign_mb: int
) -> list[Part]:
    """In this order: ours measured, promised and not yet used, foreign. What is more
    than usable is cut."""
    usable = max(1, usable_mb)
    used = min(measured_mb, usable)
    promised = min(max(0, need_mb - used), usable - used)
    foreign = min(foreign_mb, usable - used - promised)
    found, start = [], 0.0
    for kind, mb in (("ours", used), ("promised", promised), ("foreign", foreign)):
        width = 100 * mb / usable
        found.append(
            Part(kind=kind, mb=mb, start=round(start, 1), width=round(width, 1))
        )
        start += width
    return found
