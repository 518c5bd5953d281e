"""When a node is taken to be lost: seconds that somebody watched, without a beat."""

import pytest

from scheduler.nodewatch import NodeWatch

Look = tuple[object, float]


@pytest.mark.parametrize(
    ("looks", "is_lost"),
    [
        pytest.param([(n, 5.0) for n in range(99)], False, id="it beats"),
        pytest.param([(1, 5.0)] * 12, False, id="silent for 55 s"),
        pytest.param([(1, 5.0)] * 13, True, id="silent for 60 s"),
        pytest.param([(None, 5.0)] * 13, True, id="it never beat"),
        pytest.param(
            [(1, 5.0), (1, 86_400.0)], False, id="the watcher slept for a day"
        ),
        pytest.param(
            [*[(1, 5.0)] * 12, (0, 5.0), *[(0, 5.0)] * 11],
            False,
            id="its clock was set back: a beat all the same",
        ),
        pytest.param(
            [(1, 5.0)] * 12 + [(2, 5.0)] + [(2, 5.0)] * 12, True, id="lost later"
        ),
    ],
)
def test_a_node_is_lost(looks: list[Look], is_lost: bool) -> None:
    watch = NodeWatch(after_s=60)
    lost = [watch.looked({"gauss": beat}, elapsed_s) for beat, elapsed_s in looks]
    assert lost[-1] == (["gauss"] if is_lost else [])


def test_each_node_is_watched_for_itself() -> None:
    watch = NodeWatch(after_s=10)
    for beat in range(4):
        lost = watch.looked({"gauss": beat, "euler": 0}, 5.0)
    assert lost == ["euler"]


def test_one_that_was_taken_out_and_comes_back_starts_anew() -> None:
    watch = NodeWatch(after_s=10)
    watch.looked({"gauss": 0}, 5.0)
    watch.looked({}, 5.0)
    assert watch.looked({"gauss": 0}, 60.0) == []
