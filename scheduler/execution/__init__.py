"""The verbs on one attempt at its node: launch, stop, collect.

Each may be called twice and at any time: under the attempt's lock it re-reads the row,
looks at what is there, and does the next thing. No runner call is made inside a
transaction.
"""

from scheduler.execution.asked import asked_of
from scheduler.execution.collecting import collect
from scheduler.execution.ground import (
    BY,
    attempt_lock,
    is_at_work,
    node_runner,
    work_folder,
)
from scheduler.execution.judging import facts_of, is_waiting
from scheduler.execution.launching import launch
from scheduler.execution.launchspec import launch_spec
from scheduler.execution.refusing import node_policy
from scheduler.execution.sealing import given_values
from scheduler.execution.staging import sweep_mounts
from scheduler.execution.stopping import stop

__all__ = [
    "BY",
    "asked_of",
    "attempt_lock",
    "collect",
    "facts_of",
    "given_values",
    "is_at_work",
    "is_waiting",
    "launch",
    "launch_spec",
    "node_policy",
    "node_runner",
    "stop",
    "sweep_mounts",
    "work_folder",
]
