"""From looks to what is wrong for sure."""

from scheduler.invariants.facts import Finding, Look


def confirmed(before: Look | None, now: Look) -> list[Finding]:
    """What counts: rows of one moment at once, the rest if the look before had it too."""
    seen = {finding.key for finding in before.passing} if before else set()
    return [*now.settled, *(f for f in now.passing if f.key in seen)]


def could_not_look(invariant: str, at: str, why: object, do: str) -> Finding:
    """Not to see a fault is not to see that there is none."""
    return Finding(
        invariant=invariant,
        code="could_not_look",
        what=f"It could not be looked at {at}: {why}",
        rows=(at,),
        do=do,
    )
