"""A pass as text, so that it can be kept, hashed, and made again on any machine."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from scheduler.placement.passing import Plan
from scheduler.placement.terms import (
    Account,
    Gpu,
    Holding,
    Lane,
    Limits,
    Node,
    Request,
    Snapshot,
    Taken,
)

# Raised when the same inputs would be read or decided differently.
VERSION = 1
# Of each lane so many jobs are kept behind those that were placed or reserved for.
KEPT_BEHIND = 10


def dump(snapshot: Snapshot, lanes: Sequence[Lane], plan: Plan) -> str:
    """The inputs of the pass as JSON: what it considered, the rest of the line counted."""
    kept = [_trimmed(lane, plan) for lane in lanes]
    requests = list(dict.fromkeys(lane.request for lane in kept))
    number = {request: i for i, request in enumerate(requests)}
    rows = [
        {
            **asdict(replace(lane, request=Request(gpu_count=0))),
            "request": number[lane.request],
        }
        for lane in kept
    ]
    data = {
        "version": VERSION,
        "snapshot": _snapshot(snapshot),
        "requests": [asdict(request) for request in requests],
        "lanes": rows,
    }
    return json.dumps(data, sort_keys=True, separators=(",", ":"))


def _trimmed(lane: Lane, plan: Plan) -> Lane:
    served = plan.placements.keys() | plan.reservations.keys()
    count = sum(job_id in served for job_id, _ in lane.jobs)
    jobs = lane.jobs[: count + KEPT_BEHIND]
    return replace(lane, jobs=jobs, length=lane.waiting)


def _snapshot(snapshot: Snapshot) -> dict[str, Any]:
    images = {
        name: {**asdict(node), "images": sorted(node.images)}
        for name, node in snapshot.nodes.items()
    }
    # What cannot be a key of JSON becomes a list.
    return {
        **asdict(replace(snapshot, nodes={}, gpus={})),
        "nodes": images,
        "gpus": [asdict(gpu) for gpu in snapshot.gpus.values()],
    }


def digest(text: str) -> str:
    """SHA-256 of the inputs, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def load(text: str) -> tuple[Snapshot, list[Lane]]:
    """What `dump` wrote. Raises ValueError for another version."""
    data = json.loads(text)
    version = data.get("version") if isinstance(data, dict) else None
    if version != VERSION:
        raise ValueError(f"The record is of version {version}, this reads {VERSION}.")
    requests = [_request(row) for row in data["requests"]]
    lanes = [
        Lane(
            **{
                **row,
                "request": requests[row["request"]],
                "jobs": tuple((job_id, at) for job_id, at in row["jobs"]),
            }
        )
        for row in data["lanes"]
    ]
    return _load_snapshot(data["snapshot"]), lanes


def _request(row: Mapping[str, Any]) -> Request:
    labels = tuple((key, value) for key, value in row["node_labels"])
    return Request(**{**row, "node_labels": labels})


def _load_snapshot(row: Mapping[str, Any]) -> Snapshot:
    gpus = [
        Gpu(
            **{
                **gpu,
                "peers": tuple(gpu["peers"]),
                "holdings": tuple(Holding(**held) for held in gpu["holdings"]),
            }
        )
        for gpu in row["gpus"]
    ]
    return Snapshot(
        **{
            **row,
            "gpus": {gpu.id: gpu for gpu in gpus},
            "nodes": {name: _node(node) for name, node in row["nodes"].items()},
            "owners": _accounts(row["owners"]),
            "groups": _accounts(row["groups"]),
            "running": tuple((_request(r), count) for r, count in row["running"]),
        }
    )


def _node(row: Mapping[str, Any]) -> Node:
    taken = tuple(Taken(**held) for held in row["taken"])
    return Node(**{**row, "taken": taken, "images": frozenset(row["images"])})


def _accounts(rows: Mapping[str, Any]) -> dict[str, Account]:
    return {
        name: Account(**{**row, "limits": Limits(**row["limits"])})
        for name, row in rows.items()
    }


def outcome(plan: Plan) -> dict[str, Any]:
    """What the pass came to, as JSON can hold it."""
    return {
        "placed": {
            job_id: {
                "node": placed.node,
                "gpus": [gpu.uuid for gpu in placed.gpus],
                "vram_mb": list(placed.vram_mb),
                "cpus": placed.cpus,
                "memory_mb": placed.memory_mb,
                "shm_mb": placed.shm_mb,
                "text": placed.text,
            }
            for job_id, placed in plan.placements.items()
        },
        "waits": {
            job_id: {"reason": str(wait.reason), "text": wait.text}
            for job_id, wait in plan.waits.items()
        },
        "reserved": {
            job_id: {
                "node": kept.node,
                "gpus": list(kept.gpu_ids),
                "at": _time(kept.at),
            }
            for job_id, kept in plan.reservations.items()
        },
    }


def _time(at: float) -> float | None:
    return at if at != float("inf") else None


def differences(was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterable[str]:
    """In words, what came out differently; nothing if the two are the same."""
    for kind in ("placed", "waits", "reserved"):
        had, has = was.get(kind, {}), now.get(kind, {})
        for job_id in sorted({*had, *has}):
            before, after = had.get(job_id), has.get(job_id)
            if before != after:
                yield f"{kind} {job_id}: was {before}, is {after}"
