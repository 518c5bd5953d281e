import time
from argparse import ArgumentParser
from dataclasses import replace
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import Error

from scheduler.execution import node_runner
from scheduler.invariants import Finding, confirmed, could_not_look
from scheduler.supervisor.hardware import node_inventory
from scheduler.verification import is_node, look

LOOK_AGAIN_S = 0.5


class Command(BaseCommand):
    help = (
        "Check every invariant over rows, containers, GPUs, files and processes. "
        "Fails if any is broken. On a host that is no node, only rows are checked."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--patience",
            type=float,
            default=15.0,
            metavar="SECONDS",
            help="how long what may be on its way has to arrive (default: 15)",
        )

    def handle(self, *args: Any, patience: float, **options: Any) -> None:
        findings = self._verify(patience)
        for finding in findings:
            self.stdout.write(_line(finding))
        wrong = [each for each in findings if not each.is_information]
        if wrong:
            raise CommandError(f"Findings: {len(wrong)}. See above what to do.")
        self.stdout.write("All invariants hold.")

    def _verify(self, patience_s: float) -> list[Finding]:
        try:
            if is_node():
                return _look_until_sure(patience_s)
            self.stdout.write("This host is no node: only rows are checked.")
            return confirmed(None, look(None, None))
        except Error as error:
            do = "See that the database runs and that its migrations are applied."
            return [could_not_look("I7", "the database", error, do)]


def _look_until_sure(patience_s: float) -> list[Finding]:
    """What is on its way gets there while we look again; what stays is wrong."""
    until = time.monotonic() + patience_s
    inventory = node_inventory()
    try:
        before = look(node_runner(), inventory)
        while before.passing:
            now = look(node_runner(), inventory)
            findings = confirmed(before, now)
            stayed = [each for each in findings if each in now.passing]
            is_over = time.monotonic() >= until
            if is_over or all(each.is_information for each in stayed):
                return findings
            before = replace(now, passing=tuple(stayed))
            time.sleep(LOOK_AGAIN_S)
        return list(before.settled)
    finally:
        inventory.close()


def _line(finding: Finding) -> str:
    kind = "information" if finding.is_information else "wrong"
    rows = ", ".join(finding.rows)
    return f"{finding.invariant} {kind}: {finding.what} [{rows}] {finding.do}"
