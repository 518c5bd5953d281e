"""Public traces through the placement: what is allocated, stranded, and waited for.

    python -m bench.replay [--traces ../shared/traces] [--nodes 150] [--jobs 600]

Two replays, each with the same discipline of the queue and four ways to choose GPUs in
one run: ours, first fit, best fit without sharing, random. The first fills Alibaba's
2023 GPU-sharing cluster (openb; Weng et al., USENIX ATC 2023) to 130 % of its GPUs. The
second lets those requests arrive at four servers of eight GPUs, with the run times of
Microsoft's Philly trace, and limits one to ten times too long. Where the folder is not
there, requests and run times come from a generator with the published mix.
"""

import argparse
import os
import random
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.simulation import Simulation, Started, Work
from bench.traces import PART_MB, cluster_of, requests_of, run_times, servers
from scheduler.placement import Lane, Plan, Request, Snapshot, passing
from scheduler.placement.board import Board, GpuState, NodeState
from scheduler.placement.choice import Choice, Chooser, Demand, demand


class FirstFit(Chooser):
    def best(
        self, request: Request, node: NodeState, able: Sequence[GpuState]
    ) -> Choice:
        chosen = sorted(able, key=lambda state: state.gpu.index)[: request.gpu_count]
        return (node.node.name,), tuple(chosen)


class BestFit(Chooser):
    def best(
        self, request: Request, node: NodeState, able: Sequence[GpuState]
    ) -> Choice:
        def left(state: GpuState) -> tuple[int, int]:
            return state.now.free_mb, state.gpu.index

        chosen = sorted(able, key=left)[: request.gpu_count]
        rest = sum(state.now.free_mb for state in node.gpus)
        return (
            sum(state.now.free_mb for state in chosen),
            rest,
            node.node.name,
        ), tuple(chosen)


class RandomFit(Chooser):
    _rng = random.Random(7)  # noqa: S311 - a bench

    def best(
        self, request: Request, node: NodeState, able: Sequence[GpuState]
    ) -> Choice:
        chosen = self._rng.sample(list(able), request.gpu_count)
        return (self._rng.random(), node.node.name), tuple(chosen)


@dataclass(frozen=True, slots=True)
class Policy:
    name: str
    chooser: type[Chooser]
    shares: bool = True

    def asks(self, request: Request) -> Request:
        return request if self.shares else replace(request, share=False)


POLICIES = (
    Policy("ours", Chooser),
    Policy("first fit", FirstFit),
    Policy("best fit", BestFit),
    Policy("best fit, no sharing", BestFit, shares=False),
    Policy("random", RandomFit),
)


def plan_with(policy: Policy) -> Callable[[Snapshot, Sequence[Lane]], Plan]:
    """The product's pass, but for the way in which it chooses among GPUs that fit."""

    def planned(snapshot: Snapshot, lanes: Sequence[Lane]) -> Plan:
        ours = passing.Chooser
        passing.Chooser = policy.chooser  # type: ignore[misc]
        asked = [replace(lane, request=policy.asks(lane.request)) for lane in lanes]
        try:
            return passing.plan(snapshot, asked)
        finally:
            passing.Chooser = ours  # type: ignore[misc]

    return planned


# --- First replay: filling a cluster -------------------------------------------------


def fill(policy: Policy, cluster: Snapshot, requests: list[Request]) -> list[str]:
    """One after another until 130 % of the GPUs were asked for; none ends."""
    wanted = demand(replace(cluster, running=_mix(requests)), ())
    board = Board.of(cluster)
    chooser = policy.chooser(board, wanted)
    offered, used, spent = 0.0, 0.0, []
    rng = random.Random(42)  # noqa: S311 - a bench
    while offered < 1.3 * len(cluster.gpus):
        request = rng.choice(requests)
        offered += _gpus_of(request)
        began = time.perf_counter()
        found = chooser.now(policy.asks(request))
        if found is not None:
            ids = tuple(state.gpu.id for state in found[1])
            board.hold(policy.asks(request), found[0], ids, board.now)
            used += _gpus_of(request)
        spent.append((time.perf_counter() - began) * 1000)
    allocated = used / len(cluster.gpus)
    return [
        f"{100 * allocated:.1f}",
        f"{100 * wasted(board, wanted, used):.1f}",
        f"{statistics.median(spent):.2f} / {max(spent):.0f}",
    ]


def wasted(board: Board, wanted: Demand, used: float) -> float:
    """The part of all GPUs that is of no use: free, but not for what is asked, or held
    by a job beyond what it asked for."""
    whole_mb = sum(state.usable_mb for state in board.gpus.values())
    free_mb = sum(state.now.free_mb for state in board.gpus.values())
    idle = 1 - free_mb / whole_mb - used / len(board.gpus)
    return Chooser(board, wanted).stranded() + idle


def _mix(requests: Iterable[Request]) -> tuple[tuple[Request, int], ...]:
    counts: dict[Request, int] = {}
    for request in requests:
        counts[request] = counts.get(request, 0) + 1
    return tuple(counts.items())


def _gpus_of(request: Request) -> float:
    part = (request.min_vram_mb or 1000 * PART_MB) / (1000 * PART_MB)
    return request.gpu_count * part


# --- Second replay: a queue ----------------------------------------------------------


def arrivals(
    requests: list[Request], times: list[float], jobs: int, load: float, seed: int
) -> list[Work]:
    """Poisson arrivals whose whole GPUs fill 32 GPUs to `load`; limits one to ten
    times too long."""
    rng = random.Random(seed)  # noqa: S311 - a bench
    works = []
    for number in range(jobs):
        lasts_s = rng.choice(times)
        limit = max(60, int(lasts_s * rng.uniform(1, 10)))
        request = replace(rng.choice(requests), timeout_s=limit)
        works.append((number, request, lasts_s))
    asked = sum(_gpus_of(request) * lasts_s for _, request, lasts_s in works)
    between_s = asked / (load * 32) / jobs
    at, found = 0.0, []
    for number, request, lasts_s in works:
        at += rng.expovariate(1 / between_s)
        one = Work(
            id=f"job{number:06d}", arrives_at=at, request=request, lasts_s=lasts_s
        )
        found.append(one)
    return found


def wait(policy: Policy, cluster: Snapshot, works: list[Work]) -> list[float]:
    """Allocated and wasted (parts of all), mean and p95 wait, p95 wait of those with
    several GPUs (hours), reservations that were not kept."""
    wastes: list[float] = []
    mix = demand(replace(cluster, running=_mix(w.request for w in works)), ())

    def watch(simulation: Simulation, snapshot: Snapshot, made: Plan) -> None:
        if len(simulation.started) % 10 == 0:
            used = sum(_gpus_of(s.work.request) for s in simulation.running())
            wastes.append(wasted(Board.of(snapshot), mix, used))

    simulation = Simulation(cluster, plan_with(policy), _watch=watch)
    simulation.run(works)
    assert len(simulation.started) == len(works)
    waits = [s.at - s.work.arrives_at for s in simulation.started.values()]
    several = [
        s.at - s.work.arrives_at
        for s in simulation.started.values()
        if s.work.request.gpu_count > 1
    ]
    late = (
        simulation.started[job_id].at > at + 1e-6
        for job_id, at in simulation.promised.items()
    )
    return [
        _allocated(simulation, cluster, works),
        statistics.mean(wastes),
        statistics.mean(waits) / 3600,
        _p95(waits) / 3600,
        _p95(several) / 3600,
        float(sum(late)),
    ]


def _p95(values: list[float]) -> float:
    return sorted(values)[int(0.95 * len(values))] if values else 0.0


def _allocated(simulation: Simulation, cluster: Snapshot, works: list[Work]) -> float:
    """Of the GPU time until the last arrival, the part that jobs asked for and had."""
    end = works[-1].arrives_at

    def had(started: Started) -> float:
        until = min(end, started.at + started.work.lasts_s)
        return max(0.0, until - started.at) * _gpus_of(started.work.request)

    return sum(map(had, simulation.started.values())) / (end * len(cluster.gpus))


def queues(
    traces: Path, requests: list[Request], jobs: int, load: float
) -> Iterable[tuple[str, list[str]]]:
    """Each policy on the same three queues; of each figure the median."""
    cluster, times = servers(4, 8), run_times(traces)
    for policy in POLICIES:
        rows = [
            wait(policy, cluster, arrivals(requests, times, jobs, load, seed))
            for seed in (42, 43, 44)
        ]
        allocated, waste, mean, p95, several, late = (
            statistics.median(column) for column in zip(*rows, strict=True)
        )
        told = [f"{100 * allocated:.1f}", f"{100 * waste:.1f}"]
        told += [f"{hours:.2f}" for hours in (mean, p95, several)]
        yield policy.name, [*told, f"{late:.0f}"]


def table(head: list[str], rows: Iterable[tuple[str, list[str]]]) -> None:
    print("| " + " | ".join(["policy", *head]) + " |")
    print("| --- |" + " ---: |" * len(head))
    for name, cells in rows:
        print("| " + " | ".join([name, *cells]) + " |", flush=True)
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path, default=Path("../shared/traces"))
    parser.add_argument("--nodes", type=int, default=150)
    parser.add_argument("--jobs", type=int, default=1000)
    options = parser.parse_args()
    requests = requests_of(options.traces)
    cluster = cluster_of(options.traces, options.nodes)
    print(f"load average {os.getloadavg()[0]:.1f}")
    print(f"\nFilling {len(cluster.nodes)} nodes, {len(cluster.gpus)} GPUs to 130 %\n")
    table(
        ["allocated %", "wasted %", "decision ms, median / most"],
        ((policy.name, fill(policy, cluster, requests)) for policy in POLICIES),
    )
    for load in (0.9, 1.2):
        print(f"Queues of {options.jobs} jobs for 4 servers of 8 GPUs, load {load}\n")
        head = ["allocated %", "wasted %", "mean wait h", "p95 wait h"]
        head += ["p95 of several GPUs h", "reservations not kept"]
        table(head, queues(options.traces, requests, options.jobs, load))


if __name__ == "__main__":
    main()
