"""Images that queued jobs want: looked up, pulled while no GPU is held, told of."""

import contextlib
import logging
import queue
import threading
from collections.abc import Callable
from datetime import timedelta

from django.utils import timezone

from jobs import lifecycle
from jobs.exceptions import TransitionConflict
from jobs.models import Job
from jobs.status import Reason, Status
from scheduler.execution import BY
from scheduler.models import ImageState, Node, NodeImage
from scheduler.runner.base import Runner, RunnerFault

logger = logging.getLogger(__name__)

MOST_PULLS = 2
TRY_AGAIN = timedelta(seconds=60)
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

    def turn(self) -> bool:
        """Look after what the queue wants; True if an image became present."""
        changed = self._write_down_pulls()
        rows = {row.image: row for row in self._node.images.all()}
        for image in self._wanted():
            changed |= self._look_after(image, rows.get(image))
        return changed

    def _wanted(self) -> set[str]:
        queued = Job.objects.filter(status=Status.QUEUED).exclude(image="")
        return set(queued.order_by().values_list("image", flat=True).distinct()[:200])

    def _look_after(self, image: str, row: NodeImage | None) -> bool:
        if image in self._pulling or (row and not self._is_due(row)):
            return False
        try:
            if self._runner.has_image(image):
                self._write(image, ImageState.PRESENT)
                return True
        except RunnerFault as fault:
            # Perhaps it is the image that the daemon can not stand, so that one job
            # must not take the node from all. A daemon that is away fails the next look.
            self._write(image, ImageState.FAILED, text=str(fault))
            return False
        if len(self._pulling) < MOST_PULLS:
            self._write(image, ImageState.PULLING)
            threading.Thread(target=self._pull, args=[image], daemon=True).start()
            self._pulling.add(image)
        return False

    def _is_due(self, row: NodeImage) -> bool:
        if row.state == ImageState.FAILED:
            # Either way: a clock set back must not keep it for hours.
            return abs(timezone.now() - row.updated_at) > TRY_AGAIN
        return row.state != ImageState.PRESENT

    def _pull(self, image: str) -> None:
        """A thread. Whatever becomes of it, the loop hears that the pull is over."""
        text = "The pull broke off; the supervisor's log says why."
        outcome: str | RunnerFault = RunnerFault(Reason.REGISTRY_UNREACHABLE, text)
        try:
            outcome = self._runner.pull(image)
        except RunnerFault as fault:
            outcome = fault
        finally:
            self._pulled.put((image, outcome))
            self._wake()

    def _write_down_pulls(self) -> bool:
        changed = False
        while not self._pulled.empty():
            image, outcome = self._pulled.get()
            self._pulling.discard(image)
            changed = True
            if isinstance(outcome, str):
                self._write(image, ImageState.PRESENT, digest=outcome)
            elif outcome.reason in _FINAL:
                self._give_up(image, outcome)
            else:
                self._write(image, ImageState.FAILED, text=str(outcome))
        return changed

    def _give_up(self, image: str, fault: RunnerFault) -> None:
        elsewhere = NodeImage.objects.filter(image=image, state=ImageState.PRESENT)
        if elsewhere.exclude(node=self._node).exists():
            self._write(image, ImageState.FAILED, text=str(fault))
            return
        self._node.images.filter(image=image).delete()
        text = f"Image {image} can not be had: {fault}"
        for job in Job.objects.filter(status=Status.QUEUED, image=image):
            # Its owner may have cancelled it meanwhile, or another node have taken it.
            with contextlib.suppress(TransitionConflict):
                lifecycle.fail_queued(job, fault.reason, text, by=BY)

    def _write(
        self, image: str, state: ImageState, *, digest: str = "", text: str = ""
    ) -> None:
        NodeImage.objects.update_or_create(
            node=self._node,
            image=image,
            defaults={
                "state": state,
                "digest": digest,
                "text": text,
                "updated_at": timezone.now(),
            },
        )
