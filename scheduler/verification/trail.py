"""The audit trail, as findings."""

from datetime import datetime

from jobs.sealing import Check, Flaw
from scheduler.invariants import Finding, could_not_look

_DO = "Run manage.py audit verify. docs/operations.md says what to do then."


def look_at_trail(since: datetime | None) -> tuple[list[Finding], list[Finding]]:
    """What is settled, and what may be on its way; of the end since then only."""
    try:
        flaws = list(Check(since=since).flaws())
    except OSError as error:
        return [], [could_not_look("I7", "the anchor of the audit trail", error, _DO)]
    settled = [_finding(flaw) for flaw in flaws if not flaw.is_passing]
    return settled, [_finding(flaw) for flaw in flaws if flaw.is_passing]


def _finding(flaw: Flaw) -> Finding:
    return Finding(
        invariant="I7",
        code=f"audit_{flaw.code}",
        what=f"The audit trail is not intact: {flaw.what}",
        rows=(flaw.where,),
        do=_DO,
    )
