"""django-q2's broker over our messages.

What a worker is handed is made here, from plain JSON: nothing that lies in the database
is unpickled. django-q2's own tables stay empty.
"""

import logging
import time
import uuid
from functools import cached_property
from typing import Any

from django.conf import settings
from django.db import Error, connection, connections
from django.utils import timezone
from django_q.brokers import Broker
from django_q.signing import SignedPackage

from scheduler.queue import beat
from scheduler.queue.messages import CHANNEL, claim

logger = logging.getLogger(__name__)

# django-q2 looks between two dequeues whether it is to end.
WAIT_S = 1.0
POLL_S = 0.05
PAUSE_S = 1.0
# The one function that django-q2 ever calls.
RUN = "scheduler.tasks.run"


class TaskBroker(Broker):
    @cached_property
    def _ear(self) -> Any:
        """A connection of its own that hears of messages; of this process alone."""
        ear = connection.copy()
        ear.ensure_connection()
        ear.connection.execute(f"LISTEN {CHANNEL}")
        return ear

    def close(self) -> None:
        """Hear no more, until the next dequeue."""
        ear = self.__dict__.pop("_ear", None)
        if ear is not None:
            ear.close()

    def enqueue(self, task: Any) -> None:
        raise NotImplementedError("A task is asked for by scheduler.queue.enqueue.")

    def dequeue(self) -> list[tuple[int, str]] | None:
        """One message, claimed, as the package that a worker unpacks; waits a little
        for one. A database that is away is no reason to end."""
        try:
            return self._next()
        except (Error, OSError):
            logger.exception("the queue can not be read")
            self.close()
            connections.close_all()
            time.sleep(PAUSE_S)
            return None

    def _next(self) -> list[tuple[int, str]] | None:
        if connection.vendor == "postgresql":
            _ = self._ear  # before the look: what comes after it is heard
        found = claim(settings.NODE_NAME, beat.cluster_id())
        if found is None:
            self._wait()
            return None
        beat.tell(beat.CLAIMED)
        task = {
            # Minted here, so that nobody can have put a result of that id anywhere.
            "id": uuid.uuid4().hex,
            "name": f"{found.function} {found.message_id}",
            "func": RUN,
            "args": (found.message_id, found.function, *found.arguments),
            "kwargs": {},
            "started": timezone.now(),
            "ack_failure": True,
            "save": False,
        }
        return [(found.message_id, SignedPackage.dumps(task))]

    def _wait(self) -> None:
        if connection.vendor == "postgresql":
            for _ in self._ear.connection.notifies(timeout=WAIT_S, stop_after=1):
                pass
        else:
            time.sleep(POLL_S)

    def acknowledge(self, task_id: int) -> None:
        """Whoever ran it has written down what became of it."""

    def ping(self) -> bool:
        return True

    def info(self) -> str:
        return "messages of scheduler.queue"
