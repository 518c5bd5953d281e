"""From the commit that asks for a task to the task that begins, by a real cluster.

    python -m bench.handover                          on SQLite, in a folder of its own
    python -m tests.postgres python -m bench.handover on PostgreSQL

Beside it, in the same run, the plainest hand-over that there could be: a byte through a
pipe to another process, which answers with the time. "x" is ours over that.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from multiprocessing import Pipe, Process
from multiprocessing.connection import Connection
from typing import Any

import django

NOBODY = str(uuid.UUID(int=0))
ROUNDS = 200
BURST = 500


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gpujobs.settings")
        os.environ.setdefault("GPUJOBS_SECRET_KEY", "bench " * 10)
        os.environ.setdefault("GPUJOBS_DATA_ROOT", folder)
        os.environ |= {"GPUJOBS_RUNNER": "process", "GPUJOBS_INVENTORY": "simulated"}
        django.setup()
        from django.core.management import call_command  # noqa: PLC0415 - after setup

        call_command("migrate", verbosity=0)
        command = [sys.executable, "manage.py", "cluster"]
        cluster = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            measure()
        finally:
            cluster.terminate()
            cluster.wait()


def measure() -> None:
    from django.db import connection  # noqa: PLC0415

    for _ in range(20):
        one_ms()  # the cluster has begun, its connections are open
    ours = sorted(one_ms() for _ in range(ROUNDS))
    plain = sorted(pipe_ms() for _ in range(ROUNDS))
    rate = burst_per_s()
    print(f"{connection.vendor}; load average {os.getloadavg()[0]:.1f}\n")
    print("| hand-over | ms, median | ms, p95 | x a pipe |")
    print("| --- | ---: | ---: | ---: |")
    middle, base = statistics.median(ours), statistics.median(plain)
    print(f"| ours | {middle:.1f} | {p95(ours):.1f} | {middle / base:.0f} |")
    print(f"| a pipe | {base:.2f} | {p95(plain):.2f} | 1 |")
    print(f"\n{BURST} tasks at once: {rate:.0f} tasks/s")


def p95(values: list[float]) -> float:
    return values[int(len(values) * 0.95)]


def one_ms() -> float:
    """A task that does nothing; when it began is what its message's end tells, so that
    the time to do it is in the figure too."""
    from scheduler.queue import enqueue  # noqa: PLC0415

    time.sleep(0.01)  # the cluster waits again, as on an idle machine
    began = time.perf_counter()
    enqueue("launch", NOBODY)
    while left():
        time.sleep(0.0005)
    return (time.perf_counter() - began) * 1000


def left() -> bool:
    from scheduler.models import TaskMessage  # noqa: PLC0415

    return TaskMessage.objects.exists()


def burst_per_s() -> float:
    from django.db import transaction  # noqa: PLC0415

    from scheduler.queue import enqueue  # noqa: PLC0415

    with transaction.atomic():
        for number in range(BURST):
            enqueue("launch", str(uuid.UUID(int=number)))
    began = time.perf_counter()
    while left():
        time.sleep(0.01)
    return BURST / (time.perf_counter() - began)


def pipe_ms() -> float:
    here, there = Pipe()
    child = Process(target=_answer, args=[there])
    child.start()
    here.send(0)
    here.recv()  # it is up
    began = time.perf_counter()
    here.send(0)
    told: Any = here.recv()
    child.join()
    return float((told - began) * 1000)


def _answer(there: Connection) -> None:
    for _ in range(2):
        there.recv()
        there.send(time.perf_counter())


if __name__ == "__main__":
    main()
