"""For how long a node on which starts fail takes no job. Pure.

A node whose disk is full or whose driver is dead fails each start at once: without a
pause it would draw every job of the queue to itself, and fail them all.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from itertools import takewhile

from jobs.status import NODE_FAULTS, Fault, Reason

FIRST = timedelta(seconds=5)
LONGEST = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Start:
    """How a start on the node came out; `fault` is None if the program ran."""

    job_id: str
    fault: Reason | None


def pause(starts: Iterable[Start]) -> timedelta | None:
    """`starts` are the node's, the newest first; None if it need not pause.

    What may be one job's own doing pauses nothing until another job fails as well.
    Each failure in a row doubles the pause.
    """
    failed = list(takewhile(_is_infra, starts))
    of_node = any(start.fault in NODE_FAULTS for start in failed[:1])
    if not of_node and len({start.job_id for start in failed}) < 2:
        return None
    return min(FIRST * 2 ** (len(failed) - 1), LONGEST)


def _is_infra(start: Start) -> bool:
    return start.fault is not None and start.fault.fault is Fault.INFRA
