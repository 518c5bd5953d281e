"""Look at rows, containers, processes and files, and check every invariant over them."""

from datetime import datetime, timedelta

from django.conf import settings
from django.utils import timezone

from scheduler.invariants import (
    Look,
    check_gpu,
    check_guards,
    check_host,
    check_job,
)
from scheduler.inventory.base import Inventory
from scheduler.models import Node
from scheduler.runner.base import Runner
from scheduler.verification.guards import expected_guards, found_guards
from scheduler.verification.host import look_at_host
from scheduler.verification.rows import gpus, jobs, one_snapshot
from scheduler.verification.trail import look_at_trail

__all__ = ["is_node", "look"]

# What ended longer ago than the check before, and this, was seen by that check.
OVERLAP = timedelta(hours=1)


def is_node() -> bool:
    """Whether a supervisor ever ran here: elsewhere only rows can be looked at."""
    return Node.objects.filter(name=settings.NODE_NAME).exists()


def look(
    runner: Runner | None, inventory: Inventory | None, since: datetime | None = None
) -> Look:
    """One look at everything, or at what is live or ended after `since` (and a while
    before). Without a runner and an inventory, as off a node, only at rows."""
    now = timezone.now()
    since = since and since - OVERLAP
    with one_snapshot():
        settled = [f for job in jobs(since) for f in check_job(job)]
        settled += [f for gpu, held in gpus(since) for f in check_gpu(gpu, held)]
        settled += check_guards(expected_guards(), found_guards())
    changed, unsealed = look_at_trail(since)
    settled += changed
    if runner is None or inventory is None:
        return Look(at=now, settled=tuple(settled), passing=tuple(unsealed))
    facts, unseen = look_at_host(runner, inventory, since)
    passing = (*unsealed, *unseen, *check_host(facts))
    return Look(at=now, settled=tuple(settled), passing=passing)
