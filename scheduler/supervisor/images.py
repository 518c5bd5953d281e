"""Images that queued jobs want: looked up, pulled while no GPU is held, told of."""

import contextlib
import logging
import queue
import threading
from collections.abc import Callable
from datetime import timedelta
from time import monotonic
from typing import Any

from django.db.models import Max, Min, Q
from django.utils import timezone

from jobs import lifecycle
from jobs.exceptions import TransitionConflict
from jobs.failpoints import failpoint
from jobs.models import Attempt, Job, RoutingPolicy
from jobs.models.job import JobQuerySet
from jobs.status import Reason
from scheduler.execution import BY, node_policy
from scheduler.models import ImageState, Node, NodeImage
from scheduler.runner.base import RateLimited, Runner, RunnerFault

logger = logging.getLogger(__name__)

MOST_PULLS = 2
MOST_IMAGES = 200
TRY_AGAIN = timedelta(minutes=1)
# A limit is of hours: asked every minute it would never be over.
TRY_AGAIN_LIMITED = timedelta(minutes=10)
# So long before a job may begin its image is fetched.
AHEAD = timedelta(minutes=10)
PROGRESS_EVERY_S = 1.0
# Endings that another try will not change: the job is told, and ends.
_FINAL = (Reason.IMAGE_NOT_FOUND, Reason.IMAGE_AUTH)


class Images:
    def __init__(self, node: Node, runner: Runner, wake: Callable[[], None]) -> None:
        self._node = node
        self._runner = runner
        self._wake = wake
        self._pulling: set[str] = set()
        # Pulls end in their threads; rows are written by the loop alone.
        self._pulled: queue.SimpleQueue[tuple[str, str | RunnerFault]] = (
            queue.SimpleQueue()
        )
        # Bytes done and in all: as the thread last said, and as the row tells it.
        self._seen: dict[str, tuple[int, int]] = {}
        self._told: dict[str, tuple[int, int]] = {}
        self._told_at = 0.0
        self._limited: set[str] = set()
        self._full: dict[str, str] = {}

    @property
    def report(self) -> str:
        """What an operator must do before images can be pulled here again."""
        return next(iter(self._full.values()), "")

    def turn(self) -> bool:
        """Look after what the queue wants; True if an image became present."""
        changed = self._write_down_pulls()
        self._write_down_progress()
        rows = {row.image: row for row in self._node.images.all()}
        wanted = self._wanted()
        self._full = {i: text for i, text in self._full.items() if i in wanted}
        for image in wanted:
            changed |= self._look_after(image, rows.get(image))
        return changed

    # --- What is wanted --------------------------------------------------------------

    def _ready(self) -> JobQuerySet:
        here = Q(node_name="") | Q(node_name=self._node.name)
        return Job.objects.ready(timezone.now() + AHEAD).filter(here)

    def _is_for_us(self, labels: dict[str, Any]) -> bool:
        return labels.items() <= self._node.labels.items()

    def _wanted(self) -> list[str]:
        """Those that the first in line want come first."""
        self._node.refresh_from_db(fields=["labels"])
        groups = self._ready().exclude(image="").values("image", "node_labels")
        first = groups.annotate(highest=Max("priority"), oldest=Min("created_at"))
        images = (
            group["image"]
            for group in first.order_by("-highest", "oldest")
            if self._is_for_us(group["node_labels"])
        )
        return list(dict.fromkeys([*images, *self._of_validators()]))[:MOST_IMAGES]

    def _of_validators(self) -> list[str]:
        """Of what runs here and will be judged here."""
        here = Attempt.objects.bound().filter(node=self._node.name)
        ids = here.filter(job__policy__isnull=False).values("job__policy")
        policies = RoutingPolicy.objects.filter(pk__in=ids)
        return [c.image for row in policies for c in row.read().execution_checks]

    def _wanting(self, image: str) -> list[Job]:
        jobs = self._ready().filter(image=image)
        return [job for job in jobs if self._is_for_us(job.node_labels)]

    def _look_after(self, image: str, row: NodeImage | None) -> bool:
        # Also of one that is here: asked for by whoever may not run it.
        if refused := node_policy().refusal_of_image(image):
            self._give_up(image, RunnerFault(Reason.POLICY_DENIED, refused))
            return False
        if image in self._pulling or (row and not self._is_due(row)):
            return False
        try:
            if self._runner.has_image(image):
                self._full.pop(image, None)
                self._write(image, ImageState.PRESENT)
                return True
        except RunnerFault as fault:
            # Perhaps it is the image that the daemon can not stand, so that one job
            # must not take the node from all. A daemon that is away fails the next look.
            self._write(image, ImageState.FAILED, text=str(fault))
            return False
        if len(self._pulling) < MOST_PULLS:
            self._begin(image)
        return False

    def _is_due(self, row: NodeImage) -> bool:
        if row.state == ImageState.FAILED:
            # Either way: a clock set back must not keep it for hours.
            return abs(timezone.now() - row.updated_at) > self._pause(row.image)
        return row.state != ImageState.PRESENT

    def _pause(self, image: str) -> timedelta:
        return TRY_AGAIN_LIMITED if image in self._limited else TRY_AGAIN

    # --- Pulls -----------------------------------------------------------------------

    def _begin(self, image: str) -> None:
        self._write(image, ImageState.PULLING, text="pulling")
        failpoint("pull.begun")
        self._seen.pop(image, None)
        self._told.pop(image, None)
        threading.Thread(target=self._pull, args=[image], daemon=True).start()
        self._pulling.add(image)

    def _pull(self, image: str) -> None:
        """A thread. Whatever becomes of it, the loop hears that the pull is over."""
        text = "The pull broke off; the supervisor's log says why."
        outcome: str | RunnerFault = RunnerFault(Reason.REGISTRY_UNREACHABLE, text)

        def progress(done: int, total: int) -> None:
            self._seen[image] = (done, total)

        try:
            outcome = self._runner.pull(image, progress)
        except RunnerFault as fault:
            outcome = fault
        finally:
            self._pulled.put((image, outcome))
            self._wake()

    def _write_down_progress(self) -> None:
        if monotonic() - self._told_at < PROGRESS_EVERY_S:
            return
        self._told_at = monotonic()
        for image in self._pulling:
            seen = self._seen.get(image, (0, 0))
            if seen[1] and seen != self._told.get(image):
                self._told[image] = seen
                text = f"pulling: {_mb(seen[0])} of {_mb(seen[1])} MB"
                self._write(image, ImageState.PULLING, text=text, size=seen)

    def _write_down_pulls(self) -> bool:
        changed = False
        while not self._pulled.empty():
            image, outcome = self._pulled.get()
            failpoint("pull.over")
            self._pulling.discard(image)
            self._limited.discard(image)
            self._full.pop(image, None)
            changed = True
            if isinstance(outcome, str):
                total = self._seen.get(image, (0, 0))[1]
                size = (total, total)
                self._write(image, ImageState.PRESENT, digest=outcome, size=size)
            else:
                self._note_failure(image, outcome)
        return changed

    def _note_failure(self, image: str, fault: RunnerFault) -> None:
        if fault.reason in _FINAL:
            self._give_up(image, fault)
            return
        if isinstance(fault, RateLimited):
            self._limited.add(image)
        if fault.reason is Reason.DISK_FULL:
            self._full[image] = f"Image {image} can not be pulled: {fault}"
        minutes = self._pause(image) // timedelta(minutes=1)
        text = f"the pull failed and is tried again in {minutes} min: {fault}"
        self._write(image, ImageState.FAILED, text=text)

    def _give_up(self, image: str, fault: RunnerFault) -> None:
        elsewhere = NodeImage.objects.filter(image=image, state=ImageState.PRESENT)
        if elsewhere.exclude(node=self._node).exists():
            self._write(image, ImageState.FAILED, text=str(fault))
            return
        text = f"Image {image} can not be had: {fault}"
        wanting = self._wanting(image)
        if not wanting:  # a validator wants it, whose launch will tell
            self._write(image, ImageState.FAILED, text=text)
            return
        self._node.images.filter(image=image).delete()
        for job in wanting:
            # Its owner may have cancelled it meanwhile, or another node have taken it.
            with contextlib.suppress(TransitionConflict):
                lifecycle.fail_queued(job, fault.reason, text, by=BY)

    def _write(
        self,
        image: str,
        state: ImageState,
        *,
        digest: str = "",
        text: str = "",
        size: tuple[int, int] = (0, 0),
    ) -> None:
        NodeImage.objects.update_or_create(
            node=self._node,
            image=image,
            defaults={
                "state": state,
                "digest": digest,
                "text": text,
                "bytes_done": size[0],
                "bytes_total": size[1],
                "updated_at": timezone.now(),
            },
        )


def _mb(size: int) -> int:
    return round(size / 1_000_000)
