"""A whole scheduling pass over real rows: load, decide, write. For bench.placement."""

import os
import random
import statistics
import time
from datetime import timedelta
from typing import Any

import django
from django.utils import timezone

GB = 1024


def passes(jobs: int, gpus: int = 64, kinds: int = 10, rounds: int = 5) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gpujobs.settings")
    os.environ.setdefault("GPUJOBS_SECRET_KEY", "bench " * 10)
    os.environ.setdefault("GPUJOBS_RUNNER", "process")
    django.setup()
    from django.core.management import call_command  # noqa: PLC0415 - after setup
    from django.db import connection  # noqa: PLC0415

    call_command("migrate", verbosity=0)
    fill(jobs, gpus, kinds)
    took = [measure() for _ in range(rounds)]
    first, later = took[0], took[1:]
    print(f"{connection.vendor}, {jobs:,} queued, {gpus} GPUs, {kinds} shapes")
    print(f"load average {os.getloadavg()[0]:.1f}; ms\n")
    print("| pass | load | decide | write | all | placed |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    told = {key: statistics.median(t[key] for t in later) for key in first}
    for name, row in (("first, on free GPUs", first), ("later, on full ones", told)):
        cells = " | ".join(f"{row[key]:,.0f}" for key in first)
        print(f"| {name} | {cells} |")


def fill(jobs: int, gpus: int, kinds: int) -> None:
    from bench.placement import shapes  # noqa: PLC0415
    from jobs.models import Job, UsageRecord, User  # noqa: PLC0415
    from scheduler.models import GPU, Node  # noqa: PLC0415

    rng = random.Random(4)  # noqa: S311 - a bench
    users = [User.objects.create_user(f"owner{i}@example.org") for i in range(20)]
    for number in range(gpus // 8):
        node = Node.objects.create(
            name=f"node{number}", state="up", cpus=128, memory_mb=1024 * GB
        )
        GPU.objects.bulk_create(
            GPU(
                node=node,
                uuid=f"GPU-{number}-{index}",
                index=index,
                name="NVIDIA A100 80GB",
                total_mb=80 * GB,
            )
            for index in range(8)
        )
    asked = [_fields(shape) for shape in shapes(kinds)]
    Job.objects.bulk_create(
        [
            Job(**_line(), owner=rng.choice(users), **rng.choice(asked))
            for _ in range(jobs)
        ],
        batch_size=1000,
    )
    now = timezone.now()
    UsageRecord.objects.bulk_create(
        UsageRecord(
            owner=rng.choice(users).email,
            job=str(number),
            attempt_number=1,
            gpu_seconds=100,
            vram_mb_seconds=1e6,
            fault="nobody",
            ended_at=now - timedelta(hours=rng.random() * 24 * 60),
        )
        for number in range(5000)
    )


def _line() -> dict[str, Any]:
    from jobs.waiting import IN_LINE  # noqa: PLC0415

    reason, text = IN_LINE
    return {"name": "j", "image": "x:1", "wait_reason": reason, "wait_text": text}


def _fields(shape: Any) -> dict[str, Any]:
    return {
        "gpu_count": shape.gpu_count,
        "min_vram_mb": shape.min_vram_mb,
        "share": shape.share,
        "timeout_s": shape.timeout_s,
    }


def measure() -> dict[str, float]:
    """One pass, its parts told apart by timing them where the pass calls them."""
    from scheduler import placement  # noqa: PLC0415
    from scheduler.models import Node  # noqa: PLC0415
    from scheduler.reservation import passes  # noqa: PLC0415

    Node.objects.update(heartbeat_at=timezone.now())
    spent = {"load": 0.0, "decide": 0.0}
    real = passes.load_lanes, passes.load_snapshot, placement.plan

    def timed(part: str, call: Any) -> Any:
        def inner(*args: Any) -> Any:
            began = time.perf_counter()
            try:
                return call(*args)
            finally:
                spent[part] += (time.perf_counter() - began) * 1000

        return inner

    passes.load_lanes = timed("load", real[0])
    passes.load_snapshot = timed("load", real[1])
    placement.plan = timed("decide", real[2])
    began = time.perf_counter()
    try:
        placed = passes.one_pass()
    finally:
        passes.load_lanes, passes.load_snapshot, placement.plan = real
    whole = (time.perf_counter() - began) * 1000
    write = whole - sum(spent.values())
    return {**spent, "write": write, "all": whole, "placed": float(placed)}
