"""How long a scheduling pass takes, by queue, cluster and number of request shapes.

    python -m bench.placement [--quick]
    python -m tests.postgres python -m bench.placement --database [--jobs 10000]

The first is the pure decision. Beside it, in the same run, a plain first fit that looks
at every job and every GPU in turn; "x" is how many times longer that takes, the median
of paired runs. The second is a whole pass over the rows: load, decide, write.
"""

import argparse
import os
import random
import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any

from scheduler.placement import Account, Gpu, Holding, Lane, Node, Request, Snapshot
from scheduler.placement import plan as whole_pass

GB = 1024
OWNERS = 20


def cluster(gpus: int, seed: int = 1) -> Snapshot:
    """Nodes of eight GPUs; most are held, whole or in part, some are free."""
    rng = random.Random(seed)  # noqa: S311 - a bench
    names = [f"node{number:03d}" for number in range(max(1, gpus // 8))]
    found = {}
    for id_ in range(gpus):
        held = rng.random()
        holdings: tuple[Holding, ...] = ()
        if held < 0.6:
            whole = Holding(promised_mb=80 * GB, is_exclusive=True, until=held * 1e4)
            holdings = (whole,)
        elif held < 0.9:
            holdings = (Holding(promised_mb=30 * GB, until=held * 1e4),)
        found[id_] = Gpu(
            id=id_,
            uuid=f"GPU-{id_:05d}",
            index=id_ % 8,
            name=rng.choice(["NVIDIA A100 80GB", "NVIDIA H100 80GB HBM3"]),
            node=names[id_ // 8],
            total_mb=80 * GB,
            holdings=holdings,
        )
    nodes = {name: Node(name=name, cpus=128, memory_mb=1024 * GB) for name in names}
    owners = {f"owner{i}": Account(usage=float(i)) for i in range(OWNERS)}
    return Snapshot(nodes=nodes, gpus=found, owners=owners, now=0.0)


def shapes(number: int, seed: int = 2) -> list[Request]:
    rng = random.Random(seed)  # noqa: S311 - a bench
    found: dict[Request, None] = {}
    while len(found) < number:
        share = rng.random() < 0.5
        request = Request(
            gpu_count=1 if share else rng.choice([1, 1, 2, 4, 8]),
            min_vram_mb=rng.randrange(1, 80) * GB,
            share=share,
            gpu_name=rng.choice(["", "", "*A100*", "*H100*"]),
            timeout_s=rng.choice([600, 3600, 7200, 36000, 86400]),
        )
        found[request] = None
    return list(found)


def queue(jobs: int, asked: list[Request], seed: int = 3) -> list[Lane]:
    """So many jobs of twenty owners, as lanes."""
    rng = random.Random(seed)  # noqa: S311 - a bench
    lanes: dict[tuple[str, Request], list[tuple[str, float]]] = {}
    for number in range(jobs):
        key = f"owner{rng.randrange(OWNERS)}", asked[rng.randrange(len(asked))]
        lanes.setdefault(key, []).append((f"job{number}", number - jobs))
    return [
        Lane(request=request, jobs=tuple(some), owner=owner, aged_from=some[0][1])
        for (owner, request), some in lanes.items()
    ]


def first_fit(snapshot: Snapshot, lanes: Iterable[Lane]) -> int:
    """The plain way: each job in turn, on the first GPUs that are free enough."""
    free = {gpu.id: gpu.free_mb for gpu in snapshot.gpus.values()}
    whole = {gpu.id: not gpu.holdings for gpu in snapshot.gpus.values()}
    by_node: dict[str, list[Gpu]] = {}
    for gpu in snapshot.gpus.values():
        by_node.setdefault(gpu.node, []).append(gpu)
    placed = 0
    jobs = sorted((at, lane.request) for lane in lanes for _, at in lane.jobs)
    for _, request in jobs:
        for gpus in by_node.values():
            able = [
                gpu.id
                for gpu in gpus
                if free[gpu.id] >= request.vram_mb and (request.share or whole[gpu.id])
            ]
            if len(able) >= request.gpu_count:
                for id_ in able[: request.gpu_count]:
                    free[id_] = free[id_] - request.vram_mb if request.share else 0
                    whole[id_] = False
                placed += 1
                break
    return placed


def took_ms(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1000


def compare(jobs: int, gpus: int, kinds: int, rounds: int) -> tuple[float, float]:
    """Milliseconds of a pass, and how many times longer the plain way takes."""
    snapshot, lanes = cluster(gpus), queue(jobs, shapes(min(kinds, jobs)))
    pairs = [
        (
            took_ms(lambda: whole_pass(snapshot, lanes)),
            took_ms(lambda: first_fit(snapshot, lanes)),
        )
        for _ in range(rounds)
    ]
    return (
        statistics.median(ours for ours, _ in pairs),
        statistics.median(plain / ours for ours, plain in pairs),
    )


def decisions(quick: bool) -> None:
    sizes = (100, 1_000, 10_000) if quick else (100, 1_000, 10_000, 50_000)
    print(f"load average {os.getloadavg()[0]:.1f}; ms per pass (x: first fit / ours)\n")
    print("| queued | GPUs | 1 shape | 10 shapes | 1,000 shapes |")
    print("| ---: | ---: | ---: | ---: | ---: |")
    for jobs in sizes:
        for gpus in (8, 64) if quick else (8, 64, 512):
            rounds = 3 if gpus == 512 or jobs == 50_000 else 7
            cells = (compare(jobs, gpus, kinds, rounds) for kinds in (1, 10, 1_000))
            told = " | ".join(f"{ms:,.1f} ({ratio:.2g}x)" for ms, ratio in cells)
            print(f"| {jobs:,} | {gpus} | {told} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--database", action="store_true")
    parser.add_argument("--jobs", type=int, default=10_000)
    options = parser.parse_args()
    if options.database:
        from bench.passes import passes  # noqa: PLC0415 - Django only where it is needed

        passes(options.jobs)
    else:
        decisions(options.quick)


if __name__ == "__main__":
    main()
