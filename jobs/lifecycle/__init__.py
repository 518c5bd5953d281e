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
    start_validation,
)
from jobs.lifecycle.deletion import delete
from jobs.lifecycle.dependencies import check_parents, resolve_dependencies
from jobs.lifecycle.holding import Verb, each_task, hold, move_to_top, release_hold
from jobs.lifecycle.moves import announce_queued, cancel_reason, note
from jobs.lifecycle.requests import (
    fail_queued,
    request_cancel,
    request_stop,
)
from jobs.lifecycle.reviewing import expire_reviews, park, review
from jobs.lifecycle.routing import reroute
from jobs.lifecycle.submission import refuse_over_quota, submit
from jobs.lifecycle.waits import explain_waits

__all__ = [
    "Usage",
    "Verb",
    "announce_queued",
    "cancel_reason",
    "check_parents",
    "delete",
    "each_task",
    "expire_reviews",
    "explain_waits",
    "fail_queued",
    "finish",
    "hold",
    "mark_running",
    "move_to_top",
    "note",
    "park",
    "record_evidence",
    "refuse_over_quota",
    "release_hold",
    "request_cancel",
    "request_stop",
    "reroute",
    "resolve_dependencies",
    "review",
    "see_exit",
    "start",
    "start_validation",
    "submit",
]
