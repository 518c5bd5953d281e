"""django-q2's cluster, such that nothing of it outlives its watchdog."""

import ctypes
import os
import signal

from django_q.cluster import Cluster

from scheduler.queue import beat

_PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None).prctl


def run_cluster(beat_fd: int, watchdog: int) -> None:
    """Run until SIGTERM, after which the tasks at work are finished. `watchdog` is the
    pid of our parent: it may have died before we could ask for its word.

    Every process dies with the one that forked it: killed in whatever part, the rest
    neither stays behind unseen nor goes on beside a new cluster.
    """
    _die_with(watchdog)
    os.register_at_fork(before=_remember_pid, after_in_child=_die_with_forker)
    beat.attach(beat_fd)
    Cluster().start()


_forker = 0


def _remember_pid() -> None:
    global _forker
    _forker = os.getpid()


def _die_with_forker() -> None:
    _die_with(_forker)


def _die_with(parent: int) -> None:
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before we could ask for its word
        os.kill(os.getpid(), signal.SIGKILL)
