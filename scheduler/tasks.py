"""What the cluster runs: short tasks that take ids, look at the row, and may be
called twice. Asked for by name through scheduler.queue."""

import logging
import traceback
from collections.abc import Callable
from functools import partial

from django.db import Error, connections

from scheduler import execution, reservation
from scheduler.queue import TASKS, beat, fail, finish

logger = logging.getLogger(__name__)


def schedule() -> None:
    reservation.run_passes()


def launch(attempt_id: str) -> None:
    execution.launch(attempt_id)


def stop(attempt_id: str) -> None:
    execution.stop(attempt_id)


def collect(attempt_id: str) -> None:
    execution.collect(attempt_id)


_FUNCTIONS: dict[str, Callable[..., None]] = {
    "schedule": schedule,
    "launch": launch,
    "stop": stop,
    "collect": collect,
}
assert tuple(_FUNCTIONS) == TASKS


def run(message_id: int, name: str, *ids: str) -> None:
    """The one function that the cluster calls. What a task raises ends here: it is
    told of on its message, and whoever needs the task done asks again."""
    beat.tell(beat.BEGUN)
    try:
        _FUNCTIONS[name](*ids)
    except Exception:
        logger.exception("task %s%s failed", name, ids)
        _settle(partial(fail, message_id, traceback.format_exc()))
    else:
        # Not left to django-q2's monitor: killed, it may take its queue's lock along.
        _settle(partial(finish, message_id))
    finally:
        beat.tell(beat.ENDED)


def _settle(write: Callable[[], None]) -> None:
    """It was done or not, whether this is written or not."""
    try:
        write()
    except (Error, OSError):
        logger.exception("a message stays behind")
        # Perhaps what failed is the database, and its connection broken.
        connections.close_all()
