"""What is told of one waiting job: place, reason, expected start, smallest change."""

from dataclasses import replace
from typing import Any

import pytest

from jobs.status import WaitReason
from scheduler.placement import (
    Account,
    Lane,
    Limits,
    Node,
    Placement,
    Snapshot,
    Taken,
    Wait,
)
from scheduler.placement import forecast as forecasts
from scheduler.placement.forecast import Certainty, Explanation, explain
from tests.scheduler.placement.builders import GB, asks, busy, cluster, gpu, holds, lane

# What a job that asks for an hour holds at the longest.
HOUR = 3660.0


def told(snapshot: Snapshot, job_id: str, *lanes: Lane) -> Explanation:
    return explain(snapshot, lanes, job_id)


def expected(snapshot: Snapshot, job_id: str, *lanes: Lane) -> tuple[Any, str]:
    found = told(snapshot, job_id, *lanes).expected
    return found.at, found.certainty.value


class TestExpectedStart:
    def held(self) -> Snapshot:
        return cluster(gpu(0, holdings=busy(until=1000.0)))

    def test_with_the_next_pass(self) -> None:
        assert expected(cluster(gpu(0)), "a", lane(asks(), "a")) == (0.0, "now")

    def test_the_head_of_the_line_at_the_latest_when_the_limits_say(self) -> None:
        assert expected(self.held(), "a", lane(asks(), "a")) == (1000.0, "latest")

    def test_those_behind_it_when_all_ahead_run_to_their_limits(self) -> None:
        jobs = lane(asks(), "a", "b", "c")
        assert expected(self.held(), "b", jobs) == (1000.0 + HOUR, "estimate")
        assert expected(self.held(), "c", jobs) == (1000.0 + 2 * HOUR, "estimate")

    def test_only_the_first_is_sure_however_many_have_reservations(self) -> None:
        jobs = lane(asks(), "a", "b")
        snapshot = replace(self.held(), reservations=2)
        assert expected(snapshot, "b", jobs) == (1000.0 + HOUR, "estimate")

    def test_whoever_waits_ahead_for_something_else_may_come_in_between(self) -> None:
        """The limit that keeps it falls when the GPU comes free."""
        limits = Limits(running_jobs=1)
        owners = {"alice": Account(running_jobs=1, limits=limits), "bob": Account()}
        snapshot = replace(self.held(), owners=owners)
        ahead = lane(asks(), "ahead", priority=60)
        bobs = lane(asks(), "bobs", owner="bob")
        assert expected(snapshot, "bobs", ahead, bobs) == (1000.0, "estimate")

    def test_none_of_whom_a_limit_keeps_until_one_ahead_of_it_has_run(self) -> None:
        owners = {"alice": Account(limits=Limits(running_jobs=1))}
        two = cluster(*(gpu(i, holdings=busy(until=1000.0)) for i in range(2)))
        snapshot = replace(two, owners=owners)
        jobs = lane(asks(), "a1", "a2")
        assert expected(snapshot, "a1", jobs) == (1000.0, "latest")
        assert expected(snapshot, "a2", jobs) == (None, "unknown")

    def test_it_may_be_in_a_gap_before_those_ahead_of_it(self) -> None:
        """Two GPUs come free at 1000 and 9000: the pair waits for both."""
        two = cluster(
            gpu(0, holdings=busy(until=1000)), gpu(1, holdings=busy(until=9000))
        )
        pair, one = lane(asks(2), "pair"), lane(asks(), "one", created_at=1)
        assert expected(two, "pair", pair, one) == (9000.0, "latest")
        assert expected(two, "one", pair, one) == (1000.0, "estimate")

    def test_none_where_nothing_guarantees_a_time(self) -> None:
        foreign = cluster(gpu(0, foreign_mb=20 * GB))
        first, second = lane(asks(), "a"), lane(asks(), "b", owner="bob", created_at=1)
        assert expected(foreign, "a", first, second) == (None, "unknown")
        assert expected(foreign, "b", first, second) == (None, "unknown")

    @pytest.mark.parametrize(
        "snapshot",
        [
            cluster(gpu(0, state="draining")),
            cluster(gpu(0), gauss=Node(name="gauss", state="down")),
            replace(
                cluster(gpu(0)),
                owners={"alice": Account(limits=Limits(running_jobs=0))},
            ),
        ],
        ids=["out of service", "node down", "limit"],
    )
    def test_none_where_it_can_not_be_placed(self, snapshot: Snapshot) -> None:
        assert expected(snapshot, "a", lane(asks(), "a")) == (None, "unknown")

    def test_none_too_far_back(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(forecasts, "MOST_AHEAD", 2)
        jobs = lane(asks(), "a", "b", "c")
        assert expected(self.held(), "b", jobs)[1] == "estimate"
        assert expected(self.held(), "c", jobs) == (None, "unknown")


class TestPlaceAndReason:
    def test_the_place_counts_all_that_are_ahead(self) -> None:
        held = cluster(gpu(0, holdings=busy(until=9)))
        alices = lane(asks(), "a1", "a2", created_at=-10)
        bobs = lane(asks(), "b1", owner="bob")
        places = {
            job: told(held, job, alices, bobs).place for job in ("a1", "a2", "b1")
        }
        assert places == {"a1": 1, "b1": 2, "a2": 3}

    def test_behind_one_that_asks_for_the_same_it_waits_for_that(self) -> None:
        held = cluster(gpu(0, holdings=busy()))
        found = told(held, "c", lane(asks(), "a", "b", "c"))
        assert isinstance(found.decision, Wait)
        assert found.decision.reason == WaitReason.PRIORITY
        assert found.decision.text.startswith(
            "2 jobs ahead of it ask for the same. The first waits: Needs 1 GPU."
        )
        assert found.change is None

    def test_the_lines_are_those_of_its_turn_in_the_pass(self) -> None:
        """Of 24 GiB the first takes 20: the second misses 1."""
        first = lane(asks(gb=20, share=True), "a")
        second = lane(asks(gb=5, share=True), "b", created_at=1)
        (line,) = told(cluster(gpu(0)), "b", first, second).lines
        assert (line.blocked_by, line.free_mb, line.missing_mb) == (
            "vram",
            4 * GB,
            1 * GB,
        )

    def test_one_that_starts_has_lines_that_would_do(self) -> None:
        found = told(cluster(gpu(0)), "a", lane(asks(), "a"))
        assert isinstance(found.decision, Placement)
        assert [line.text for line in found.lines] == ["it would do"]

    def test_a_job_that_is_not_in_line_is_a_key_error(self) -> None:
        with pytest.raises(KeyError):
            told(cluster(gpu(0)), "x", lane(asks(), "a"))


CHANGES = [
    (
        "less VRAM, as much as there is",
        cluster(gpu(0, holdings=(holds(10),))),
        asks(gb=16, share=True),
        ("min_vram_mb", 14 * GB),
    ),
    (
        "less VRAM than the second of two GPUs has",
        cluster(gpu(0, holdings=(holds(2),)), gpu(1, holdings=(holds(4),))),
        asks(2, gb=22, share=True),
        ("min_vram_mb", 20 * GB),
    ),
    (
        "fewer GPUs",
        cluster(gpu(0), gpu(1), gpu(2), gpu(3, holdings=busy())),
        asks(4, gb=20),
        ("gpu_count", 3),
    ),
    (
        "sharing the GPU",
        cluster(gpu(0, holdings=(holds(4),))),
        asks(gb=16),
        ("share", True),
    ),
    (
        "any GPU type",
        cluster(gpu(0, name="A100", holdings=busy()), gpu(1)),
        asks(gpu_name="a100"),
        ("gpu_name", ""),
    ),
    (
        "any node",
        cluster(gpu(0, node="a", holdings=busy()), gpu(1, node="b")),
        asks(node_name="a"),
        ("node_name", ""),
    ),
    (
        "any labels",
        cluster(
            gpu(0, node="a", holdings=busy()),
            gpu(1, node="b"),
            a=Node(name="a", labels={"disk": "ssd"}),
            b=Node(name="b"),
        ),
        asks(node_labels=(("disk", "ssd"),)),
        ("node_labels", ()),
    ),
    (
        "the fair part of the CPUs",
        cluster(gpu(0), gpu(1, holdings=busy()), gauss=Node(name="gauss", cpus=8)),
        asks(cpus=9),
        None,  # no node has 9: it could never start, whatever else
    ),
]


@pytest.mark.parametrize(
    ("snapshot", "request_", "change"),
    [row[1:] for row in CHANGES],
    ids=[row[0] for row in CHANGES],
)
def test_the_smallest_change_with_which_it_would_start(
    snapshot: Snapshot, request_: Any, change: tuple[str, Any] | None
) -> None:
    found = told(snapshot, "a", lane(request_, "a"))
    if change is None:
        assert isinstance(found.decision, Wait)
        return
    assert found.change is not None
    assert (found.change.field, found.change.after) == change
    altered = replace(request_, **{change[0]: change[1]})
    again = told(snapshot, "a", lane(altered, "a"))
    assert isinstance(again.decision, Placement)


def test_a_shorter_limit_lets_it_pass_before_the_reservation_of_another() -> None:
    two = cluster(gpu(0, holdings=busy(until=1000.0)), gpu(1))
    head, other = lane(asks(2), "head"), lane(asks(), "other", created_at=1)
    change = told(two, "other", head, other).change
    assert change is not None
    # 1000 s, less the minute for starting and clearing away, in whole minutes less one.
    assert (change.field, change.before, change.after) == ("timeout_s", 3600, 840)
    assert change.text == "With timeout_s 840 it would start now."
    later = replace(two, now=59.0)
    altered = lane(asks(timeout_s=840), "other", created_at=1)
    assert isinstance(told(later, "other", head, altered).decision, Placement)


def test_fewer_cpus_and_less_memory_are_told_to_a_number() -> None:
    held = Taken(millicpus=1500, memory_mb=6 * GB)
    node = Node(name="gauss", cpus=2, memory_mb=8 * GB, taken=(held,))
    snapshot = cluster(gpu(0), gauss=node)
    changes = [
        told(snapshot, "a", lane(asks(0, **asked), "a")).change
        for asked in ({"memory_mb": 64}, {"cpus": 1}, {"cpus": 0.5, "memory_mb": 4000})
    ]
    assert [(c.field, c.after) for c in changes if c] == [
        ("cpus", 0.5),
        ("cpus", 0.5),
        ("memory_mb", 2048),
    ]


def test_the_loss_is_the_least_of_those_that_help() -> None:
    """A tenth less VRAM is less than giving up the GPU for itself."""
    snapshot = cluster(gpu(0, holdings=(holds(4),)), gpu(1, 18))
    change = told(snapshot, "a", lane(asks(gb=20), "a")).change
    assert change is not None
    assert (change.field, change.after) == ("min_vram_mb", 18 * GB)


def test_none_where_no_single_change_is_enough() -> None:
    snapshot = cluster(gpu(0, holdings=busy()))
    assert told(snapshot, "a", lane(asks(), "a")).change is None


def test_a_certainty_is_one_of_four_words() -> None:
    assert [word.value for word in Certainty] == [
        "now",
        "latest",
        "estimate",
        "unknown",
    ]
