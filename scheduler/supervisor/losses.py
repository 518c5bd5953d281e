"""GPUs that can not be used any more: the driver lost one, or nobody can end what runs."""

import logging

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from jobs import audit, lifecycle
from jobs.models import Attempt
from scheduler.execution import BY
from scheduler.models import GPU, Allocation, GpuState

logger = logging.getLogger(__name__)

LOST = "The driver does not list it any more, and a job was on it."


def lose(gone: QuerySet[GPU]) -> None:
    """Of devices that the driver does not list any more. One that was in use stays out
    of service until an operator has looked, also if it comes back by itself."""
    for gpu in gone:
        in_use = Allocation.objects.live().filter(gpu=gpu).exists()
        with transaction.atomic():
            GPU.objects.filter(pk=gpu.pk).update(is_present=False)
            if in_use:
                GPU.objects.filter(pk=gpu.pk).update(lost_at=timezone.now())
                _quarantine(GPU.objects.filter(pk=gpu.pk), LOST)


def give_up_on(attempt: Attempt) -> None:
    """Of a container that SIGKILL does not end, as where the driver hangs. Its GPUs
    stay held by it, and take no other job; only an operator can help."""
    reason = f"Job {attempt.job_id} can not be killed: see its processes on the node."
    held = GPU.objects.filter(allocations__attempt=attempt)
    with transaction.atomic():
        changed = _quarantine(held.filter(allocations__released_at=None), reason)
        known = attempt.job.events.filter(
            event_type="unkillable", payload__attempt=attempt.number
        )
        if known.exists():
            return
        told = {"attempt": attempt.number, "gpus": changed}
        lifecycle.note(attempt.job, "unkillable", by=BY, **told)
    logger.error("%s", reason)


def _quarantine(gpus: QuerySet[GPU], reason: str) -> list[str]:
    uuids = list(gpus.filter(state=GpuState.ENABLED).values_list("uuid", flat=True))
    told = {"state": GpuState.QUARANTINED, "state_reason": reason}
    free = GPU.objects.filter(uuid__in=uuids, state=GpuState.ENABLED)
    free.update(**told, state_by=BY, state_until=None)
    audit.record_each("gpu.changed", targets=uuids, by=BY, **told)
    return uuids
