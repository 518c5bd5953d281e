from typing import Any

from django.core.management.base import BaseCommand

from scheduler.queue import run_cluster


class Command(BaseCommand):
    help = "Run the tasks of this host. Ends on SIGTERM, after the tasks at work."

    def handle(self, *args: Any, **options: Any) -> None:
        run_cluster()
