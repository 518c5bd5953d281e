"""Who starts now and on which GPUs, who waits and why: a pure decider.

A snapshot and the lanes of the queue go in; a `Plan` comes out. Two ledgers count on
each GPU: what was promised to its attempts, and what was measured; the larger is need.
"""

from scheduler.placement.passing import Plan, decide, plan
from scheduler.placement.rules import fits_ever, suits
from scheduler.placement.terms import (
    CHARGED_AT_ONCE_S,
    SLACK_S,
    Account,
    Gpu,
    Holding,
    Lane,
    Limits,
    Line,
    Node,
    Placement,
    Request,
    Reservation,
    Snapshot,
    Taken,
    Wait,
)

__all__ = [
    "CHARGED_AT_ONCE_S",
    "SLACK_S",
    "Account",
    "Gpu",
    "Holding",
    "Lane",
    "Limits",
    "Line",
    "Node",
    "Placement",
    "Plan",
    "Request",
    "Reservation",
    "Snapshot",
    "Taken",
    "Wait",
    "decide",
    "fits_ever",
    "plan",
    "suits",
]
