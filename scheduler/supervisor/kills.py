"""Kills that no wish asked for: an exit after one is no success."""

import logging
import queue
import threading
from collections.abc import Callable, Iterable
from datetime import datetime
from time import sleep

from django.utils import timezone

from jobs.models import Attempt
from scheduler.runner.base import Runner, RunnerFault

logger = logging.getLogger(__name__)

PAUSE_S = 1.0


class Kills:
    """Listens to what the runner tells of containers; rows are written by the loop
    alone. `since` is when somebody listened last: what was told meanwhile counts, as
    far as the runner remembers it."""

    def __init__(
        self, runner: Runner, wake: Callable[[], None], since: datetime | None
    ) -> None:
        self._runner = runner
        self._wake = wake
        self._since = since
        self.told: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self._watcher: threading.Thread | None = None
        # Seen to be killed, and not yet written down.
        self._killed: set[str] = set()

    def keep_watching(self) -> None:
        """Also when the thread died of something that nobody foresaw."""
        if self._watcher is None or not self._watcher.is_alive():
            self._watcher = threading.Thread(target=self._watch, daemon=True)
            self._watcher.start()

    def _watch(self) -> None:
        """A stream that ends, in whatever way, is opened again where it ended."""
        while True:
            try:
                for event in self._runner.events(self._since):
                    self._since = timezone.now()
                    self.told.put(event)
                    self._wake()
            except RunnerFault as fault:
                logger.warning("events of the runner ended: %s", fault)
            sleep(PAUSE_S)

    def write_down(self, live: Callable[[], Iterable[Attempt]]) -> None:
        while not self.told.empty():
            action, name = self.told.get()
            if action == "kill":
                self._killed.add(name)
        if self._killed:
            # Anybody may name a container: names are compared, never taken apart.
            killed = [a.pk for a in live() if a.container_name in self._killed]
            unasked = Attempt.objects.live().filter(stop_reason="", kill_seen_at=None)
            unasked.filter(pk__in=killed).update(kill_seen_at=timezone.now())
            self._killed.clear()
