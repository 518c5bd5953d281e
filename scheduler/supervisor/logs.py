"""Logs while jobs run: a thread per container copies the head to the job's file."""

import logging
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from time import monotonic

from django.conf import settings

from jobs import storage
from jobs.models import Attempt
from jobs.secrets import masked
from scheduler.execution import given_values
from scheduler.runner.base import Runner, RunnerFault

logger = logging.getLogger(__name__)

# A follower that ends wakes the loop: without a pause, one that ends at once spins.
FOLLOW_AGAIN_S = 5.0


class LogFollowers:
    """Threads know files and the runner, no rows.

    A follower that ends wakes the loop, which looks at the container: the end of the
    stream is a hint that it exited, never a proof.
    """

    def __init__(self, runner: Runner, wake: Callable[[], None]) -> None:
        self._runner = runner
        self._wake = wake
        self._threads: dict[str, threading.Thread] = {}
        self._begun: dict[str, float] = {}
        # Of these the rest is read at their end.
        self._done: set[str] = set()

    def ensure(self, attempt: Attempt) -> None:
        """Follow this running attempt, from where its file ends if it was before."""
        name = attempt.container
        thread = self._threads.get(name)
        if name in self._done:
            return
        if thread is None or self._is_over(name, thread):
            path = settings.DATA_ROOT / attempt.log_path
            thread = threading.Thread(
                target=self._follow,
                args=[name, path, given_values(attempt)],
                name=name,
                daemon=True,
            )
            self._threads[name] = thread
            self._begun[name] = monotonic()
            thread.start()

    def _is_over(self, name: str, thread: threading.Thread) -> bool:
        rested = monotonic() - self._begun[name] > FOLLOW_AGAIN_S
        return rested and not thread.is_alive()

    def forget_but(self, names: set[str]) -> None:
        for name in self._threads.keys() - names:
            del self._threads[name], self._begun[name]
        self._done &= names

    def _follow(self, name: str, path: Path, secrets: list[str]) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Closed, or the runner would go on to offer what nobody takes.
            with closing(self._runner.logs(name, follow=True)) as chunks:
                shown = masked(chunks, secrets)
                if storage.follow_log(path, shown, settings.LOG_CAP_MB):
                    self._done.add(name)
        except (RunnerFault, OSError) as fault:
            logger.warning("log of %s is not followed: %s", name, fault)
        finally:
            self._wake()
