"""Starts that fail in a row, and for how long their node pauses."""

from datetime import timedelta

import pytest

from jobs.status import Reason
from scheduler.backoff import Start, pause

RAN = None
FULL, HOOK = Reason.DISK_FULL, Reason.DAEMON_FAULT
FAULT, USERS = Reason.LAUNCH_FAULT, Reason.COMMAND_NOT_FOUND


@pytest.mark.parametrize(
    ("starts", "pause_s"),
    [
        pytest.param([], None, id="nothing was started yet"),
        pytest.param([("a", RAN), ("b", FULL)], None, id="the last one ran"),
        pytest.param([("a", FULL)], 5, id="a full disk is the node's trouble at once"),
        pytest.param([("a", HOOK)], 5, id="so is a driver that gives no GPU"),
        pytest.param([("a", FULL)] * 3 + [("b", RAN)], 20, id="each doubles it"),
        pytest.param([("a", FULL)] * 10, 600, id="up to ten minutes"),
        pytest.param([("a", FAULT)] * 4, None, id="one job alone may be odd itself"),
        pytest.param([("a", FAULT), ("b", FAULT)], 10, id="two jobs are not"),
        pytest.param([("a", FAULT), ("b", RAN), ("c", FAULT)], None, id="not in a row"),
        pytest.param(
            [("a", FAULT), ("b", USERS), ("c", FAULT)],
            None,
            id="that the image has no such command was found out by a start",
        ),
    ],
)
def test_pause(starts: list[tuple[str, Reason | None]], pause_s: int | None) -> None:
    expected = pause_s and timedelta(seconds=pause_s)
    assert pause([Start(*start) for start in starts]) == expected
