import signal
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from scheduler.execution import node_runner
from scheduler.supervisor import AlreadySupervised, Supervisor, the_only_one
from scheduler.supervisor.hardware import node_inventory


class Command(BaseCommand):
    help = "Watch this node: its GPUs, containers and clock. Ends on SIGTERM."

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            with the_only_one():
                inventory = node_inventory()
                supervisor = Supervisor(node_runner(), inventory)
                for number in (signal.SIGTERM, signal.SIGINT):
                    signal.signal(number, lambda *_: supervisor.stop())
                supervisor.run()
                inventory.close()
        except AlreadySupervised as refused:
            raise CommandError(str(refused)) from refused
