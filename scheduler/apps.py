from typing import Any

from django.apps import AppConfig

from jobs.signals import job_queued
from scheduler import checks

__all__ = ["checks"]  # importing them registers them


class SchedulerConfig(AppConfig):
    name = "scheduler"

    def ready(self) -> None:
        job_queued.connect(_wake, dispatch_uid="wake the scheduler")


def _wake(**_: Any) -> None:
    # Models can be imported only once every app is ready.
    from scheduler.reservation import wake  # noqa: PLC0415

    wake()
