"""From the rows to a snapshot, and from a placement to rows: the scheduling pass.

The database refuses what the code overlooks: a placement that came too late is an
IntegrityError, rolled back whole, and the job stays queued.
"""

import logging
import secrets
from collections import defaultdict
from datetime import timedelta

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Case, Count, F, Q, Value, When
from django.db.models.functions import Greatest
from django.utils import timezone

from jobs import lifecycle
from jobs.exceptions import GpuJobsError, TransitionConflict
from jobs.models import Attempt, Job
from jobs.models.job import DEFAULT_PRIORITY
from jobs.status import Status, WaitReason
from scheduler import placement
from scheduler.models import GPU, Allocation, ImageState, Node, NodeImage, PassLease
from scheduler.placement import Placement, Wait
from scheduler.queue import enqueue

logger = logging.getLogger(__name__)

BY = "scheduler"
# A node whose supervisor was not heard of for so long takes no new job.
SILENCE = timedelta(seconds=30)
LEASE = timedelta(seconds=30)
HEAD = 200


class ReservationLost(GpuJobsError):
    """Somebody else reserved first, or the job moved on."""


# --- Snapshot ------------------------------------------------------------------------


def request_of(job: Job) -> placement.Request:
    return placement.Request(
        job_id=str(job.pk),
        gpu_count=job.gpu_count,
        min_vram_mb=job.min_vram_mb,
        share=job.share,
        gpu_name=job.gpu_name,
        # A process has no image.
        image="" if settings.RUNNER == "process" else job.image,
        cpus=job.cpus,
        memory_mb=job.memory_mb,
    )


def snapshot() -> placement.Snapshot:
    """What a pass decides on: nodes, GPUs with both ledgers, images."""
    return placement.Snapshot(
        nodes={node.name: node for node in _nodes()},
        gpus={gpu.id: gpu for gpu in _gpus()},
        foreign_tolerance_mb=settings.FOREIGN_TOLERANCE_MB,
    )


def _nodes() -> list[placement.Node]:
    images: dict[int, set[str]] = defaultdict(set)
    pulls: dict[int, dict[str, str]] = defaultdict(dict)
    for row in NodeImage.objects.all():
        if row.state == ImageState.PRESENT:
            images[row.node_id].add(row.image)
        else:
            pulls[row.node_id][row.image] = row.text or row.state
    live = Attempt.objects.live().filter(job__gpu_count=0).values("node")
    busy = {row["node"]: row["n"] for row in live.annotate(n=Count("id"))}
    heard_since = timezone.now() - SILENCE
    return [
        placement.Node(
            name=node.name,
            state=node.state
            if node.heartbeat_at and node.heartbeat_at > heard_since
            else "down",
            cpus=node.cpus,
            memory_mb=node.memory_mb,
            cpus_free=node.cpus - busy.get(node.name, 0),
            images=frozenset(images[node.pk]),
            pulls=pulls[node.pk],
        )
        for node in Node.objects.all()
    ]


def _gpus() -> list[placement.Gpu]:
    holdings: dict[int, list[placement.Holding]] = defaultdict(list)
    for allocation in Allocation.objects.live():
        holdings[allocation.gpu_id].append(
            placement.Holding(
                promised_mb=allocation.vram_mb,
                measured_mb=allocation.measured_mb,
                is_exclusive=allocation.is_exclusive,
            )
        )
    return [
        placement.Gpu(
            id=gpu.pk,
            uuid=gpu.uuid,
            index=gpu.index,
            name=gpu.name,
            node=gpu.node.name,
            total_mb=gpu.total_mb,
            reserved_mb=gpu.reserved_mb,
            headroom_mb=gpu.headroom_mb,
            foreign_mb=gpu.foreign_mb,
            state=gpu.state,
            state_reason=gpu.state_reason,
            is_present=gpu.is_present,
            holdings=tuple(holdings[gpu.pk]),
        )
        for gpu in GPU.objects.select_related("node").order_by("node__name", "index")
    ]


# --- Reserve and release -------------------------------------------------------------


def reserve(placed: Placement) -> Attempt:
    """queued -> starting with its allocations, all or none; GPU rows in id order.

    Raises ReservationLost, and then nothing was written.
    """
    chosen = sorted(
        zip(placed.gpus, placed.vram_mb, strict=True), key=lambda pair: pair[0].id
    )
    shown = sorted((gpu.index, gpu.uuid) for gpu in placed.gpus)
    try:
        with transaction.atomic():
            attempt = lifecycle.start(
                Job(pk=placed.request.job_id),
                node=placed.node,
                gpu_indices=[index for index, _ in shown],
                gpu_uuids=[uuid for _, uuid in shown],
                by=BY,
            )
            for gpu, vram_mb in chosen:
                Allocation.objects.create(
                    attempt=attempt,
                    gpu_id=gpu.id,
                    vram_mb=vram_mb,
                    is_exclusive=not placed.request.share,
                )
            enqueue("launch", str(attempt.pk))
    except (IntegrityError, TransitionConflict) as error:
        raise ReservationLost(str(error)) from error
    return attempt


def release(attempt: Attempt) -> int:
    """Close the attempt's allocations; only on evidence that nothing of it runs."""
    now = timezone.now()
    released = Allocation.objects.live().filter(attempt=attempt)
    return released.update(released_at=Greatest("reserved_at", now))


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


# --- The pass ------------------------------------------------------------------------


def wake() -> None:
    """Ask for a pass. Wakes coalesce, but none is absorbed by a pass under way."""
    PassLease.objects.get_or_create(id=1)
    first = When(wakes=F("served"), then=Value(timezone.now()))
    woken_at = Case(first, default=F("woken_at"))
    PassLease.objects.filter(id=1).update(wakes=F("wakes") + 1, woken_at=woken_at)
    enqueue("schedule")


def run_passes() -> int:
    """Serve every wake there is, unless another process is at it; jobs placed."""
    holder, placed = secrets.token_hex(8), 0
    while (wakes := _take_lease(holder)) is not None:
        try:
            placed += one_pass()
            PassLease.objects.filter(id=1, holder=holder).update(
                served=wakes, passed_at=timezone.now()
            )
        finally:
            PassLease.objects.filter(id=1, holder=holder).update(holder="")
    return placed


def _take_lease(holder: str) -> int | None:
    now = timezone.now()
    # A lease longer than any is of a clock that was set back since.
    over = Q(expires_at__lt=now) | Q(expires_at__gt=now + 2 * LEASE)
    free = Q(holder="") | over
    mine = PassLease.objects.filter(free, id=1, wakes__gt=F("served"))
    if mine.update(holder=holder, expires_at=now + LEASE) != 1:
        return None
    return PassLease.objects.values_list("wakes", flat=True).get(id=1)


def one_pass() -> int:
    """Decide for the head of the queue and apply; the number of jobs placed."""
    jobs = {str(job.pk): job for job in _head()}
    if not jobs:
        return 0
    placed = 0
    requests = [request_of(job) for job in jobs.values()]
    for decision in placement.plan(snapshot(), requests):
        placed += _apply(jobs[decision.request.job_id], decision)
    return placed


def tell_of_silence() -> None:
    """Where wakes are not served, say so on the jobs that wait. For the supervisor to
    call: it is another process than the cluster, which would say it itself."""
    since = timezone.now() - SILENCE
    unserved = PassLease.objects.filter(wakes__gt=F("served"))
    if unserved.filter(woken_at__lt=since).exists():
        text = (
            f"No scheduling pass was made for {SILENCE.seconds} s. An operator should "
            "see whether the cluster (manage.py cluster) runs."
        )
        for job in Job.objects.queued()[:HEAD]:
            lifecycle.explain_wait(job, WaitReason.SCHEDULER_DOWN, text)


def _head() -> list[Job]:
    """The first in line, and apart from them the first that wait for their image:
    those hold nothing, and however many they are they keep nobody from a GPU."""
    present = NodeImage.objects.filter(state=ImageState.PRESENT).values("image")
    ready = Job.objects.queued().filter(image__in=present)[:HEAD]
    unready = Job.objects.queued().exclude(image__in=present)[:HEAD]
    return [*ready, *unready]


def _apply(job: Job, decision: Placement | Wait) -> bool:
    if isinstance(decision, Wait):
        lifecycle.explain_wait(job, decision.reason, decision.text)
        return False
    try:
        reserve(decision)
    except ReservationLost as lost:
        logger.info("reservation lost", extra={"job": job.pk, "why": str(lost)})
        return False
    return True


def consider(
    request: placement.Request, priority: int = DEFAULT_PRIORITY
) -> tuple[str, Placement | Wait | None]:
    """What a new request would meet: a refusal for ever, or today's decision.

    Jobs that wait already are ahead of it, unless their priority is lower.
    """
    now = snapshot()
    refusal = placement.fits_ever(now, request)
    if refusal:
        return refusal, None
    ahead = [request_of(job) for job in _head() if job.priority >= priority]
    return "", placement.plan(now, [*ahead, request])[-1]


def explain(job: Job) -> tuple[Placement | Wait | None, int]:
    """Why a queued job waits, by the function that decides, and its place in line.

    Nothing, and 0, of a job that is not queued.
    """
    if job.status != Status.QUEUED:
        return None, 0
    before = Q(created_at__lt=job.created_at) | Q(
        created_at=job.created_at, id__lt=job.pk
    )
    first = Q(priority__gt=job.priority) | Q(before, priority=job.priority)
    ahead = Job.objects.queued().filter(first).count()
    requests = [request_of(other) for other in _head()]
    for decision in placement.plan(snapshot(), requests):
        if decision.request.job_id == str(job.pk):
            return decision, ahead + 1
    text = f"{ahead} jobs are ahead of it; a pass looks at the first {HEAD} in line."
    wait = Wait(request=request_of(job), reason=WaitReason.PRIORITY, text=text)
    return wait, ahead + 1
