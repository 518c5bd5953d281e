"""What the cluster runs: short tasks that take ids, look at the row, and may be
called twice. Queued by name through scheduler.queue."""

from scheduler import execution, reservation


def schedule() -> None:
    reservation.run_passes()


def launch(attempt_id: str) -> None:
    execution.launch(attempt_id)


def stop(attempt_id: str) -> None:
    execution.stop(attempt_id)


def collect(attempt_id: str) -> None:
    execution.collect(attempt_id)
