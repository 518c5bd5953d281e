"""One turn after another: look at everything, then ask for what is missing."""

import fcntl
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from time import monotonic

from django.conf import settings
from django.db import Error, connections
from django.utils import timezone

from jobs import lifecycle, storage
from jobs.failpoints import failpoint
from jobs.models import Attempt
from jobs.status import Phase, Reason
from scheduler.execution import BY, asked_of, is_at_work, is_waiting, sweep_mounts
from scheduler.inventory.base import Inventory
from scheduler.models import Node, NodeState
from scheduler.periods import Periods
from scheduler.queue import enqueue, standing
from scheduler.reconcile import Ask, Ended, Known, Task, leftovers, reconcile
from scheduler.reservation import safety_net, tell_of_silence, wake
from scheduler.runner.base import (
    ContainerState,
    Observation,
    Runner,
    RunnerFault,
)
from scheduler.supervisor.clocks import RunClock
from scheduler.supervisor.hardware import Hardware
from scheduler.supervisor.heartbeat import Heartbeat
from scheduler.supervisor.images import Images
from scheduler.supervisor.kills import Kills
from scheduler.supervisor.logs import LogFollowers
from scheduler.supervisor.losses import give_up_on
from scheduler.supervisor.service import bring_back
from scheduler.supervisor.strays import Strays
from scheduler.supervisor.verifying import Verifier
from scheduler.supervisor.writing import Writing

logger = logging.getLogger(__name__)

TURN_S = 1.0
SAMPLE_EVERY_S = 2.0
SYNC_EVERY_S = 30.0
SAFETY_NET_S = 5.0
SILENCE_S = 10.0
SWEEP_EVERY_S = 600.0
STRAYS_EVERY_S = 10.0
WRITING_EVERY_S = 5.0
VERIFY_EVERY_S = 60.0
# A task that is over and changed nothing is not asked for again at once.
ASK_AGAIN_S = 2.0
GIVE_UP_AFTER_S = 30.0
CLEANING = "Containers of attempts that ended are removed before anything starts."


class AlreadySupervised(Exception):
    """Another supervisor holds this node."""


@contextmanager
def the_only_one() -> Iterator[None]:
    """Refuse a second supervisor of the node; the kernel frees the lock of a dead one."""
    settings.RUN_ROOT.mkdir(parents=True, exist_ok=True)
    with (settings.RUN_ROOT / "supervisor.lock").open("w") as file:
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            text = f"Node {settings.NODE_NAME} has a supervisor already."
            raise AlreadySupervised(text) from None
        yield


class Supervisor:
    """Nothing it knows is lost with it: rows and containers tell all."""

    def __init__(self, runner: Runner, inventory: Inventory) -> None:
        self._runner = runner
        self._node, _ = Node.objects.get_or_create(name=settings.NODE_NAME)
        self._woken = threading.Event()
        self._hardware = Hardware(self._node, inventory, runner)
        self._images = Images(self._node, runner, self.wake)
        self._followers = LogFollowers(runner, self.wake)
        self._strays = Strays(self._node, runner)
        self._writing = Writing(self.wake)
        self._verifier = Verifier(self._node, runner, inventory)
        # Of the row before our first word in it: the last of the supervisor before us.
        self._kills = Kills(runner, self.wake, self._node.heartbeat_at)
        # By a clock that nobody sets: one set back would make it wait for hours.
        self._asked: dict[Ask, float] = {}
        # What was asked for and may not have begun; of this turn, once it is needed.
        self._standing: set[tuple[str, ...]] | None = None
        self._periods = Periods()
        self._unkillable: dict[str, float] = {}
        self._clock = RunClock()
        self._rest_s = TURN_S
        self._heart = Heartbeat(self._node)
        # Whether nothing of attempts that ended ran here since the node joined.
        self._is_clean = False
        self.is_stopping = False

    def wake(self) -> None:
        """Let the next turn begin now; any thread may call it."""
        self._woken.set()

    def stop(self) -> None:
        """End after this turn. A signal's handler may call it, which must not wait for
        a lock that the code it interrupts may hold: no wake, the next turn is near."""
        self.is_stopping = True

    def run(self) -> None:
        """Turn until told to stop. Jobs go on without us."""
        self._try(lambda: self._heart.beat(NodeState.JOINING))
        while not self.is_stopping:
            self._woken.clear()
            self._kills.keep_watching()
            self._try(self.turn)
            self._woken.wait(self._rest_s)
        self._try(lambda: self._heart.beat(NodeState.DOWN))

    def _try(self, act: Callable[[], object]) -> None:
        """A database or a disk that fails costs a turn, not the supervisor."""
        try:
            act()
        except (Error, OSError):
            logger.exception("this turn was given up")
            # A connection that broke does not mend itself.
            connections.close_all()

    def turn(self) -> None:
        """Look at hardware, images and containers; ask; say that we are there."""
        self._is_clean &= not self._heart.is_given_up()
        report = ""
        changed = self._periods.is_due("sync", SYNC_EVERY_S) and self._hardware.sync()
        if self._periods.is_due("sample", SAMPLE_EVERY_S):
            changed |= self._hardware.sample()
        changed |= bring_back(self._node)
        try:
            self._is_clean |= not self._reconcile()
            report = "" if self._is_clean else CLEANING
            changed |= self._images.turn()
            if self._periods.is_due("strays", STRAYS_EVERY_S):
                self._strays.turn()
        except RunnerFault as fault:
            report = str(fault)
            logger.warning("the runner does not answer: %s", fault)
        # A node is up only after a full reconcile, and only while it can run things.
        state = NodeState.JOINING if report else NodeState.UP
        reports = (report, self._hardware.report, self._images.report)
        changed |= self._heart.beat(state, reports)
        if self._periods.is_due("sweep", SWEEP_EVERY_S):
            storage.sweep()
            sweep_mounts()
        if self._periods.is_due("silence", SILENCE_S):
            tell_of_silence()
            lifecycle.expire_reviews(by=BY)
        if changed:
            wake()
        elif self._periods.is_due("schedule", SAFETY_NET_S):
            safety_net()
        if self._periods.is_due("verify", VERIFY_EVERY_S):
            self._verifier.turn()

    # --- Containers ------------------------------------------------------------------

    def _live(self) -> list[Attempt]:
        rows = Attempt.objects.bound().filter(node=self._node.name)
        return list(rows.select_related("job__policy"))

    def _reconcile(self) -> bool:
        """Ask for what is missing; True if there is what is not ours any more."""
        # Rows are read before containers: one that a row calls running was made
        # before, so that not to find it means that it is gone.
        live = self._live()
        found = self._runner.observe()
        # After the look: an exit that it shows is not collected before its kill is known.
        self._kills.write_down(self._live)
        attempts = {str(attempt.pk): attempt for attempt in live}
        self._follow(live, found)
        if self._periods.is_due("writing", WRITING_EVERY_S):
            self._writing.turn(live, found)
        self._writing.write_down(attempts)
        self._rest_s = min([TURN_S, *filter(None, map(_grace_left_s, live))])
        asks = reconcile(timezone.now(), map(self._known, live), found)
        self._clock.forget_but(set(attempts))
        self._standing = None
        self._asked = {
            ask: at for ask, at in self._asked.items() if monotonic() - at < ASK_AGAIN_S
        }
        if any(ask.task is Task.COLLECT and ask not in self._asked for ask in asks):
            # Whether its GPU was lost under it decides how it ended.
            self._hardware.sample()
        for ask in asks:
            self._do(ask, attempts[ask.attempt_id])
        return self._sweep(live, found)

    def _do(self, ask: Ask, attempt: Attempt) -> None:
        if ask.task is Task.EXPIRE:
            lifecycle.request_stop(attempt, Reason.TIMED_OUT, by=BY)
            failpoint("expire.written")
            self.wake()
        elif ask.task is Task.GIVE_UP:
            since = self._unkillable.setdefault(ask.attempt_id, monotonic())
            # By the seconds that we watched: a clock may have jumped.
            if monotonic() - since >= GIVE_UP_AFTER_S:
                give_up_on(attempt)
            self._ask(replace(ask, task=Task.STOP))
        else:
            self._ask(ask)

    def _follow(self, live: list[Attempt], found: list[Observation]) -> None:
        running = {o.container_id for o in found if o.state is ContainerState.RUNNING}
        for attempt in live:
            if attempt.phase == Phase.RUNNING and attempt.container in running:
                self._followers.ensure(attempt)
        self._followers.forget_but(running)

    def _ask(self, ask: Ask) -> None:
        """Unless it stands: asked for and not begun, or at work."""
        if ask in self._asked:
            return
        if self._standing is None:
            self._standing = standing(self._node.name)
        is_standing = (ask.task, ask.attempt_id) in self._standing
        if not is_standing and not is_at_work(ask.attempt_id):
            enqueue(ask.task, ask.attempt_id, node=self._node.name)
            self._asked[ask] = monotonic()

    def _sweep(self, live: list[Attempt], found: list[Observation]) -> bool:
        """Containers of attempts that ended are collected once more: removed."""
        ours = {attempt.nonce for attempt in live}
        strange = [o.nonce for o in found if o.nonce not in ours]
        rows = Attempt.objects.filter(nonce__in=strange, ended_at__isnull=False)
        left = leftovers(found, map(_ended, rows))
        for attempt_id in left:
            self._ask(Ask(task=Task.COLLECT, attempt_id=attempt_id, stage="ended"))
        return bool(left)

    def _known(self, attempt: Attempt) -> Known:
        asked = asked_of(attempt)
        return Known(
            attempt_id=str(attempt.pk),
            container=attempt.container,
            phase=Phase(attempt.phase),
            ran_for=self._clock.ran_for(attempt),
            timeout=timedelta(seconds=asked.timeout_s),
            grace=timedelta(seconds=asked.grace_s),
            stop_wanted=bool(attempt.stop_reason),
            stop_sent_at=attempt.stop_sent_at,
            is_waiting=is_waiting(attempt),
        )


def _grace_left_s(attempt: Attempt) -> float | None:
    """Until SIGKILL is due: the next turn shall be then, and not up to a second later."""
    if attempt.stop_sent_at is None:
        return None
    since = (timezone.now() - attempt.stop_sent_at).total_seconds()
    left_s = attempt.job.grace_s - since
    return left_s if 0 < left_s < TURN_S else None


def _ended(attempt: Attempt) -> Ended:
    return Ended(
        attempt_id=str(attempt.pk),
        name=attempt.container_name,
        nonce=attempt.nonce,
        container_id=attempt.container_id,
    )
