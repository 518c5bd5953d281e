"""Processes that Docker has forgotten are ended, if they were ours."""

import logging

from jobs import audit
from jobs.models import Attempt
from scheduler.execution import BY
from scheduler.models import Node
from scheduler.runner.base import Runner
from scheduler.strays import OurStray, ours, to_end
from scheduler.verification.host import names_of, work_root

logger = logging.getLogger(__name__)


class Strays:
    """Remembers the names of those seen last: what is seen twice is ended, and what
    lost its shim since is still known."""

    def __init__(self, node: Node, runner: Runner) -> None:
        self._node = node
        self._runner = runner
        self._before: dict[str, str] = {}
        self._told: set[str] = set()

    def turn(self) -> None:
        """To be called every few seconds. Raises RunnerFault."""
        strays = self._runner.strays()
        names = {**self._before, **names_of(strays)}
        found = ours(strays, work=work_root(), names=names)
        if found:
            self._end(found)
        self._before = {each.stray.container_id: each.name for each in found}
        self._told &= self._before.keys()

    def _end(self, found: list[OurStray]) -> None:
        live = Attempt.objects.live().filter(node=self._node.name)
        chosen = to_end(
            found,
            before=self._before.keys(),
            live={attempt.container_name for attempt in live},
            containers=self._runner.observe(),
        )
        for each in chosen:
            if self._runner.end_stray(each.stray):
                self._tell(each)

    def _tell(self, each: OurStray) -> None:
        """Once, however long the kernel takes to end it."""
        container_id = each.stray.container_id
        if container_id in self._told:
            return
        self._told.add(container_id)
        pids = [pid for pid, _ in each.stray.processes]
        logger.warning("ended what Docker had forgotten of %s: %s", each.name, pids)
        audit.record(
            "stray.ended", target=each.name, by=BY, container=container_id, pids=pids
        )
