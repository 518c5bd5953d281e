"""Every minute the invariants are checked, and what was found is there to be seen."""

import logging
from dataclasses import asdict

from scheduler.invariants import Finding, Look, confirmed
from scheduler.inventory.base import Inventory
from scheduler.models import Node, Verification
from scheduler.runner.base import Runner
from scheduler.verification import look

logger = logging.getLogger(__name__)

# More would say no more, and the row is read by a page.
MOST_FINDINGS = 100


class Verifier:
    """Remembers its last look: what may be on its way counts when seen in two."""

    def __init__(self, node: Node, runner: Runner, inventory: Inventory) -> None:
        self._node = node
        self._runner = runner
        self._inventory = inventory
        self._before: Look | None = None
        self._told: set[tuple[str, ...]] = set()

    def turn(self) -> None:
        last = Verification.objects.filter(node=self._node.name).first()
        now = look(self._runner, self._inventory, last.at if last else None)
        findings = confirmed(self._before, now)
        self._before = now
        self._log(findings)
        Verification.objects.update_or_create(
            node=self._node.name,
            defaults={
                "at": now.at,
                "findings": [asdict(each) for each in findings[:MOST_FINDINGS]],
            },
        )

    def _log(self, findings: list[Finding]) -> None:
        """Once for as long as it stands."""
        for finding in findings:
            if finding.key not in self._told:
                logger.warning(
                    "%s: %s %s", finding.invariant, finding.what, finding.rows
                )
        self._told = {finding.key for finding in findings}
