"""What a pass would say: of a job that waits, or of a request that is only thought of."""

from dataclasses import dataclass, replace

from django.utils import timezone

from jobs.models import Job, Quota
from jobs.status import Status, WaitReason
from jobs.waiting import outside_line
from scheduler import placement
from scheduler.placement import Lane, Placement, Snapshot
from scheduler.placement.forecast import Expected, Explanation
from scheduler.placement.forecast import explain as explain_in_line
from scheduler.reservation.line import load_lanes, request_of
from scheduler.reservation.snapshots import load_hardware, load_snapshot
from scheduler.reservation.waking import SILENCE_TEXT, is_silent

NEW = "new"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Why a job waits. `explained` is None where it is not in line."""

    reason: str = ""
    text: str
    explained: Explanation | None = None


def explain(job: Job) -> Answer:
    """Of a job in line, by the function that decides."""
    if job.status != Status.QUEUED:
        return Answer(text=job.reason_text or f"It does not wait: it is {job.status}.")
    now = timezone.now()
    outside = outside_line(job, job.open_parents, now)
    if outside:
        return Answer(reason=outside[0], text=outside[1])
    line, job_id = load_lanes(now), str(job.pk)
    if job_id not in line.reasons:
        return Answer(text="It left the line just now. Look again.")
    found = explain_in_line(load_snapshot(now, line.lanes), line.lanes, job_id)
    return _heard(answer(found))


def answer(explained: Explanation) -> Answer:
    decision = explained.decision
    if isinstance(decision, Placement):
        text = f"It starts on {decision.node} with the next pass."
        return Answer(text=text, explained=explained)
    return Answer(reason=decision.reason, text=decision.text, explained=explained)


def _heard(said: Answer) -> Answer:
    """Where no pass is made none will come, whatever it would say."""
    if not is_silent() or said.explained is None:
        return said
    explained = replace(said.explained, expected=Expected(), change=None)
    reason = WaitReason.SCHEDULER_DOWN
    return Answer(reason=reason, text=SILENCE_TEXT, explained=explained)


def never(job: Job, *, snapshot: Snapshot | None = None) -> str:
    """Why the job, which is not saved yet, could never start here; empty if it could:
    too large for any node, or for a limit of its owner or group."""
    snapshot = snapshot or load_hardware()
    refusal = placement.fits_ever(snapshot, request_of(job))
    return refusal or over_limits(job, snapshot)


def over_limits(job: Job, snapshot: Snapshot) -> str:
    """Why it is too large for a limit of its owner or group; empty if it is not."""
    rows = Quota.objects.concerning(job.owner, job.group)
    users, groups, everyone = rows.limits()
    own, shared = users.get(job.owner.email, everyone), groups.get(job.group)
    vram_mb = _least_vram_mb(job, snapshot)
    quotas = (quota for quota in (own, shared) if quota is not None)
    refusals = (_over(job, quota, vram_mb) for quota in quotas)
    return next(filter(None, refusals), "")


def _least_vram_mb(job: Job, snapshot: Snapshot) -> int:
    """What it would take of the smallest GPUs that are enough: an exclusive job takes
    all of each."""
    request = request_of(job)
    if request.share:
        return request.gpu_count * request.vram_mb
    able = (gpu for gpu in snapshot.gpus.values() if placement.suits(gpu, request))
    return sum(sorted(gpu.usable_mb for gpu in able)[: request.gpu_count])


def _over(job: Job, quota: Quota, vram_mb: int) -> str:
    whose = f"the group {quota.group}" if quota.group else "you"
    if quota.gpus is not None and job.gpu_count > quota.gpus:
        gpus = "1 GPU" if job.gpu_count == 1 else f"{job.gpu_count} GPUs"
        return f"It asks for {gpus}; {whose} may have {quota.gpus}."
    if quota.vram_mb is not None and vram_mb > quota.vram_mb:
        return f"It takes {vram_mb:,} MiB of VRAM; {whose} may have {quota.vram_mb:,}."
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
