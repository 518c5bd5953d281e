"""From the rows to a snapshot, and from a plan to rows: the scheduling pass.

The database refuses what the code overlooks: a placement that came too late is an
IntegrityError, rolled back whole, and the job stays queued.
"""

from scheduler.reservation.asking import Answer, answer, consider, explain, never
from scheduler.reservation.decisions import Replay, replay
from scheduler.reservation.escalating import next_try
from scheduler.reservation.holding import (
    BY,
    ReservationLost,
    end_held,
    release,
    reserve,
    usage_of,
)
from scheduler.reservation.line import load_lanes, request_of
from scheduler.reservation.losing import lose_node
from scheduler.reservation.passes import one_pass, run_passes
from scheduler.reservation.routing import Unroutable, replayed, routed
from scheduler.reservation.snapshots import SILENCE, load_snapshot
from scheduler.reservation.waking import is_silent, safety_net, tell_of_silence, wake

__all__ = [
    "BY",
    "SILENCE",
    "Answer",
    "Replay",
    "ReservationLost",
    "Unroutable",
    "answer",
    "consider",
    "end_held",
    "explain",
    "is_silent",
    "load_lanes",
    "load_snapshot",
    "lose_node",
    "never",
    "next_try",
    "one_pass",
    "release",
    "replay",
    "replayed",
    "request_of",
    "reserve",
    "routed",
    "run_passes",
    "safety_net",
    "tell_of_silence",
    "usage_of",
    "wake",
]
