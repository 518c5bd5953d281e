"""The parent of a cluster: starts it, and starts it anew when it died or fell silent.

A worker of django-q2 that is killed while it waits can take the lock of the queue with
it: the cluster looks alive, and no task is ever begun again.
"""

import contextlib
import logging
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import monotonic, sleep

from django.conf import settings
from django.db import Error, connections

from scheduler.models import Node
from scheduler.nodewatch import NodeWatch
from scheduler.periods import Periods
from scheduler.queue import beat, forget_dead, oldest_unclaimed, prune
from scheduler.reservation import lose_node, safety_net
from scheduler.sealer import sealing

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
# Longer between two looks than this was not watched: the machine slept, or we did.
WATCHED_S = 5.0
SILENCE_S = 30.0
SAFETY_NET_S = 5.0
NODES_EVERY_S = 5.0
PRUNE_EVERY_S = 3600.0
# Between two starts of a cluster that does not stay.
PAUSE_S = 1.0
END_WITHIN_S = 8.0


@dataclass
class Pulse:
    """What was seen of a cluster's work. Seconds count only while somebody looked."""

    in_hand: int = 0  # claimed, and not begun
    waiting: int | None = None  # the oldest unclaimed message
    silent_s: float = 0.0

    def heard(self, steps: bytes) -> None:
        self.in_hand += steps.count(beat.CLAIMED) - steps.count(beat.BEGUN)
        if beat.BEGUN in steps or beat.ENDED in steps:
            self.silent_s = 0.0

    def looked(self, oldest: int | None, elapsed_s: float) -> None:
        """Another message at the front is progress too: some cluster claimed the one
        before it."""
        if oldest != self.waiting and self.in_hand <= 0:
            self.silent_s = 0.0
        self.waiting = oldest
        if oldest is None and self.in_hand <= 0:
            self.silent_s = 0.0
        else:
            self.silent_s += min(elapsed_s, WATCHED_S)

    @property
    def is_silent(self) -> bool:
        """Something is to be done, and nothing began or ended for long."""
        return self.silent_s > SILENCE_S


class Watchdog:
    def __init__(self) -> None:
        self.is_stopping = False
        self._periods = Periods()
        self._nodes = NodeWatch(after_s=settings.NODE_LOST_S)
        self._looked_at_nodes = monotonic()

    def stop(self) -> None:
        """End the cluster, then us. For a signal's handler."""
        self.is_stopping = True

    def run(self) -> None:
        """One cluster after another, until told to stop."""
        with sealing():
            while not self.is_stopping:
                self._try_database(forget_dead, settings.NODE_NAME)
                began = monotonic()
                self._watch_one()
                if not self.is_stopping and monotonic() - began < PAUSE_S:
                    sleep(PAUSE_S)

    def _watch_one(self) -> None:
        """From the start of a cluster to its end, whoever ends it."""
        ear, mouth = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        with _closing(ear), _closing(mouth):
            command = [sys.executable, sys.argv[0], "cluster"]
            command += [f"--beat={mouth}", f"--watchdog={os.getpid()}"]
            cluster = subprocess.Popen(  # noqa: S603
                command, start_new_session=True, pass_fds=[mouth]
            )
            try:
                self._watch(cluster, ear)
            finally:
                _end(cluster)

    def _watch(self, cluster: subprocess.Popen[bytes], ear: int) -> None:
        pulse, looked_at = Pulse(), monotonic()
        while cluster.poll() is None and not self.is_stopping:
            select.select([ear], [], [], LOOK_EVERY_S)
            pulse.heard(_read_all(ear))
            if monotonic() - looked_at < LOOK_EVERY_S:
                continue
            elapsed_s, looked_at = monotonic() - looked_at, monotonic()
            self._try_database(self._look, pulse, elapsed_s)
            if pulse.is_silent:
                logger.error("the cluster is silent: it is started anew")
                return
        if not self.is_stopping:
            logger.error("the cluster ended by itself: %s", cluster.returncode)

    def _look(self, pulse: Pulse, elapsed_s: float) -> None:
        pulse.looked(oldest_unclaimed(settings.NODE_NAME), elapsed_s)
        if self._periods.is_due("safety net", SAFETY_NET_S):
            safety_net()
        if self._periods.is_due("nodes", NODES_EVERY_S):
            self._look_at_nodes()
        if self._periods.is_due("prune", PRUNE_EVERY_S):
            prune()

    def _look_at_nodes(self) -> None:
        """Of all but our own: that its host lives is seen by our living."""
        now = monotonic()
        elapsed_s, self._looked_at_nodes = now - self._looked_at_nodes, now
        others = Node.objects.exclude(name=settings.NODE_NAME)
        heartbeats = dict(others.values_list("name", "heartbeat_at"))
        lost = self._nodes.looked(heartbeats, elapsed_s)
        for name in lost:
            lose_node(
                name, f"Node {name} was not heard of for {settings.NODE_LOST_S} s."
            )

    def _try_database(self, act: Callable[..., None], *arguments: object) -> None:
        """While the database is away nothing can be judged."""
        try:
            act(*arguments)
        except (Error, OSError) as error:
            logger.warning("the database does not answer: %s", error)
            connections.close_all()


@contextlib.contextmanager
def _closing(fd: int) -> Iterator[None]:
    try:
        yield
    finally:
        os.close(fd)


def _read_all(fd: int) -> bytes:
    heard = b""
    with contextlib.suppress(BlockingIOError):
        while part := os.read(fd, 65536):
            heard += part
    return heard


def _end(cluster: subprocess.Popen[bytes]) -> None:
    """First politely; a cluster whose lock is lost never hears. In the end nothing of
    its process group is left, also where its parent was killed."""
    with contextlib.suppress(ProcessLookupError):
        cluster.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            cluster.wait(END_WITHIN_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(cluster.pid, signal.SIGKILL)
    cluster.wait()
