"""Reserve and release: the rows that say which attempt holds what."""

from django.db import IntegrityError, transaction
from django.db.models.functions import Greatest
from django.utils import timezone

from jobs import lifecycle
from jobs.exceptions import GpuJobsError, TransitionConflict
from jobs.failpoints import failpoint
from jobs.models import Attempt, Job
from jobs.status import Reason
from scheduler.models import Allocation
from scheduler.models import Lane as LaneRow
from scheduler.placement import Placement
from scheduler.queue import enqueue

BY = "scheduler"


class ReservationLost(GpuJobsError):
    """Somebody else reserved first, or the job moved on."""


def reserve(job_id: str, placed: Placement, *, lane_key: str = "") -> Attempt:
    """queued -> starting with its allocations, all or none; GPU rows in id order.

    Raises ReservationLost, and then nothing was written.
    """
    chosen = sorted(
        zip(placed.gpus, placed.vram_mb, strict=True), key=lambda pair: pair[0].id
    )
    try:
        with transaction.atomic():
            attempt = _start(job_id, placed)
            for gpu, vram_mb in chosen:
                Allocation.objects.create(
                    attempt=attempt,
                    gpu_id=gpu.id,
                    vram_mb=vram_mb,
                    is_exclusive=not placed.request.share,
                )
            if lane_key:
                _serve(lane_key)
            failpoint("reserve.written")
            enqueue("launch", str(attempt.pk), node=placed.node)
    except (IntegrityError, TransitionConflict) as error:
        raise ReservationLost(str(error)) from error
    failpoint("reserve.committed")
    return attempt


def _start(job_id: str, placed: Placement) -> Attempt:
    shown = sorted((gpu.index, gpu.uuid) for gpu in placed.gpus)
    return lifecycle.start(
        Job(pk=job_id),
        node=placed.node,
        gpu_indices=[index for index, _ in shown],
        gpu_uuids=[uuid for _, uuid in shown],
        cpus=placed.cpus,
        memory_mb=placed.memory_mb,
        shm_mb=placed.shm_mb,
        why=placed.text,
        by=BY,
    )


def _serve(lane_key: str) -> None:
    LaneRow.objects.bulk_create(
        [LaneRow(key=lane_key, served_at=timezone.now())],
        update_conflicts=True,
        unique_fields=["key"],
        update_fields=["served_at"],
    )


def release(attempt: Attempt) -> int:
    """Close the attempt's allocations; only on evidence that nothing of it runs."""
    now = timezone.now()
    released = Allocation.objects.live().filter(attempt=attempt)
    return released.update(released_at=Greatest("reserved_at", now))


def end_held(attempt: Attempt, reason: Reason, text: str, *, by: object) -> Job:
    """Give back what the attempt holds, and end it, in one transaction. For attempts
    whose end is known to need nothing of their container any more."""
    with transaction.atomic():
        release(attempt)
        usage = usage_of(attempt)
        return lifecycle.finish(attempt, reason, text, usage=usage, by=by)


def usage_of(attempt: Attempt) -> lifecycle.Usage:
    """What the attempt used, from its allocations: from reserve to its exit. That it
    took us longer to see the exit is not its doing."""
    seconds = vram_seconds = 0.0
    for allocation in attempt.allocations.filter(released_at__isnull=False):
        assert allocation.released_at is not None
        until = min(allocation.released_at, attempt.exited_at or allocation.released_at)
        used_s = max(0.0, (until - allocation.reserved_at).total_seconds())
        seconds += used_s
        vram_seconds += used_s * allocation.vram_mb
    return lifecycle.Usage(gpu_seconds=seconds, vram_mb_seconds=vram_seconds)
