import signal
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from scheduler.queue.cluster import run_cluster
from scheduler.watchdog import Watchdog


class Command(BaseCommand):
    help = "Run the tasks of this host, and watch that they are run. Ends on SIGTERM."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--beat",
            type=int,
            metavar="FD",
            help="be the cluster itself and tell its watchdog by this descriptor",
        )

        parser.add_argument(
            "--watchdog", type=int, metavar="PID", help="the process to end with"
        )

    def handle(
        self, *args: Any, beat: int | None, watchdog: int | None, **options: Any
    ) -> None:
        if beat is not None and watchdog is not None:
            run_cluster(beat, watchdog)
            return
        parent = Watchdog()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: parent.stop())
        parent.run()
