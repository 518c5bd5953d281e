"""The thread that seals the audit trail. One in the parent of each cluster; of several,
whoever holds the anchor seals."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import Error, connections

from jobs.sealing import seal

logger = logging.getLogger(__name__)

EVERY_S = 0.5
END_WITHIN_S = 2.0


@contextmanager
def sealing() -> Iterator[None]:
    """Within it what is committed is sealed, and once more at its end."""
    is_over = threading.Event()
    thread = threading.Thread(target=_run, args=[is_over], name="sealer", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        # A database that hangs keeps nobody from ending.
        thread.join(END_WITHIN_S)


def _run(is_over: threading.Event) -> None:
    told = ""
    while True:
        is_last = is_over.wait(EVERY_S)
        try:
            seal()
            told = ""
        except (Error, OSError) as error:
            connections.close_all()
            if str(error) != told:
                logger.warning("the audit trail can not be sealed: %s", error)
            told = str(error)
        if is_last:
            connections.close_all()
            return
