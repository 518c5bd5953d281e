"""Public traces as requests, clusters and run times, or a generator with their mix."""

import csv
import random
from pathlib import Path

from scheduler.placement import Gpu, Node, Request, Snapshot

# A GPU of the trace is a thousand parts; here each is so many MiB of VRAM.
PART_MB = 24
DAY_S = 86_400


def requests_of(traces: Path) -> list[Request]:
    path = traces / "openb" / "openb_pod_list_default.csv"
    if not path.exists():
        return made_up_requests()
    with path.open() as file:
        rows = [row for row in csv.DictReader(file) if int(row["num_gpu"])]
    return [
        _request(
            int(row["num_gpu"]),
            int(row["gpu_milli"]),
            int(row["cpu_milli"]),
            int(row["memory_mib"]),
        )
        for row in rows
    ]


def _request(gpus: int, milli: int, cpu_milli: int, memory_mb: int) -> Request:
    share = milli < 1000
    return Request(
        gpu_count=gpus,
        min_vram_mb=milli * PART_MB if share else None,
        share=share,
        cpus=cpu_milli / 1000,
        memory_mb=memory_mb,
    )


def made_up_requests(number: int = 2000) -> list[Request]:
    """The published mix: a bit over half whole GPUs, few of them several at once."""
    rng = random.Random(11)  # noqa: S311 - a bench
    found = []
    for _ in range(number):
        gpus, milli = rng.choice([1, 1, 1, 1, 1, 1, 1, 2, 4, 8]), 1000
        if rng.random() < 0.46:
            gpus, milli = 1, rng.choice([810, 470, 320, 650, 230, 140])
        found.append(_request(gpus, milli, 8000 * gpus, 16_384 * gpus))
    return found


def cluster_of(traces: Path, most: int) -> Snapshot:
    path = traces / "openb" / "openb_node_list_gpu_node.csv"
    if not path.exists():
        return servers(most, 4)
    with path.open() as file:
        rows = list(csv.DictReader(file))
    step = max(1, len(rows) // most)
    nodes: dict[str, Node] = {}
    gpus: dict[int, Gpu] = {}
    for row in rows[::step]:
        nodes[row["sn"]] = Node(
            name=row["sn"],
            cpus=int(row["cpu_milli"]) // 1000,
            memory_mb=int(row["memory_mib"]),
        )
        for index in range(int(row["gpu"])):
            gpus[len(gpus)] = _gpu(len(gpus), index, row["sn"], row["model"])
    return Snapshot(nodes=nodes, gpus=gpus)


def _gpu(id_: int, index: int, node: str, name: str) -> Gpu:
    return Gpu(
        id=id_,
        uuid=f"{node}-{index}",
        index=index,
        name=name,
        node=node,
        total_mb=1000 * PART_MB,
    )


def servers(number: int, each: int) -> Snapshot:
    names = [f"server{i}" for i in range(number)]
    gpus = {
        number * each + i: _gpu(number * each + i, i % each, names[i // each], "GPU")
        for i in range(number * each)
    }
    nodes = {name: Node(name=name, cpus=12 * each, memory_mb=2**20) for name in names}
    # In the order of arrival alone, so that who is first stays first.
    return Snapshot(nodes=nodes, gpus=gpus, aging_s=1e12)


def run_times(traces: Path) -> list[float]:
    path = traces / "philly" / "philly_runtime.csv"
    if not path.exists():
        rng = random.Random(12)  # noqa: S311 - a bench
        return [min(DAY_S * 3, rng.lognormvariate(7.1, 2.2)) for _ in range(5000)]
    with path.open() as file:
        found = [float(row["runtime"]) for row in csv.DictReader(file)]
    return [min(seconds, DAY_S * 3) for seconds in found if seconds >= 1]
