"""When a cluster is taken to be silent: seconds that somebody watched, without a step."""

import pytest

from scheduler.watchdog import Pulse

Look = tuple[bytes, int | None, float]


def looks(times: int, steps: bytes, oldest: int | None, elapsed_s: float) -> list[Look]:
    return [(steps, oldest, elapsed_s)] * times


@pytest.mark.parametrize(
    ("seen", "is_silent"),
    [
        pytest.param(looks(100, b"", None, 1), False, id="there is nothing to do"),
        pytest.param(looks(31, b"", 7, 1), True, id="a message nobody claims"),
        pytest.param(looks(30, b"", 7, 1), False, id="it may take a moment"),
        pytest.param(looks(99, b"cbe", 7, 1), False, id="one waits, others are done"),
        pytest.param(
            looks(20, b"", 7, 1) + looks(20, b"", 8, 1),
            False,
            id="another cluster claimed the first",
        ),
        pytest.param(
            [(b"c", None, 1), *looks(31, b"", None, 1)],
            True,
            id="claimed by a cluster whose workers never begin",
        ),
        pytest.param(
            [(b"cb", None, 1), *looks(99, b"", None, 1)],
            False,
            id="a long task, and nobody waits",
        ),
        pytest.param(
            [(b"c", None, 1), *(look for n in range(40) for look in [(b"", n, 1.0)])],
            True,
            id="ours is stuck though another cluster goes on",
        ),
        pytest.param(
            [(b"", 7, 1), (b"", 7, 3600)], False, id="the machine slept: not watched"
        ),
        pytest.param(
            [*looks(29, b"", 7, 1), (b"b", 7, 1), *looks(29, b"e", 7, 1)],
            False,
            id="a step starts the count anew",
        ),
    ],
)
def test_silence(seen: list[Look], is_silent: bool) -> None:
    pulse = Pulse()
    for steps, oldest, elapsed_s in seen:
        pulse.heard(steps)
        pulse.looked(oldest, elapsed_s)
    assert pulse.is_silent is is_silent
