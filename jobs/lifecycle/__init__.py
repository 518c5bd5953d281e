"""The only place that writes `Job.status`.

Each move is one counted UPDATE filtered on the allowed source states; zero rows means
that somebody else was first. Event and audit record are written by the same
transaction, so a move without its story can not be.
"""

from jobs.lifecycle.attempts import (
    Usage,
    finish,
    mark_running,
    record_evidence,
    see_exit,
    start,
)
from jobs.lifecycle.moves import note
from jobs.lifecycle.requests import (
    delete,
    explain_wait,
    fail_queued,
    request_cancel,
    request_stop,
    submit,
)

__all__ = [
    "Usage",
    "delete",
    "explain_wait",
    "fail_queued",
    "finish",
    "mark_running",
    "note",
    "record_evidence",
    "request_cancel",
    "request_stop",
    "see_exit",
    "start",
    "submit",
]
