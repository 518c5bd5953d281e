"""Small cases, each of which tells one line of the placement from its neighbours."""

from dataclasses import replace
from typing import Any

import pytest

from jobs.status import WaitReason
from scheduler.placement import (
    Account,
    Limits,
    Node,
    Placement,
    Plan,
    Taken,
    decide,
    fits_ever,
    passing,
    plan,
)
from scheduler.placement.forecast import explain
from scheduler.placement.record import differences, dump, load, outcome
from tests.scheduler.placement.builders import GB, asks, busy, cluster, gpu, holds, lane


def placed(made: Plan) -> dict[str, set[int]]:
    return {j: {g.id for g in p.gpus} for j, p in made.placements.items()}


def test_the_node_that_is_free_first() -> None:
    s = cluster(
        gpu(0, node="a", holdings=busy(until=2000)),
        gpu(1, node="b", holdings=busy(until=1000)),
    )
    k = plan(s, [lane(asks(), "h")]).reservations["h"]
    assert (k.node, k.at) == ("b", 1000)


def test_every_holder_of_a_gpu_counts() -> None:
    s = cluster(gpu(0, holdings=(holds(10, until=2000), holds(10, until=1000))))
    assert plan(s, [lane(asks(gb=14, share=True), "h")]).reservations["h"].at == 1000


def test_two_heads_keep_different_gpus() -> None:
    s = replace(
        cluster(gpu(0, foreign_mb=20 * GB), gpu(1, foreign_mb=20 * GB)), reservations=2
    )
    r = plan(
        s, [lane(asks(gb=22), "a"), lane(asks(gb=21), "b", created_at=1)]
    ).reservations
    assert set(r["a"].gpu_ids) & set(r["b"].gpu_ids) == set()


def test_best_set_is_on_the_node_that_misses_least() -> None:
    s = cluster(
        gpu(0, node="a", foreign_mb=5 * GB), gpu(1, node="b", foreign_mb=20 * GB)
    )
    assert plan(s, [lane(asks(gb=22), "a")]).reservations["a"].node == "a"


def test_of_any_gpu_the_one_with_least_in_use() -> None:
    s = cluster(gpu(0, foreign_mb=20 * GB), gpu(1, foreign_mb=5 * GB))
    assert plan(s, [lane(asks(), "a")]).reservations["a"].gpu_ids == (1,)


def test_its_twin_is_not_kept() -> None:
    s = cluster(
        gpu(0, holdings=busy(until=1000)),
        gpu(1, holdings=busy(until=1000)),
        gpu(2),
        gpu(3),
    )
    made = plan(s, [lane(asks(3), "head"), lane(asks(), "long", created_at=1)])
    assert set(made.reservations["head"].gpu_ids) == {0, 1, 2}
    assert placed(made) == {"long": {3}}


def test_cpus_taken_one_after_the_other() -> None:
    n = Node(name="gauss", cpus=4, taken=(Taken(millicpus=3000, until=500),))
    made = plan(
        cluster(gpu(0), gauss=n),
        [lane(asks(0, cpus=3), "head"), lane(asks(0, cpus=1), "other", created_at=1)],
    )
    assert list(made.placements) == ["other"]


def test_a_head_without_a_time_keeps_no_cpus() -> None:
    s = cluster(
        gpu(0, 48, foreign_mb=20 * GB), gpu(1, 8), gauss=Node(name="gauss", cpus=4)
    )
    made = plan(
        s,
        [
            lane(asks(gb=40, cpus=4), "head"),
            lane(asks(gb=4, cpus=4), "other", created_at=1),
        ],
    )
    assert placed(made) == {"other": {1}}


def test_the_node_with_most_cpus_free() -> None:
    s = cluster(
        gpu(0, node="a"),
        gpu(1, node="b"),
        a=Node(name="a", cpus=8, taken=(Taken(millicpus=6000),)),
        b=Node(name="b", cpus=8),
    )
    found = decide(s, asks(0))
    assert isinstance(found, Placement)
    assert found.node == "b"


def test_smallest_before_least_stranded() -> None:
    s = cluster(gpu(0, 24), gpu(1, 48), gauss=Node(name="gauss", cpus=4))
    made = plan(
        s,
        [
            lane(asks(gb=8, cpus=4.0), "me"),
            lane(
                asks(gb=8, image="later", cpus=4.0),
                *[f"q{i}" for i in range(9)],
                created_at=9,
            ),
        ],
    )
    assert placed(made) == {"me": {0}}


def test_least_stranded_before_best_fit() -> None:
    s = cluster(
        gpu(0, 24, holdings=(holds(4),)), gpu(1, 24), gauss=Node(name="gauss", cpus=8)
    )
    made = plan(
        s,
        [
            lane(asks(gb=4, share=True, cpus=4.0), "me"),
            lane(
                asks(gb=20, share=True, image="later"),
                *[f"q{i}" for i in range(9)],
                created_at=9,
            ),
        ],
    )
    assert placed(made) == {"me": {1}}


def test_stranded_counts_cpus() -> None:
    s = cluster(
        gpu(0, 24, holdings=(holds(4),)), gpu(1, 48), gauss=Node(name="gauss", cpus=4)
    )
    made = plan(
        s,
        [
            lane(asks(gb=8, share=True, cpus=4.0), "me"),
            lane(
                asks(gb=20, share=True, image="later"),
                *[f"q{i}" for i in range(9)],
                created_at=9,
            ),
        ],
    )
    assert placed(made) == {"me": {0}}


def test_linked_pair_though_larger() -> None:
    s = cluster(
        gpu(0, 24, "a"),
        gpu(1, 24, "a"),
        gpu(2, 48, "b", peers=("GPU-3",)),
        gpu(3, 48, "b", peers=("GPU-2",)),
    )
    assert placed(plan(s, [lane(asks(2), "a")])) == {"a": {2, 3}}


def test_gpus_of_another_name_are_not_the_same() -> None:
    s = cluster(gpu(0, name="X"), gpu(1, name="Y"))
    made = plan(
        s,
        [
            lane(asks(), "me"),
            lane(
                asks(gpu_name="X", image="later"),
                *[f"q{i}" for i in range(9)],
                created_at=9,
            ),
        ],
    )
    assert placed(made) == {"me": {1}}


def test_array_limit_from_nothing() -> None:
    s = cluster(*(gpu(i) for i in range(4)))
    assert len(plan(s, [lane(asks(), *"abcd", array_limit=2)]).placements) == 2


def test_vram_adds_up_in_a_pass() -> None:
    s = replace(
        cluster(*(gpu(i) for i in range(4))),
        owners={"alice": Account(limits=Limits(vram_mb=50 * GB))},
    )
    assert len(plan(s, [lane(asks(), *"abcd")]).placements) == 2


def test_gpus_add_up_in_a_pass() -> None:
    s = replace(
        cluster(*(gpu(i) for i in range(6))),
        owners={"alice": Account(limits=Limits(gpus=4))},
    )
    assert len(plan(s, [lane(asks(2), *"abc")]).placements) == 2


def test_clock_set_back() -> None:
    s = replace(cluster(gpu(0)), aging_s=3600.0)
    made = plan(
        s,
        [
            lane(asks(), "future", created_at=7200.0),
            lane(asks(), "low", owner="bob", priority=49),
        ],
    )
    assert list(made.placements) == ["future"]


def test_only_the_first_ages() -> None:
    s = replace(
        cluster(gpu(0), gpu(1)), aging_s=3600.0, owners={"alice": Account(usage=9.0)}
    )
    made = plan(
        s,
        [
            lane(asks(), "a1", "a2", created_at=-7200.0),
            lane(asks(), "b", owner="bob", priority=51),
        ],
    )
    assert list(made.placements) == ["a1", "b"]


def test_an_exclusive_job_is_charged_a_whole_gpu() -> None:
    s = cluster(*(gpu(i) for i in range(4)))
    a = lane(asks(gb=1), "a1", "a2", created_at=-9.0)
    b = lane(asks(gb=20, share=True), "b1", "b2", owner="bob")
    assert list(plan(s, [a, b]).placements) == ["a1", "b1", "b2", "a2"]


def test_a_short_job_is_charged_its_limit() -> None:
    s = cluster(*(gpu(i) for i in range(4)))
    a = lane(asks(timeout_s=60), "a1", "a2", created_at=-9.0)
    b = lane(asks(), "b1", "b2", owner="bob")
    assert list(plan(s, [a, b]).placements) == ["a1", "b1", "a2", "b2"]
    a = lane(asks(timeout_s=60), "a1", "a2", "a3", created_at=-9.0)
    assert list(plan(s, [a, b]).placements) == ["a1", "b1", "a2", "a3"]


def test_shares_divide_what_is_charged_in_the_pass() -> None:
    s = replace(
        cluster(*(gpu(i) for i in range(4))),
        owners={"alice": Account(shares=3), "bob": Account()},
    )
    a = lane(asks(), "a1", "a2", "a3", "a4", created_at=-9.0)
    b = lane(asks(), "b1", "b2", owner="bob")
    assert list(plan(s, [a, b]).placements) == ["a1", "b1", "a2", "a3"]


def test_short_timeouts_are_not_proposed() -> None:
    two = cluster(gpu(0, holdings=busy(until=100.0)), gpu(1))
    assert (
        explain(
            two, [lane(asks(2), "head"), lane(asks(), "o", created_at=1)], "o"
        ).change
        is None
    )


def test_share_needs_vram() -> None:
    s = cluster(gpu(0, holdings=(holds(4),)))
    assert explain(s, [lane(asks(), "a")], "a").change is None


def test_record_keeps_all_placed() -> None:
    s = cluster(*(gpu(i) for i in range(30)))
    lanes = [lane(asks(), *[f"{i:02d}" for i in range(40)])]
    p = plan(s, lanes)
    r, rl = load(dump(s, lanes, p))
    assert outcome(plan(r, rl)) == outcome(p)


def test_shared_memory_that_no_node_has_is_refused() -> None:
    s = cluster(gpu(0), gauss=Node(name="gauss", memory_mb=8 * GB))
    assert "MiB of memory" in fits_ever(s, asks(shm_mb=9 * GB))


def test_an_owners_other_lane_is_charged_too() -> None:
    s = cluster(*(gpu(i) for i in range(3)))
    made = plan(
        s,
        [
            lane(asks(), "a1", created_at=-9.0),
            lane(asks(gb=1), "a2", created_at=-8.0),
            lane(asks(), "b", owner="bob"),
        ],
    )
    assert list(made.placements) == ["a1", "b", "a2"]


def test_told_anew_after_a_reservation() -> None:
    s = cluster(gpu(0, holdings=busy(until=1000)), gpu(1))
    made = plan(
        s, [lane(asks(2), "head"), lane(asks(2), "same", owner="bob", created_at=1)]
    )
    assert "kept for a job ahead" in made.waits["same"].text


def test_no_change_for_one_behind() -> None:
    s = cluster(gpu(0, holdings=(holds(10),)))
    lanes = [lane(asks(gb=16, share=True), "a", "b")]
    assert explain(s, lanes, "a").change is not None
    assert explain(s, lanes, "b").change is None


def test_cpus_kept() -> None:
    n = Node(name="gauss", cpus=4, taken=(Taken(millicpus=2000, until=500),))
    w = plan(
        cluster(gpu(0), gauss=n),
        [lane(asks(0, cpus=4), "head"), lane(asks(1, cpus=1), "o", created_at=1)],
    ).waits["o"]
    assert w.reason == WaitReason.PRIORITY
    assert "are kept for a job ahead" in w.text


def test_missing() -> None:
    s = cluster(gpu(0, foreign_mb=20 * GB))
    assert explain(s, [lane(asks(gb=22), "a")], "a").lines[0].missing_mb == 18 * GB


def test_an_arrays_limit_holds_over_all_its_lanes() -> None:
    s = cluster(*(gpu(i) for i in range(4)))
    whole = {"array_id": "x", "array_limit": 1}
    tasks = [lane(asks(), f"t{i}", topped_at=float(i), **whole) for i in range(4)]
    assert len(plan(s, tasks).placements) == 1


def test_an_image_missing_elsewhere_takes_no_reservation_away() -> None:
    """Node b could hold both at once, but can not pull the image; a small job must not
    take what the pair waits for on node a."""
    s = cluster(
        gpu(0, node="a", holdings=busy(until=1000.0)),
        gpu(1, node="a"),
        gpu(2, node="b"),
        gpu(3, node="b"),
        a=Node(name="a", images=frozenset({"x:1"})),
        b=Node(name="b"),
    )
    pair = lane(asks(2, image="x:1"), "pair")
    small = lane(asks(image="x:1"), "small", created_at=1)
    made = plan(s, [pair, small])
    assert made.reservations["pair"].at == 1000.0
    assert made.waits["pair"].reason == WaitReason.IMAGE_PULL
    assert placed(made) == {}


def test_foreign_use_stays_the_reason_on_a_gpu_that_is_kept() -> None:
    s = cluster(gpu(0, foreign_mb=20 * GB))
    head = lane(asks(gb=22), "head")
    other = lane(asks(gb=10, share=True), "other", created_at=1)
    waits = plan(s, [head, other]).waits["other"]
    assert waits.reason == WaitReason.FOREIGN_USE
    assert "20,480 MiB are used by processes outside" in waits.text


def test_a_change_that_a_limit_forbids_is_none() -> None:
    limits = Limits(vram_mb=20 * GB)
    s = replace(
        cluster(gpu(0, 16, name="a", holdings=busy(16)), gpu(1, 48)),
        owners={"alice": Account(limits=limits)},
    )
    assert explain(s, [lane(asks(gpu_name="a"), "j")], "j").change is None


@pytest.mark.parametrize("mb", [1, 11, 100])
def test_the_smallest_share_is_enough_to_start_a_program_in(mb: int) -> None:
    node = Node(name="gauss", cpus=64, memory_mb=512 * GB)
    s = cluster(*(gpu(i, 80) for i in range(8)), gauss=node)
    request = replace(asks(share=True), min_vram_mb=mb)
    got = plan(s, [lane(request, "j")]).placements["j"]
    assert got.cpus is not None
    assert got.memory_mb is not None
    assert got.cpus >= 0.05
    assert got.memory_mb >= 64


def test_a_pass_places_a_bounded_number_and_says_that_it_is_not_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(passing, "MOST_PLACED", 2)
    s = cluster(*(gpu(i) for i in range(4)))
    made = plan(s, [lane(asks(), *"abcd")])
    assert (list(made.placements), made.is_whole) == (["a", "b"], False)
    assert plan(s, [lane(asks(), *"ab")]).is_whole


def test_what_no_gpu_and_no_node_has_is_told_together() -> None:
    s = cluster(
        gpu(0, 48, node="large"),
        gpu(1, 8, node="wide"),
        large=Node(name="large", cpus=8),
        wide=Node(name="wide", cpus=64),
    )
    told = fits_ever(s, asks(gb=20, cpus=12))
    assert "node large has 8 CPUs" in told


def test_a_holder_near_its_limit_is_expected_at_its_limit() -> None:
    s = replace(cluster(gpu(0, holdings=busy(until=1000.0))), now=999.0)
    assert plan(s, [lane(asks(), "j")]).reservations["j"].at == 1000.0


@pytest.mark.parametrize("spoilt", [{}, {"placed": {}}, {"placed": {"x": {}}}])
def test_an_outcome_with_parts_missing_is_only_different(
    spoilt: dict[str, Any],
) -> None:
    s = cluster(gpu(0))
    assert list(differences(spoilt, outcome(plan(s, [lane(asks(), "j")]))))
