"""Why jobs wait, as the scheduler tells it."""

from collections.abc import Sequence
from typing import Any

from jobs.models import Job
from jobs.status import Status, WaitReason

# SQLite and PostgreSQL bound the parameters of a statement.
AT_ONCE = 1000


def explain_waits(job_ids: Sequence[Any], reason: WaitReason, text: str) -> None:
    """Write why these jobs wait; only on those that still do, and not over the word
    that somebody holds them."""
    for start in range(0, len(job_ids), AT_ONCE):
        some = job_ids[start : start + AT_ONCE]
        waiting = Job.objects.filter(pk__in=some, status=Status.QUEUED)
        waiting = waiting.filter(held_at=None)
        waiting.update(wait_reason=reason, wait_text=text)
