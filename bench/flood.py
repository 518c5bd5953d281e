"""How the API answers while a job prints 1 GB, and what that takes of disk and memory.

    python -m bench.flood [MB]                        on SQLite
    python -m tests.postgres python -m bench.flood    on PostgreSQL

As root with docker.io and busybox-static, on a daemon of its own. Three people look at
the list, at the job and at its log all the time; the same without the flood beside it.
"""

import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.e2e.stack import Person, Stack, running, until
from tests.rig.daemon import PrivateDaemon
from tests.rig.fixtures import IMAGE
from tests.rig.machine import StandInMachine

CAP_MB = 2
QUIET_S = 15.0


def main() -> None:
    flood_mb = int(sys.argv[1]) if sys.argv[1:] else 1000
    with tempfile.TemporaryDirectory(prefix="gpujobs-bench-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        machine = StandInMachine(folder)
        daemon = PrivateDaemon(machine)
        try:
            daemon.start()
            daemon.import_image(IMAGE)
            env = {
                **daemon.product_env(),
                "GPUJOBS_LOG_CAP_MB": str(CAP_MB),
            }
            with running(folder / "stack", env) as stack:
                measure(stack, daemon, flood_mb)
        finally:
            daemon.destroy()


def measure(stack: Stack, daemon: PrivateDaemon, flood_mb: int) -> None:
    ada = stack.person("ada@example.org")
    until(lambda: ada.get("/gpus").json()["count"] == 4, "the GPUs to be known")
    quiet = ada.submit(image=IMAGE, command="sleep 600")
    ada.wait_for(quiet, "running")
    until_then = time.monotonic() + QUIET_S
    before = watch(stack, daemon, quiet, lambda: time.monotonic() > until_then)
    line = "flood " * 12
    flood = ada.submit(image=IMAGE, command=f"yes '{line}' | head -c {flood_mb}000000")
    ended = ("succeeded", "failed")
    began = time.monotonic()
    during = watch(stack, daemon, flood, lambda: ada.job(flood)["status"] in ended)
    took_s = time.monotonic() - began
    print(
        "| | answers | ms, median | ms, p95 | log and Docker's, x cap | MB supervisor |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    print(f"| quiet | {before}")
    print(f"| {flood_mb} MB in {took_s:.0f} s | {during}")
    print(f"\ncap {CAP_MB} MiB; load {os.getloadavg()[0]:.1f}")


def watch(
    stack: Stack, daemon: PrivateDaemon, job_id: str, is_over: Callable[[], bool]
) -> str:
    """The rest of a row of the table."""
    took_ms: list[float] = []
    stop = threading.Event()
    token = stack.token("ada@example.org")
    paths = ["/jobs", f"/jobs/{job_id}", f"/jobs/{job_id}/logs"]
    people = [
        threading.Thread(
            target=ask, args=[Person(stack.url, token), path, took_ms, stop]
        )
        for path in paths
    ]
    for person in people:
        person.start()
    disk = memory = 0
    while not is_over():
        disk = max(disk, on_disk(stack, daemon))
        memory = max(memory, resident(stack.pid("supervisor")))
        time.sleep(0.05)
    stop.set()
    for person in people:
        person.join()
    took_ms.sort()
    p95 = took_ms[int(len(took_ms) * 0.95)]
    times = f"{len(took_ms)} | {statistics.median(took_ms):.0f} | {p95:.0f}"
    return f"{times} | {disk / CAP_MB / 2**20:.2f} | {memory / 2**20:.0f} |"


def ask(person: Person, path: str, took_ms: list[float], stop: threading.Event) -> None:
    while not stop.wait(0.05):
        began = time.perf_counter()
        assert person.get(path).status_code == 200
        took_ms.append((time.perf_counter() - began) * 1000)


def on_disk(stack: Stack, daemon: PrivateDaemon) -> int:
    total = 0
    for folder in (stack.data / "logs", daemon.folder / "data/containers"):
        for path in folder.rglob("*.log*"):
            with suppress(OSError):
                total += path.lstat().st_size
    return total


def resident(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


if __name__ == "__main__":
    main()
