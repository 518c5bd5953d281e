"""Processes outside our containers: whose they are, as far as this host can tell."""

import logging
from typing import Any

from scheduler.inventory.base import DeviceProcess
from scheduler.inventory.processes import look_up
from scheduler.runner.base import Runner, RunnerFault

logger = logging.getLogger(__name__)

SHORT_ID = 12
MOST_NAMES = 256


class Strangers:
    """Remembers names of containers: a runner is not asked every two seconds."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._names: dict[str, str] = {}

    def describe(self, process: DeviceProcess, container: str | None) -> dict[str, Any]:
        """What GPU.foreign_processes holds of it."""
        person = look_up(process.pid)
        return {
            "pid": process.pid,
            "user": person.user,
            "process": person.process,
            "used_mb": process.used_mb,
            "container": self._name(container) if container else "",
        }

    def _name(self, container: str) -> str:
        if container not in self._names:
            if len(self._names) >= MOST_NAMES:
                self._names.clear()
            try:
                self._names[container] = self._runner.name_of(container)
            except RunnerFault as fault:
                logger.warning("container %s has no name: %s", container, fault)
                return container[:SHORT_ID]
        return self._names[container]
