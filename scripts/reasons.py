"""Print docs/reasons.md: python -m scripts.reasons > docs/reasons.md

Everything in it comes from jobs/status.py and jobs/reasons.py; a test compares.
"""

from collections.abc import Iterable, Iterator, Sequence

from jobs.reasons import ENDINGS, WAITING
from jobs.status import Fault, Reason, Status, WaitReason

HEAD = """\
<!-- Made by `python -m scripts.reasons > docs/reasons.md`. Change jobs/reasons.py. -->
# Reasons

Every job that waits has a `wait_reason`, and every job that ended has a `reason`. Both are words
from these lists and no others, so that a script can rely on them. Beside the word a job has a sentence with the
names and numbers of its own case: `wait_text` or `reason_text`. `GET /jobs/{id}/explain` tells the most.
"""
WAITS = "## Why a job waits"
ENDS = """\
## How an attempt or a job ended

`fault` says whose doing it was. An ending that is nobody's doing here (`infra`) puts the job back into the queue with its
age, unless its cancel was asked for; the fifth in a row ends it with `launch_fault`. Such attempts are not charged: they count neither
for fair share nor for GPU-hours. A job that ends while it still waits has used nothing.
"""


def page() -> str:
    waits = _table(("wait_reason", "what it means", "what to do"), _waits())
    columns = ("reason", "status", "fault", "starts again", "charged")
    ends = _table((*columns, "what it means", "what to do"), _endings())
    return "\n".join((HEAD, WAITS, "", waits, "", ENDS, ends, ""))


def _waits() -> Iterator[Sequence[str]]:
    for reason in WaitReason:
        yield (f"`{reason}`", *WAITING[reason])


def _endings() -> Iterator[Sequence[str]]:
    for reason in Reason:
        is_ours = reason.fault is Fault.INFRA
        again, charged = ("yes", "no") if is_ours else ("no", "yes")
        facts = (f"`{reason}`", _status(reason), reason.fault, again, charged)
        yield (*facts, *ENDINGS[reason])


def _status(reason: Reason) -> str:
    """What the job is after it."""
    if reason.fault is not Fault.INFRA:
        return reason.status
    # Of those that start again only this one, which the last is told as, ends a job.
    last = f" or {reason.status}" if reason is Reason.LAUNCH_FAULT else ""
    return f"{Status.QUEUED}{last}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


if __name__ == "__main__":
    print(page(), end="")
