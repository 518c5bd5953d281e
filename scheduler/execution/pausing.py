"""A node on which starts fail is taken out of service for a while."""

from django.db import transaction
from django.utils import timezone

from jobs import audit
from jobs.models import Attempt
from jobs.status import Reason
from scheduler.backoff import Start, pause
from scheduler.execution.ground import BY
from scheduler.models import Node, NodeState

# Enough for the longest pause.
MOST_STARTS = 10
MOST_TEXT = 220


def pause_if_starts_fail(node: str, text: str) -> None:
    """Called after a start that failed; `text` is what it failed with."""
    wait = pause(_starts(node))
    if wait is None:
        return
    until = timezone.now() + wait
    # What a daemon says ends with the cause.
    told_text = text if len(text) <= MOST_TEXT else f"... {text[-MOST_TEXT:]}"
    reason = f"Starts fail here: {told_text}"
    told = {"state": NodeState.QUARANTINED, "state_reason": reason}
    # An operator's state stays as it is.
    free = Node.objects.filter(name=node, state__in=(NodeState.UP, NodeState.JOINING))
    with transaction.atomic():
        if free.update(**told, state_by=BY, state_until=until):
            audit.record(
                "node.changed", target=node, by=BY, **told, until=until.isoformat()
            )


def _starts(node: str) -> list[Start]:
    """Of those whose outcome is known: they ran, or they ended without."""
    recent = Attempt.objects.filter(node=node).exclude(
        started_at__isnull=True, ended_at__isnull=True
    )
    recent = recent.order_by("-created_at")[:MOST_STARTS]
    return [
        Start(str(a.job_id), None if a.started_at else Reason(a.reason)) for a in recent
    ]
