"""From a cancel to the end of the container, beyond the job's grace, on a real daemon.

    python -m bench.stopping                          on SQLite
    python -m tests.postgres python -m bench.stopping on PostgreSQL

As root with docker.io and busybox-static, on stand-in GPUs and a daemon of its own.
Beside it, in the same run, what Docker alone needs for the same: `docker stop` with the
same grace of the same program. "x" is the ratio of the medians.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from pathlib import Path

from tests.e2e.stack import Person, running, until
from tests.rig.daemon import PrivateDaemon
from tests.rig.fixtures import IMAGE
from tests.rig.machine import StandInMachine

ROUNDS = 100
AT_ONCE = 4
GRACE_S = 1
PROGRAMS = {
    "ignores SIGTERM": "trap '' TERM; while :; do sleep 0.1; done",
    "a shell as PID 1": "sleep 600; true",
    "ends on SIGTERM": "exec sleep 600",
}


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="gpujobs-bench-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        machine = StandInMachine(folder)
        daemon = PrivateDaemon(machine)
        try:
            daemon.start()
            daemon.import_image(IMAGE)
            measure(folder, machine, daemon)
        finally:
            daemon.destroy()


def measure(folder: Path, machine: StandInMachine, daemon: PrivateDaemon) -> None:
    env = daemon.product_env()
    print("| program | s beyond grace, median | p99 | x docker stop |")
    print("| --- | ---: | ---: | ---: |")
    with running(folder / "stack", env) as stack:
        ada = stack.person("ada@example.org")
        until(lambda: ada.get("/gpus").json()["count"] == 4, "the GPUs to be known")
        for name, command in PROGRAMS.items():
            ours = at_once(partial(cancel, ada, command))
            plain = at_once(partial(stop, daemon, command))
            ratio = (statistics.median(ours) + 1) / (statistics.median(plain) + 1)
            middle, worst = statistics.median(ours), p99(ours)
            print(f"| {name} | {middle:.2f} | {worst:.2f} | {ratio:.1f} |")
    print(f"\n{ROUNDS} rounds each, grace {GRACE_S} s; load {os.getloadavg()[0]:.1f}")


def at_once(act: Callable[[], float]) -> list[float]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return [*pool.map(lambda _: act(), range(ROUNDS))]


def p99(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.99) - 1]


def cancel(ada: Person, command: str) -> float:
    job_id = ada.submit(image=IMAGE, command=command, gpu_count=1, grace_s=GRACE_S)
    ada.wait_for(job_id, "running")
    began = time.time()
    assert ada.post(f"/jobs/{job_id}/cancel").status_code == 200
    ada.wait_for(job_id, "cancelled")
    # The attempt ends when its container did, by Docker's clock.
    [attempt] = ada.get(f"/jobs/{job_id}/attempts").json()["results"]
    ended = datetime.fromisoformat(attempt["ended_at"]).timestamp()
    return ended - began - GRACE_S


def stop(daemon: PrivateDaemon, command: str) -> float:
    client = daemon.client()
    options = {"network_mode": "none", "init": True, "detach": True}
    container = client.containers.run(IMAGE, ["/bin/sh", "-c", command], **options)
    began = time.time()
    container.stop(timeout=GRACE_S)
    took_s = time.time() - began - GRACE_S
    container.remove(force=True)
    client.close()
    return took_s


if __name__ == "__main__":
    main()
