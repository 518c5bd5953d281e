"""A node that is lost: its attempts end, and what they held is written off."""

import logging

from django.db import transaction

from jobs import audit
from jobs.exceptions import TransitionConflict
from jobs.models import Attempt
from jobs.status import Reason
from scheduler.models import OUT_OF_SERVICE, Node, NodeState
from scheduler.reservation.holding import BY, end_held
from scheduler.reservation.waking import wake

logger = logging.getLogger(__name__)


def lose_node(name: str, text: str) -> None:
    """The node is down, and each of its attempts ends with node_lost.

    Nobody sees what becomes of their containers. That is safe, as the node takes no job
    before its supervisor has come back and has removed what is no longer its own.
    """
    # An operator's state stays: it takes no job either.
    kept = (*OUT_OF_SERVICE, NodeState.DOWN)
    with transaction.atomic():
        lost = Node.objects.filter(name=name).exclude(state__in=kept)
        if lost.update(state=NodeState.DOWN):
            audit.record("node.lost", target=name, by=BY, text=text)
    # A validator attempt before that whose result it looks at; and a result in review
    # needs no node any more.
    attempts = Attempt.objects.bound().filter(node=name).order_by("job", "-number")
    attempts = attempts.select_related("job")
    for attempt in attempts:
        _lose(attempt, text)
    if attempts:
        wake()


def _lose(attempt: Attempt, text: str) -> None:
    try:
        end_held(attempt, Reason.NODE_LOST, text, by=BY)
    except TransitionConflict:
        logger.info("%s ended by itself", attempt)
