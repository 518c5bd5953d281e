import logging
import signal
import time
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError, connection

from scheduler.execution import node_runner
from scheduler.supervisor import AlreadySupervised, Supervisor, the_only_one
from scheduler.supervisor.hardware import node_inventory

logger = logging.getLogger(__name__)

PAUSE_S = 1.0


class Command(BaseCommand):
    help = "Watch this node: its GPUs, containers and clock. Ends on SIGTERM."

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            with the_only_one():
                _wait_for_database()
                inventory = node_inventory()
                supervisor = Supervisor(node_runner(), inventory)
                for number in (signal.SIGTERM, signal.SIGINT):
                    signal.signal(number, lambda *_: supervisor.stop())
                supervisor.run()
                inventory.close()
        except AlreadySupervised as refused:
            raise CommandError(str(refused)) from refused


def _wait_for_database() -> None:
    """A machine that was started anew may have its supervisor before its database."""
    while True:
        try:
            connection.ensure_connection()
        except OperationalError as error:
            logger.warning("the database does not answer: %s", error)
            time.sleep(PAUSE_S)
        else:
            return
