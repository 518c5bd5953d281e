"""A pass over the line: order, backfill, limits. Times are seconds, now is 0."""

import math
from dataclasses import replace
from itertools import permutations

import pytest

from jobs.status import WaitReason
from scheduler.placement import (
    Account,
    Lane,
    Limits,
    Node,
    Placement,
    Plan,
    Snapshot,
    Taken,
    plan,
)
from tests.scheduler.placement.builders import GB, asks, busy, cluster, gpu, holds, lane

HOUR = 3600.0


def placed(made: Plan) -> dict[str, set[int]]:
    """The GPUs of each job that starts."""
    return {
        job: {gpu.id for gpu in placement.gpus}
        for job, placement in made.placements.items()
    }


def reasons(made: Plan) -> dict[str, str]:
    return {job: wait.reason.value for job, wait in made.waits.items()}


class TestTheOrder:
    def first(self, *lanes: Lane, **fields: object) -> str:
        """Who gets the only GPU, in whatever order the lanes come."""
        snapshot = replace(cluster(gpu(0)), **fields)  # type: ignore[arg-type]
        firsts = {
            next(iter(plan(snapshot, some).placements)) for some in permutations(lanes)
        }
        assert len(firsts) == 1
        return firsts.pop()

    def test_the_higher_priority_is_first(self) -> None:
        low = lane(asks(), "low", priority=50, created_at=-100)
        assert self.first(low, lane(asks(), "high", priority=51)) == "high"

    def test_of_one_priority_and_use_the_older_is_first(self) -> None:
        lanes = lane(asks(), "old", created_at=-1), lane(asks(gb=1), "young")
        assert self.first(*lanes) == "old"

    def test_whoever_used_less_is_first_though_younger(self) -> None:
        owners = {"alice": Account(usage=10.0), "bob": Account(usage=9.0)}
        alices = lane(asks(), "alices", created_at=-100)
        bobs = lane(asks(), "bobs", owner="bob")
        assert self.first(alices, bobs, owners=owners) == "bobs"

    def test_whoever_has_more_shares_may_have_used_more(self) -> None:
        owners = {
            "alice": Account(usage=10.0, shares=2),
            "bob": Account(usage=9.0, shares=1),
        }
        alices = lane(asks(), "alices")
        bobs = lane(asks(), "bobs", owner="bob", created_at=-100)
        assert self.first(alices, bobs, owners=owners) == "alices"

    def test_members_of_a_group_share_what_the_group_used(self) -> None:
        groups = {"vision": Account(usage=100.0), "speech": Account(usage=50.0)}
        owners = {"alice": Account(usage=0.0), "bob": Account(usage=50.0)}
        alices = lane(asks(), "alices", group="vision", created_at=-100)
        bobs = lane(asks(), "bobs", owner="bob", group="speech")
        assert self.first(alices, bobs, owners=owners, groups=groups) == "bobs"

    def test_within_a_group_whoever_used_less_is_first(self) -> None:
        groups = {"vision": Account(usage=100.0)}
        owners = {"alice": Account(usage=70.0), "bob": Account(usage=30.0)}
        alices = lane(asks(), "alices", group="vision", created_at=-100)
        bobs = lane(asks(), "bobs", owner="bob", group="vision")
        assert self.first(alices, bobs, owners=owners, groups=groups) == "bobs"

    def test_each_aging_step_at_the_head_raises_a_job_by_one(self) -> None:
        waited = lane(asks(), "waited", priority=50, created_at=-2 * HOUR)
        lanes = waited, lane(asks(), "high", priority=52)
        # Of the same priority then, and the older is first.
        assert self.first(*lanes, aging_s=HOUR) == "waited"
        assert self.first(*lanes, aging_s=HOUR + 1) == "high"

    def test_a_lane_ages_from_when_its_last_job_was_served(self) -> None:
        """A flood of a day ago is not a day ahead of who comes now."""
        owners = {"alice": Account(usage=5.0), "bob": Account()}
        flood = lane(asks(), "flood", created_at=-24 * HOUR, aged_from=-60.0)
        new = lane(asks(), "new", owner="bob", created_at=-10.0)
        assert self.first(flood, new, owners=owners, aging_s=HOUR) == "new"

    def test_what_an_operator_moved_to_the_top_is_first_the_latest_of_all(self) -> None:
        high = lane(asks(), "high", priority=100)
        topped = lane(asks(), "topped", priority=0, topped_at=1.0)
        later = lane(asks(), "later", priority=0, topped_at=2.0)
        assert self.first(high, topped) == "topped"
        assert self.first(high, topped, later) == "later"

    def test_a_job_counts_at_once_so_that_two_owners_take_turns(self) -> None:
        four = cluster(*(gpu(i) for i in range(4)))
        alices = lane(asks(), "a1", "a2", "a3", created_at=-100)
        bobs = lane(asks(), "b1", "b2", "b3", owner="bob")
        assert list(plan(four, [alices, bobs]).placements) == ["a1", "b1", "a2", "b2"]

    def test_the_jobs_of_a_lane_come_in_their_order(self) -> None:
        two = cluster(gpu(0), gpu(1))
        made = plan(two, [lane(asks(), "first", "second", "third")])
        assert list(made.placements) == ["first", "second"]
        assert reasons(made) == {"third": "resources"}


class TestBackfill:
    def blocked(self, until: float = 1000.0) -> Snapshot:
        """GPU 0 is held until then; GPU 1 is free."""
        return cluster(gpu(0, holdings=busy(until=until)), gpu(1))

    def test_a_blocked_head_has_a_reservation_when_the_limits_guarantee_it(
        self,
    ) -> None:
        made = plan(self.blocked(), [lane(asks(2), "head")])
        assert made.reservations["head"].at == 1000.0
        assert set(made.reservations["head"].gpu_ids) == {0, 1}
        assert reasons(made) == {"head": "resources"}

    def test_a_job_that_is_over_by_then_passes(self) -> None:
        # 940 s with the minute for starting and clearing away.
        short = lane(asks(1, timeout_s=930, grace_s=10), "short", created_at=1)
        made = plan(self.blocked(), [lane(asks(2), "head"), short])
        assert placed(made) == {"short": {1}}

    def test_one_that_may_last_a_second_longer_waits_and_is_told_why(self) -> None:
        long = lane(asks(1, timeout_s=931, grace_s=10), "long", created_at=1)
        made = plan(self.blocked(), [lane(asks(2), "head"), long])
        assert placed(made) == {}
        assert reasons(made)["long"] == "priority"
        assert "kept for a job ahead from 1970-01-01 00:16 UTC" in (
            made.waits["long"].text
        )

    def test_a_long_job_passes_where_the_head_will_not_be(self) -> None:
        three = cluster(gpu(0, holdings=busy(until=1000)), gpu(1), gpu(2, 8))
        long = lane(asks(1, gb=4), "long", created_at=1)
        made = plan(three, [lane(asks(2, gb=20), "head"), long])
        assert placed(made) == {"long": {2}}

    def test_a_shared_job_passes_if_the_head_still_fits_beside_it(self) -> None:
        held = cluster(gpu(0, holdings=(holds(14, until=1000),)))
        head = lane(asks(gb=12, share=True), "head")
        small = lane(asks(gb=4, share=True), "small", created_at=1)
        assert placed(plan(held, [head, small])) == {"small": {0}}
        larger = lane(asks(gb=10, share=True), "larger", created_at=1)
        wide = cluster(gpu(0, holdings=(holds(14, until=1000),)))
        assert placed(plan(wide, [lane(asks(gb=15, share=True), "h"), larger])) == {}

    def test_as_many_heads_have_reservations_as_the_setting_says(self) -> None:
        snapshot = cluster(
            gpu(0, holdings=busy(until=1000)), gpu(1, 8, holdings=busy(8, until=2000))
        )
        lanes = [
            lane(asks(gb=20), "one"),
            lane(asks(gb=21), "two", created_at=1),
            lane(asks(gb=22), "three", created_at=2),
        ]
        assert list(plan(snapshot, lanes).reservations) == ["one"]
        two = plan(replace(snapshot, reservations=2), lanes)
        assert list(two.reservations) == ["one", "two"]
        # The second begins when the first is over at the latest.
        assert two.reservations["two"].at == 1000 + 3660

    def test_where_no_time_is_guaranteed_the_head_keeps_its_best_gpus(self) -> None:
        foreign = cluster(gpu(0, foreign_mb=20 * GB))
        head = lane(asks(gb=22), "head")
        small = lane(asks(gb=2, share=True, timeout_s=1), "small", created_at=1)
        made = plan(foreign, [head, small])
        assert made.reservations["head"].at == math.inf
        assert reasons(made) == {"head": "foreign_use", "small": "priority"}
        assert "it is kept for a job ahead." in made.waits["small"].text

    def test_a_job_that_waits_for_its_image_keeps_nothing(self) -> None:
        made = plan(cluster(gpu(0)), [lane(asks(image="x:1"), "a"), lane(asks(), "b")])
        assert placed(made) == {"b": {0}}
        assert made.reservations == {}

    def test_a_holder_past_its_limit_is_expected_to_go_soon_not_now(self) -> None:
        made = plan(self.blocked(until=-50.0), [lane(asks(2), "head")])
        assert made.reservations["head"].at == 60.0

    def test_a_cpu_job_with_a_reservation_is_not_overtaken_for_ever(self) -> None:
        node = Node(name="gauss", cpus=4, taken=(Taken(millicpus=2000, until=500),))
        snapshot = cluster(gpu(0), gauss=node)
        head = lane(asks(0, cpus=4), "head")
        other = lane(asks(0, cpus=1, timeout_s=500), "other", created_at=1)
        made = plan(snapshot, [head, other])
        assert made.reservations["head"].at == 500
        assert reasons(made) == {"head": "resources", "other": "priority"}

    def test_each_decision_counts_with_the_ones_before(self) -> None:
        made = plan(cluster(gpu(0)), [lane(asks(gb=10, share=True), "a", "b", "c")])
        assert placed(made) == {"a": {0}, "b": {0}}
        assert "4,096 MiB are free" in made.waits["c"].text


def limited(**limits: int) -> Account:
    return Account(running_jobs=2, gpus=3, vram_mb=40 * GB, limits=Limits(**limits))


LIMITS = [
    ("jobs", limited(running_jobs=2), "alice has 2 of 2 jobs running."),
    ("GPUs", limited(gpus=3), "alice has 3 of 3 GPUs; this takes 1."),
    (
        "VRAM, of which an exclusive job takes all that is usable",
        limited(vram_mb=63 * GB),
        "alice has 40,960 of 64,512 MiB of VRAM; this takes 24,576 more.",
    ),
    (
        "GPU-hours",
        Account(gpu_seconds=36_000, limits=Limits(gpu_hours=10)),
        "alice has used 10.0 of 10 GPU-hours in 30 days.",
    ),
]


class TestLimits:
    @pytest.mark.parametrize(
        ("account", "text"), [r[1:] for r in LIMITS], ids=[r[0] for r in LIMITS]
    )
    def test_who_is_at_a_limit_waits_and_is_told_the_numbers(
        self, account: Account, text: str
    ) -> None:
        snapshot = replace(cluster(gpu(0)), owners={"alice": account})
        bobs = lane(asks(), "b", owner="bob", created_at=1)
        made = plan(snapshot, [lane(asks(gb=2), "a"), bobs])
        assert reasons(made) == {"a": "quota"}
        assert made.waits["a"].text.startswith(text)
        # It keeps nothing either: it does not wait for a GPU.
        assert placed(made) == {"b": {0}}

    def test_one_below_a_limit_starts(self) -> None:
        account = limited(running_jobs=3, gpus=4, vram_mb=64 * GB, gpu_hours=1)
        snapshot = replace(cluster(gpu(0)), owners={"alice": account})
        assert placed(plan(snapshot, [lane(asks(), "a")])) == {"a": {0}}

    def test_a_groups_limit_counts_for_all_its_members(self) -> None:
        groups = {"vision": Account(running_jobs=5, limits=Limits(running_jobs=5))}
        snapshot = replace(cluster(gpu(0)), groups=groups)
        made = plan(snapshot, [lane(asks(), "a", group="vision")])
        assert made.waits["a"].text == "The group vision has 5 of 5 jobs running."

    def test_jobs_placed_in_the_same_pass_count(self) -> None:
        account = Account(limits=Limits(running_jobs=1))
        snapshot = replace(cluster(gpu(0), gpu(1)), owners={"alice": account})
        made = plan(snapshot, [lane(asks(), "a"), lane(asks(gb=1), "b", created_at=1)])
        assert list(made.placements) == ["a"]
        assert reasons(made) == {"b": "quota"}

    def test_an_array_runs_as_many_tasks_at_once_as_it_says(self) -> None:
        three = cluster(gpu(0), gpu(1), gpu(2))
        tasks = lane(asks(), "t0", "t1", "t2", array_limit=2, array_running=1)
        made = plan(three, [tasks])
        assert list(made.placements) == ["t0"]
        assert made.waits["t1"].text == "Its array lets 2 of its tasks run at once."

    def test_a_job_without_gpus_needs_no_gpu_hours(self) -> None:
        account = Account(gpu_seconds=36_000, limits=Limits(gpu_hours=10, gpus=0))
        snapshot = replace(cluster(gpu(0)), owners={"alice": account})
        assert list(plan(snapshot, [lane(asks(0), "a")]).placements) == ["a"]


class TestCpusAndMemory:
    def node(self, *taken: Taken) -> Node:
        return Node(name="gauss", cpus=16, memory_mb=64 * GB, taken=taken)

    def placement(self, snapshot: Snapshot, **fields: object) -> Placement:
        made = plan(snapshot, [lane(asks(**fields), "a")])  # type: ignore[arg-type]
        return made.placements["a"]

    def test_a_gpu_comes_with_its_fair_part_of_the_node(self) -> None:
        four = cluster(*(gpu(i) for i in range(4)), gauss=self.node())
        got = self.placement(four)
        # Of 14.4 CPUs and 58,982 MiB: a tenth is left to jobs without a GPU.
        assert (got.cpus, got.memory_mb, got.shm_mb) == (3.6, 14_745, 7_372)

    def test_who_shares_a_gpu_has_the_part_of_its_vram(self) -> None:
        one = cluster(gpu(0), gauss=self.node())
        got = self.placement(one, gb=6, share=True)
        assert (got.cpus, got.memory_mb) == (3.6, 14_745)

    def test_what_was_asked_for_is_given_exactly(self) -> None:
        one = cluster(gpu(0), gauss=self.node())
        got = self.placement(one, cpus=2.5, memory_mb=1000, shm_mb=100)
        assert (got.cpus, got.memory_mb, got.shm_mb) == (2.5, 1000, 100)

    def test_what_was_not_asked_for_bends_down_to_half(self) -> None:
        node = self.node(Taken(millicpus=8000, memory_mb=30 * GB))
        got = self.placement(cluster(gpu(0), gauss=node))
        assert (got.cpus, got.memory_mb) == (8.0, 34 * GB)

    @pytest.mark.parametrize("cpus", [1, 2, 3, 8, 10, 64])
    def test_jobs_without_a_gpu_find_room_though_every_gpu_is_held(
        self, cpus: int
    ) -> None:
        node = Node(name="gauss", cpus=cpus, memory_mb=24_105)
        one = cluster(gpu(0), gauss=node)
        made = plan(one, [lane(asks(), "gpu"), lane(asks(0), "cpu", created_at=1)])
        assert list(made.placements) == ["gpu", "cpu"]
        assert made.placements["cpu"].cpus == (1.0 if cpus > 1 else 0.5)

    @pytest.mark.parametrize(
        ("taken", "text"),
        [
            (Taken(millicpus=8801), "has 7.199 CPUs and 65,536 MiB of memory free"),
            (
                Taken(millicpus=0, memory_mb=36_046),
                "has 16 CPUs and 29,490 MiB of memory free; it takes 7.2 and 29,491",
            ),
        ],
    )
    def test_with_less_than_half_it_waits_with_the_numbers(
        self, taken: Taken, text: str
    ) -> None:
        snapshot = cluster(gpu(0), gauss=self.node(taken))
        made = plan(snapshot, [lane(asks(), "a")])
        assert made.waits["a"].reason == WaitReason.RESOURCES
        assert text in made.waits["a"].text

    def test_memory_is_shared_out_among_the_jobs_of_one_pass(self) -> None:
        two = cluster(gpu(0), gpu(1), gauss=self.node())
        made = plan(two, [lane(asks(memory_mb=40 * GB), "a", "b")])
        assert list(made.placements) == ["a"]
        assert "24,576 MiB of memory free" in made.waits["b"].text

    def test_shared_memory_counts_in_memory(self) -> None:
        node = self.node(Taken(millicpus=0, memory_mb=60 * GB))
        snapshot = cluster(*(gpu(i) for i in range(64)), gauss=node)
        made = plan(snapshot, [lane(asks(shm_mb=5 * GB), "a")])
        assert made.waits["a"].reason == WaitReason.RESOURCES

    def test_a_node_that_has_not_told_its_memory_gives_what_was_asked(self) -> None:
        unknown = cluster(gpu(0), gauss=Node(name="gauss", cpus=4, memory_mb=0))
        got = self.placement(unknown, memory_mb=1000)
        assert (got.memory_mb, got.shm_mb) == (1000, None)


class TestWhere:
    def nodes(self) -> Snapshot:
        return cluster(
            gpu(0, node="a"),
            gpu(1, node="b"),
            a=Node(name="a", labels={"rack": "1"}),
            b=Node(name="b", labels={"rack": "2", "disk": "ssd"}),
        )

    def test_a_pinned_job_runs_on_its_node(self) -> None:
        made = plan(self.nodes(), [lane(asks(node_name="b"), "a")])
        assert placed(made) == {"a": {1}}

    def test_labels_choose_the_node(self) -> None:
        wanted = asks(node_labels=(("rack", "2"), ("disk", "ssd")))
        assert placed(plan(self.nodes(), [lane(wanted, "a")])) == {"a": {1}}

    def test_labels_that_no_node_has_are_told(self) -> None:
        wanted = asks(node_labels=(("rack", "3"),))
        made = plan(self.nodes(), [lane(wanted, "a")])
        assert made.waits["a"].reason == WaitReason.NEVER_FITS
        assert "it is on node a, not on one with rack=3" in made.waits["a"].text

    def test_a_quarantined_node_takes_nothing_and_says_why(self) -> None:
        out = Node(name="gauss", state="quarantined", state_reason="fan is loud")
        made = plan(cluster(gpu(0), gauss=out), [lane(asks(), "a")])
        assert reasons(made) == {"a": "draining"}
        assert "node gauss is quarantined: fan is loud" in made.waits["a"].text

    def test_gpus_joined_by_nvlink_are_taken_together(self) -> None:
        def pair(id_: int, peer: int) -> object:
            return gpu(id_, peers=(f"GPU-{peer}",))

        linked = cluster(gpu(0), pair(1, 3), gpu(2), pair(3, 1))  # type: ignore[arg-type]
        assert placed(plan(linked, [lane(asks(2), "a")])) == {"a": {1, 3}}

    def test_an_exclusive_job_goes_where_it_strands_least(self) -> None:
        """Others want pairs: the node with an odd GPU out gives it."""
        two = [gpu(i, node="a") for i in range(2)]
        three = [gpu(i, node="b") for i in range(2, 5)]
        pairs = lane(asks(2, image="later"), *(f"p{i}" for i in range(9)), created_at=9)
        made = plan(cluster(*two, *three), [lane(asks(), "one"), pairs])
        assert made.placements["one"].node == "b"
