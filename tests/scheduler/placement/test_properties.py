"""What holds for every queue and every cluster (hypothesis looks for one that does not)."""

import math
from collections.abc import Callable
from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from bench.simulation import Simulation, Work, over_allocated
from scheduler.placement import (
    Gpu,
    Holding,
    Lane,
    Node,
    Plan,
    Request,
    Snapshot,
    Taken,
    plan,
)
from scheduler.placement.order import effective_priority
from tests.scheduler.placement.builders import GB, asks, cluster, gpu, lane

# A slow machine is no failure.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
SIZES = st.sampled_from([4, 8, 12, 24, 48])


@st.composite
def requests(draw: st.DrawFn) -> Request:
    share = draw(st.booleans())
    count = draw(st.sampled_from([1, 1, 1, 2, 4]))
    gb = draw(st.sampled_from([1, 2, 6, 10, 20] if share else [None, 2, 10, 20]))
    cpus = draw(st.sampled_from([None, None, 1.0, 6.5]))
    timeout_s = draw(st.sampled_from([60, 600, 3600]))
    return asks(count, gb, share=share, cpus=cpus, timeout_s=timeout_s)


@st.composite
def clusters(draw: st.DrawFn, *, held: bool = True) -> Snapshot:
    gpus: list[Gpu] = []
    nodes: dict[str, Node] = {}
    for name in ["a", "b", "c"][: draw(st.integers(1, 3))]:
        taken = draw(st.integers(0, 4000)) if held else 0
        span = Taken(millicpus=taken, until=draw(st.sampled_from([500.0, math.inf])))
        nodes[name] = Node(name=name, cpus=16, memory_mb=64 * GB, taken=(span,))
        for _ in range(draw(st.integers(1, 4))):
            size = draw(SIZES)
            holdings = draw(_holdings(size)) if held else ()
            foreign = draw(st.sampled_from([0, 0, 0, 300, 3000])) if held else 0
            state = draw(st.sampled_from(["enabled"] * 5 + ["draining"]))
            gpus.append(
                gpu(
                    len(gpus),
                    size,
                    name,
                    holdings=holdings,
                    foreign_mb=foreign,
                    state=state if held else "enabled",
                )
            )
    return replace(cluster(*gpus), nodes=nodes)


@st.composite
def _holdings(draw: st.DrawFn, size_gb: int) -> tuple[Holding, ...]:
    until = st.sampled_from([100.0, 700.0, 5000.0, math.inf])
    if draw(st.booleans()):
        return ()
    if draw(st.booleans()):
        whole = Holding(promised_mb=size_gb * GB, is_exclusive=True, until=draw(until))
        return (whole,)
    shares = draw(st.lists(st.sampled_from([1, 2, 4]), max_size=2))
    return tuple(
        Holding(promised_mb=gb * GB, measured_mb=gb * GB, until=draw(until))
        for gb in shares
        if sum(shares) <= size_gb
    )


@st.composite
def lines(draw: st.DrawFn, most: int = 8) -> list[Lane]:
    lanes = []
    keys = set()
    for number in range(draw(st.integers(1, most))):
        request = draw(requests())
        owner = draw(st.sampled_from(["alice", "bob"]))
        priority = draw(st.sampled_from([40, 50, 60]))
        if (request, owner, priority) in keys:
            continue
        keys.add((request, owner, priority))
        names = [f"{number}.{i}" for i in range(draw(st.integers(1, 3)))]
        created_at = -float(draw(st.integers(0, 100_000)))
        lanes.append(
            lane(
                request,
                *names,
                owner=owner,
                priority=priority,
                created_at=created_at,
            )
        )
    return lanes


def after(snapshot: Snapshot, made: Plan) -> Snapshot:
    """The cluster with what the plan placed on it."""
    gpus = dict(snapshot.gpus)
    for placed in made.placements.values():
        for one, vram_mb in zip(placed.gpus, placed.vram_mb, strict=True):
            holding = Holding(
                promised_mb=vram_mb, is_exclusive=not placed.request.share
            )
            had = gpus[one.id]
            gpus[one.id] = replace(had, holdings=(*had.holdings, holding))
    return replace(snapshot, gpus=gpus)


@given(clusters(), lines(), st.integers(1, 4))
def test_no_gpu_is_ever_over_allocated(
    snapshot: Snapshot, lanes: list[Lane], depth: int
) -> None:
    made = plan(replace(snapshot, reservations=depth), lanes)
    for one in after(snapshot, made).gpus.values():
        assert not over_allocated(one)
    for placed in made.placements.values():
        assert len({one.node for one in placed.gpus}) <= 1
        assert len({one.id for one in placed.gpus}) == placed.request.gpu_count


@given(clusters(), lines())
def test_no_node_gives_more_cpus_and_memory_than_it_has(
    snapshot: Snapshot, lanes: list[Lane]
) -> None:
    made = plan(snapshot, lanes)
    for node in snapshot.nodes.values():
        here = [p for p in made.placements.values() if p.node == node.name]
        millicpus = sum(round((p.cpus or 0) * 1000) for p in here)
        millicpus += sum(held.millicpus for held in node.taken)
        assert millicpus <= node.cpus * 1000
        assert sum(p.memory_mb or 0 for p in here) <= node.memory_mb


@given(clusters(), lines(), st.randoms(use_true_random=False))
def test_a_plan_does_not_depend_on_the_order_in_which_rows_come(
    snapshot: Snapshot, lanes: list[Lane], random: Random
) -> None:
    def mixed(rows: dict) -> dict:
        keys = list(rows)
        random.shuffle(keys)
        return {key: rows[key] for key in keys}

    nodes, gpus = mixed(dict(snapshot.nodes)), mixed(dict(snapshot.gpus))
    shuffled = random.sample(lanes, len(lanes))
    assert plan(replace(snapshot, nodes=nodes, gpus=gpus), shuffled) == plan(
        snapshot, lanes
    )


@given(clusters(), lines())
def test_nobody_waits_for_one_of_lower_priority_with_the_same_request(
    snapshot: Snapshot, lanes: list[Lane]
) -> None:
    made = plan(snapshot, lanes)
    for waiting in lanes:
        first = next(
            (i for i, j in enumerate(waiting.jobs) if j[0] in made.waits), None
        )
        if first is None:
            continue
        mine = effective_priority(snapshot, waiting, first)
        for other in lanes:
            if other.request != waiting.request:
                continue
            for position, (job_id, _) in enumerate(other.jobs):
                theirs = effective_priority(snapshot, other, position)
                assert theirs >= mine or job_id not in made.placements


def works(
    sizes: st.SearchStrategy[int], most: int = 12, timeout_s: int = 600
) -> st.SearchStrategy[list[Work]]:
    one = st.tuples(st.integers(0, 2000), sizes, st.integers(1, timeout_s))
    return st.lists(one, min_size=1, max_size=most).map(
        lambda rows: [
            Work(
                id=f"w{i:03d}",
                arrives_at=float(at),
                request=asks(count, timeout_s=timeout_s),
                lasts_s=float(lasts),
                owner=f"owner{i % 3}",
            )
            for i, (at, count, lasts) in enumerate(rows)
        ]
    )


def simulated(
    cluster_: Snapshot, works_: list[Work], watch: Callable | None = None
) -> Simulation:
    simulation = Simulation(cluster_, _watch=watch)
    simulation.run(works_)
    return simulation


FOUR = cluster(*(gpu(i) for i in range(4)))


@given(works(st.sampled_from([1, 1, 2, 3, 4]), most=30))
def test_no_simulated_pass_over_allocates_and_every_job_starts(
    some: list[Work],
) -> None:
    def watch(_: Simulation, snapshot: Snapshot, made: Plan) -> None:
        assert not any(map(over_allocated, after(snapshot, made).gpus.values()))

    simulation = simulated(FOUR, some, watch)
    assert set(simulation.started) == {work.id for work in some}


@given(works(st.just(1), most=40, timeout_s=60), st.integers(0, 500))
def test_the_largest_job_is_never_delayed_beyond_its_reservation_by_small_ones(
    small: list[Work], arrives_at: int
) -> None:
    large = Work(
        id="large",
        arrives_at=float(arrives_at),
        request=asks(4, timeout_s=600),
        lasts_s=100.0,
        priority=60,
    )
    simulation = simulated(FOUR, [*small, large])
    start = simulation.started["large"].at
    assert start <= simulation.promised.get("large", arrives_at)


@settings(max_examples=20)
@given(st.integers(0, 2**32))
def test_the_wait_of_the_largest_is_bounded_under_an_endless_stream(seed: int) -> None:
    """Small jobs of a higher priority keep coming, more than fit: by aging it becomes
    the head of the line, and then nothing passes that could delay it."""
    random = Random(seed)
    aging_s, ahead, limit_s = 50.0, 5, 30
    stream = [
        Work(
            id=f"s{i:05d}",
            arrives_at=i * 5.0,
            request=asks(1, timeout_s=limit_s, gb=random.choice([1, 2, 3])),
            lasts_s=random.uniform(20, limit_s),
            owner=f"owner{i % 5}",
            priority=50 + ahead,
        )
        for i in range(400)
    ]
    large = Work(
        id="large",
        arrives_at=50.0,
        request=asks(4, timeout_s=100),
        lasts_s=50.0,
        priority=50,
    )
    few = replace(FOUR, aging_s=aging_s)
    simulation = simulated(few, [*stream, large])
    # As old as to be above the others, whose lanes age too while they wait for it;
    # then what runs must end.
    waited = simulation.started["large"].at - 50.0
    assert waited <= aging_s * (2 * ahead + 2) + 2 * (limit_s + 60)


@given(works(st.just(1), most=15), st.data())
def test_with_one_owner_and_equal_shapes_a_job_less_makes_no_other_later(
    some: list[Work], data: st.DataObject
) -> None:
    some = [replace(w, owner="alice", lasts_s=100.0) for w in some]
    two = cluster(gpu(0), gpu(1))
    gone = data.draw(st.sampled_from(some))
    with_all = simulated(two, some).started
    without = simulated(two, [work for work in some if work != gone]).started
    for job_id, started in without.items():
        assert started.at <= with_all[job_id].at
