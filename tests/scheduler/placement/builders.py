"""Snapshots and lanes for tables of cases: plain functions, sizes in GiB."""

from dataclasses import replace
from itertools import count

from scheduler.placement import (
    Gpu,
    Holding,
    Lane,
    Node,
    Request,
    Snapshot,
)

GB = 1024
_numbers = count(1)


def gpu(id: int, total_gb: int = 24, node: str = "gauss", **fields: object) -> Gpu:  # noqa: A002
    base = Gpu(
        id=id,
        uuid=f"GPU-{id}",
        index=id,
        name="NVIDIA GeForce RTX 3090",
        node=node,
        total_mb=total_gb * GB,
    )
    return replace(base, **fields)  # type: ignore[arg-type]


def holds(
    gb: float,
    measured_gb: float = 0,
    *,
    exclusive: bool = False,
    until: float = float("inf"),
) -> Holding:
    return Holding(
        promised_mb=int(gb * GB),
        measured_mb=int(measured_gb * GB),
        is_exclusive=exclusive,
        until=until,
    )


def busy(total_gb: int = 24, until: float = float("inf")) -> tuple[Holding, ...]:
    """Held whole, at the latest until then."""
    return (holds(total_gb, exclusive=True, until=until),)


def cluster(*gpus: Gpu, tolerance_mb: int = 512, **nodes: Node) -> Snapshot:
    names = {gpu.node for gpu in gpus}
    return Snapshot(
        nodes=nodes or {name: Node(name=name) for name in sorted(names)},
        gpus={gpu.id: gpu for gpu in gpus},
        foreign_tolerance_mb=tolerance_mb,
    )


def asks(count: int = 1, gb: float | None = None, **fields: object) -> Request:
    vram = None if gb is None else int(gb * GB)
    # An hour with the slack: what starts at 0 is gone at 3,660 at the latest.
    base = Request(gpu_count=count, min_vram_mb=vram, timeout_s=3600)
    return replace(base, **fields)  # type: ignore[arg-type]


def lane(request: Request, *jobs: str, **fields: object) -> Lane:
    """Jobs named `jobs`, or one with a name of its own; later ones are younger."""
    names = jobs or (f"job{next(_numbers)}",)
    first = float(fields.pop("created_at", 0.0))  # type: ignore[arg-type]
    base = Lane(
        request=request,
        jobs=tuple((name, first + i) for i, name in enumerate(names)),
        owner="alice",
        aged_from=first,
    )
    return replace(base, **fields)  # type: ignore[arg-type]
