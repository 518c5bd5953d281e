"""python -m tests.chaos: jobs on real containers while everything is killed at random.

Needs root, Docker, gcc, and PostgreSQL in DATABASE_URL (python -m tests.postgres).
"""

import argparse
import json
import os
import random
import secrets
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any

from tests.chaos import report
from tests.chaos.actors import Crowd, Ledger
from tests.chaos.evidence import Evidence
from tests.chaos.gathering import VERIFY, errors, gather, has_ended, wait
from tests.chaos.invariants import too_few_kills, violations
from tests.chaos.kills import Killer
from tests.chaos.machine import Machine, chaos_machine
from tests.chaos.programs import Program, programs
from tests.chaos.watcher import Watcher
from tests.rig.daemon import DOCKERD
from tests.rig.image import BUSYBOX

PEOPLE = ("ada@example.org", "grace@example.org", "linus@example.org")
LEAST_DAEMON_KILLS, JOBS_PER_DAEMON_KILL = 3, 50


def main() -> int:
    asked = _arguments()
    missing = _missing()
    if missing:
        _say(f"NOT RUN: chaos needs {', '.join(missing)}.")
        return 1 if os.environ.get("CI") == "true" else 0
    _say(f"chaos: {asked.jobs} jobs, seed {asked.seed} ...")
    began = monotonic()
    # So that whoever ends us leaves no daemon and no product behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with chaos_machine() as machine:
        run = _Run(machine, asked)
        try:
            seen, notes = run.run(), run.notes()
        finally:
            run.end()
        found = [*violations(seen), *too_few_kills(seen, asked.least_kills)]
        told = report.summary(
            seen,
            found,
            seed=asked.seed,
            took_s=monotonic() - began,
            load=os.getloadavg(),
            notes=notes,
        )
        _keep(machine, told, asked.out / f"seed-{asked.seed}")
    _say(report.text(told))
    return 1 if found else 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--jobs", type=int, default=150)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--reboots", type=int, default=1)
    parser.add_argument(
        "--minutes", type=float, default=5.0, help="after which nothing is killed"
    )
    parser.add_argument("--least-kills", type=int, default=50, metavar="COUNT")
    parser.add_argument("--kill-every", type=float, default=1.5, metavar="SECONDS")
    parser.add_argument("--submit-every", type=float, default=1.0, metavar="SECONDS")
    parser.add_argument("--out", type=Path, default=Path("var/chaos"))
    asked = parser.parse_args()
    if asked.seed is None:
        asked.seed = secrets.randbelow(1_000_000)
    return asked


def _missing() -> list[str]:
    needed = {
        "root": os.geteuid() == 0,
        "docker.io": Path(DOCKERD).exists(),
        "busybox-static": Path(BUSYBOX).exists(),
        "gcc": shutil.which("gcc"),
        "PostgreSQL": os.environ.get("DATABASE_URL", "").startswith("postgres"),
    }
    return [name for name, is_there in needed.items() if not is_there]


class _Run:
    """`is_calm`: nothing is killed any more. `is_over`: everybody goes home."""

    def __init__(self, machine: Machine, asked: argparse.Namespace) -> None:
        self._machine = machine
        self._asked = asked
        self._is_calm, self._is_over = threading.Event(), threading.Event()
        self._threads: list[threading.Thread] = []
        self._ledger = Ledger()
        product = machine.product
        folder = machine.witness.folder
        self._crowd = Crowd(product.url, folder, self._ledger, self._is_over)
        self._watcher = Watcher(machine.daemon, self._is_over)
        great = _spread(
            "dockerd", max(LEAST_DAEMON_KILLS, asked.jobs // JOBS_PER_DAEMON_KILL)
        )
        great += _spread("machine", asked.reboots)
        self._killer = Killer(machine, self._ledger, self._chance("kills"), great)

    def _chance(self, what: str) -> random.Random:
        return random.Random(f"{what} {self._asked.seed}")

    def run(self) -> Evidence:
        for email in PEOPLE:
            self._machine.product.person(email)
        self._begin(self._machine.guard, self._is_over, self._restart_pauses())
        self._begin(self._watcher.look)
        self._begin(self._watcher.listen)
        jobs = list(programs(self._asked.seed, self._asked.jobs))
        submitters = [
            self._begin(self._submit_all, jobs[number :: len(PEOPLE)], email)
            for number, email in enumerate(PEOPLE)
        ]
        for email in PEOPLE[:2]:
            chance = self._chance(f"looks of {email}")
            self._begin(self._crowd.look_around, email, chance)
        killing = self._begin(
            self._killer.run, self._is_calm, len(jobs), self._asked.kill_every
        )
        until_s = self._asked.minutes * 60
        wait(lambda: self._has_ended(submitters), until_s)
        self._is_calm.set()
        killing.join()
        for thread in submitters:
            thread.join()
        self._crowd.wait_for_cancels()
        return gather(self._machine, self._crowd, self._killer, self._watcher)

    def end(self) -> None:
        self._is_calm.set()
        self._is_over.set()

    def _begin(self, act: Callable[..., None], *arguments: Any) -> threading.Thread:
        thread = threading.Thread(target=self._act, args=[act, *arguments], daemon=True)
        thread.start()
        return thread

    def _act(self, act: Callable[..., None], *arguments: Any) -> None:
        try:
            act(*arguments)
        except Exception:  # noqa: BLE001 - a run without this thread shows nothing
            self._killer.failures.append(traceback.format_exc())

    def _submit_all(self, jobs: list[Program], email: str) -> None:
        chance = self._chance(f"submissions of {email}")
        self._crowd.submit_all(email, iter(jobs), self._submit_pauses(chance))

    def _submit_pauses(self, chance: random.Random) -> Iterator[float]:
        """Some in a burst, some apart."""
        mean_s = self._asked.submit_every * len(PEOPLE)
        while True:
            yield chance.choice([0.0, 0.0, chance.uniform(0, 6 * mean_s)])

    def _restart_pauses(self) -> Iterator[float]:
        chance = self._chance("restarts")
        while True:
            yield chance.uniform(0.1, 1.5)

    def _has_ended(self, submitters: list[threading.Thread]) -> bool:
        is_submitted = not any(thread.is_alive() for thread in submitters)
        return is_submitted and has_ended(self._machine, self._asked.jobs)

    def notes(self) -> dict[str, Any]:
        """Not wrong in itself: what the other logs tell of errors."""
        folder = self._machine.product.folder
        logs = [folder / f"{name}.log" for name in ("cluster", "supervisor")]
        told = {
            log.stem: dict(errors(log.read_text(errors="replace")).most_common(15))
            for log in logs
        }
        return {
            "restarts": self._machine.restarts,
            "is_verified": VERIFY.exists(),
            "looks": self._watcher.looks,
            "errors": told,
        }


def _spread(victim: str, times: int) -> list[tuple[float, str]]:
    """Evenly over the submissions."""
    return [(number / (times + 1), victim) for number in range(1, times + 1)]


def _keep(machine: Machine, told: dict[str, Any], folder: Path) -> None:
    """What one needs to find out why."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(json.dumps(told, indent=2))
    product = machine.product.folder
    files = [*product.glob("*.log"), product / "rows.json", machine.daemon.log]
    files += [*machine.witness.folder.glob("*.log"), machine.gpus.folder / "starts.log"]
    for file in files:
        name = "gpu-starts.log" if file.parent == machine.gpus.folder else file.name
        shutil.copyfile(file, folder / name)


if __name__ == "__main__":
    sys.exit(main())
