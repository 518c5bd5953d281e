"""What a pass would say: of a job that waits, or of a request that is only thought of."""

from dataclasses import replace

from django.utils import timezone

from jobs.models import Job, Quota
from scheduler import placement
from scheduler.placement import Lane, Snapshot
from scheduler.placement.forecast import Explanation
from scheduler.placement.forecast import explain as explain_in_line
from scheduler.reservation.line import load_lanes, request_of
from scheduler.reservation.snapshots import load_snapshot

NEW = "new"


def explain(job: Job) -> Explanation | None:
    """By the function that decides; None of a job that is not in the line."""
    now = timezone.now()
    lanes = load_lanes(now).lanes
    job_id = str(job.pk)
    if not any(job_id == other for lane in lanes for other, _ in lane.jobs):
        return None
    return explain_in_line(load_snapshot(now, lanes), lanes, job_id)


def never(job: Job, *, snapshot: Snapshot | None = None) -> str:
    """Why the job, which is not saved yet, could never start here; empty if it could:
    too large for any node, or for a limit of its owner or group."""
    snapshot = snapshot or load_snapshot()
    refusal = placement.fits_ever(snapshot, request_of(job))
    if refusal:
        return refusal
    users, groups, everyone = Quota.objects.limits()
    own, shared = users.get(job.owner.email, everyone), groups.get(job.group)
    refusals = (_over(job, quota) for quota in (own, shared) if quota is not None)
    return next(filter(None, refusals), "")


def _over(job: Job, quota: Quota) -> str:
    whose = f"the group {quota.group}" if quota.group else "you"
    if quota.gpus is not None and job.gpu_count > quota.gpus:
        gpus = "1 GPU" if job.gpu_count == 1 else f"{job.gpu_count} GPUs"
        return f"It asks for {gpus}; {whose} may have {quota.gpus}."
    vram_mb = job.gpu_count * (job.min_vram_mb or 1)
    if quota.vram_mb is not None and vram_mb > quota.vram_mb:
        return (
            f"It asks for {vram_mb:,} MiB of VRAM; {whose} may have {quota.vram_mb:,}."
        )
    return ""


def consider(job: Job) -> tuple[str, Explanation | None]:
    """What a job that is not saved would meet: a refusal for ever, or the answer of
    a pass with it at the end of its lane."""
    now = timezone.now()
    lanes = load_lanes(now).lanes
    lane = Lane(
        request=request_of(job),
        jobs=((NEW, now.timestamp()),),
        owner=job.owner.email,
        group=job.group,
        priority=job.priority,
        aged_from=now.timestamp(),
    )
    snapshot = load_snapshot(now, [*lanes, lane])
    refusal = never(job, snapshot=snapshot)
    if refusal:
        return refusal, None
    return "", explain_in_line(snapshot, _joined(lanes, lane), NEW)


def _joined(lanes: list[Lane], new: Lane) -> list[Lane]:
    """A lane of its own, or the end of one that asks for the same."""
    for index, lane in enumerate(lanes):
        same = replace(new, jobs=lane.jobs, aged_from=lane.aged_from)
        if lane == same:
            longer = replace(lane, jobs=lane.jobs + new.jobs)
            return [*lanes[:index], longer, *lanes[index + 1 :]]
    return [*lanes, new]
