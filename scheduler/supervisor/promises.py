"""What an attempt was seen to use at most, and whether it was promised so much."""

from django.db import transaction

from jobs import lifecycle
from jobs.models import Attempt, JobEvent
from scheduler.execution import BY
from scheduler.models import Allocation
from scheduler.reconcile import is_news

OVER_PROMISE = "vram_over_promise"


def raise_peak(allocation: Allocation, uuid: str, measured_mb: int) -> None:
    """Keep the peak. A shared attempt that passes its promise is told of on its job;
    an exclusive one has the GPU for itself."""
    attempt = allocation.attempt
    if measured_mb <= attempt.peak_vram_mb.get(uuid, 0):
        return
    with transaction.atomic():
        if not allocation.is_exclusive:
            # Before the attempt's row: whoever touches both takes the job's first.
            _tell(attempt, uuid, allocation.vram_mb, measured_mb)
        attempt.peak_vram_mb[uuid] = measured_mb
        attempt.save(update_fields=["peak_vram_mb"])


def _tell(attempt: Attempt, uuid: str, promised_mb: int, measured_mb: int) -> None:
    if measured_mb <= promised_mb:
        return  # as nearly always: no need to look for what was told
    told = JobEvent.objects.filter(
        job=attempt.job_id,
        event_type=OVER_PROMISE,
        payload__attempt=attempt.number,
        payload__gpu=uuid,
    ).last()
    told_mb = told.payload["measured_mb"] if told else None
    if is_news(promised_mb, told_mb, measured_mb):
        lifecycle.note(
            attempt.job,
            OVER_PROMISE,
            by=BY,
            attempt=attempt.number,
            gpu=uuid,
            promised_mb=promised_mb,
            measured_mb=measured_mb,
        )
