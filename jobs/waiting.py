"""Why a queued job is not in line yet. The same sentence stands on its page and in
what the scheduler explains."""

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

from jobs.models import Job
from jobs.status import FOR_ALL_BEHIND, WaitReason

# Until a pass tells more, and of every job behind the first that asks for the same.
IN_LINE = (
    WaitReason.PRIORITY,
    "It is in line. The jobs ahead of it are served first.",
)


def behind(reason: str) -> tuple[WaitReason, str]:
    """What is told of a job behind one that asks for the same and waits for `reason`.
    Without numbers: those of the first change, and these are many."""
    if reason not in FOR_ALL_BEHIND:
        return IN_LINE
    text = (
        "A job ahead of it asks for the same, and waits for this. See its explanation."
    )
    return WaitReason(reason), text


# Of many jobs that it waits for, so many are named.
MOST_NAMED = 3


def outside_line(
    job: Job, open_parents: Sequence[UUID], now: datetime
) -> tuple[WaitReason, str] | None:
    """What keeps a queued job out of the line, the most lasting first; None if it is in.

    `open_parents` are the jobs it waits for that have not ended: `job.open_parents`.
    """
    if job.held_at is not None:
        return WaitReason.HELD, _held(job)
    if job.begin_at is not None and job.begin_at > now:
        begin_at = job.begin_at.astimezone(UTC)
        text = f"It was asked to begin at {begin_at:%Y-%m-%d %H:%M:%S} UTC."
        return WaitReason.BEGIN_TIME, text
    if open_parents:
        return WaitReason.DEPENDENCY, _depends(open_parents)
    return None


def _held(job: Job) -> str:
    if job.held_by_id == job.owner_id:
        return "Its owner holds it. Release it to let it start."
    return "An operator holds it, and only an operator can release it."


def _depends(parents: Sequence[UUID]) -> str:
    if len(parents) == 1:
        return (
            f"It waits until job {parents[0]} has ended; if that is an array, until all "
            "its tasks have."
        )
    named = ", ".join(map(str, parents[:MOST_NAMED]))
    rest = len(parents) - MOST_NAMED
    more = f" and {rest:,} more" if rest > 0 else ""
    return f"It waits until {len(parents):,} jobs have ended: {named}{more}."
