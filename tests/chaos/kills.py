"""Who is killed when: by chance, but the same chance for the same seed."""

import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

import psycopg

from tests.chaos.actors import Ledger
from tests.chaos.machine import Machine, kill
from tests.chaos.processes import children, descendants, held_locks

# Seconds for which one of them may hold up a cancel, beside what it is down: the time
# of its restart, and for a worker's death that silences the cluster, the time until the
# watchdog no longer believes in it.
HOLDS_UP_S = {
    "supervisor": 10.0,
    "watchdog": 15.0,
    "cluster, all of it": 15.0,
    "qcluster": 15.0,
    "sentinel": 15.0,
    "worker": 60.0,
    "pusher": 60.0,
    "monitor": 60.0,
    "dockerd": 30.0,
    "machine": 60.0,
}
WEIGHTS = {
    "web worker": 4,
    "web workers at a POST": 3,
    "web": 1,
    "supervisor": 4,
    "cluster, all of it": 2,
    "watchdog": 2,
    "qcluster": 1,
    "sentinel": 1,
    "worker": 3,
    "pusher": 2,
    "monitor": 2,
    "supervisor paused": 2,
    "worker paused at a launch": 3,
}
# As in scheduler.execution.ground, which can not be read without the product's settings.
LOCKS = 1024
LONGEST_WAIT_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    at: float
    victim: str
    down_s: float = 0.0

    @property
    def holds_up_s(self) -> float:
        return self.down_s + HOLDS_UP_S.get(self.victim, 0.0)


class Killer:
    """`great` are the great ones (dockerd, machine), each with the share of the jobs
    that have been submitted when its time has come."""

    def __init__(
        self,
        machine: Machine,
        ledger: Ledger,
        chance: random.Random,
        great: list[tuple[float, str]],
    ) -> None:
        self._machine = machine
        self._ledger = ledger
        self._chance = chance
        self._great = sorted(great)
        self._paused: dict[int, threading.Timer] = {}
        self.kills: list[Kill] = []
        self.failures: list[str] = []

    def run(self, is_calm: threading.Event, jobs: int, every_s: float) -> None:
        """A thread, until it is calm."""
        while not is_calm.wait(self._chance.uniform(0.2, 2 * every_s)):
            share = len(self._ledger.acknowledged) / jobs
            if self._great and share >= self._great[0][0]:
                victim = self._great.pop(0)[1]
            else:
                [victim] = self._chance.choices([*WEIGHTS], [*WEIGHTS.values()])
            try:
                self._strike(victim)
            except Exception as error:  # noqa: BLE001 - told of at the end
                self.failures.append(f"{victim}: {type(error).__name__}: {error}")
        for pid, timer in self._paused.items():
            timer.cancel()
            kill(pid, signal.SIGCONT)

    def _strike(self, victim: str) -> None:
        at, down_s = time.time(), self._chance.uniform(0.0, 2.0)
        if victim == "dockerd":
            self._machine.kill_daemon(down_s)
            is_hit = True
        elif victim == "machine":
            self._machine.reboot(down_s)
            is_hit = True
        elif victim.endswith("launch") or victim.endswith("paused"):
            down_s = self._chance.uniform(1.0, 10.0)
            is_hit = self._pause(self._find(victim)[:1], down_s)
        else:
            with self._machine.lock:
                hits = [kill(pid) for pid in self._find(victim)]
            is_hit = any(hits)
        if is_hit:
            took_s = max(down_s, time.time() - at)
            self.kills.append(Kill(at=at, victim=victim, down_s=took_s))

    def _pause(self, pids: list[int], for_s: float) -> bool:
        for pid in pids:
            if kill(pid, signal.SIGSTOP):
                timer = threading.Timer(for_s, kill, [pid, signal.SIGCONT])
                timer.start()
                self._paused[pid] = timer
                return True
        return False

    def _find(self, victim: str) -> list[int]:
        product, cluster = self._machine.product, self._machine.product.pid("cluster")
        finders: dict[str, Callable[[], list[int]]] = {
            "web": lambda: [product.pid("web")],
            "web worker": lambda: self._one_of(children(product.pid("web"))),
            "web workers at a POST": self._at_a_post,
            "supervisor": lambda: [product.pid("supervisor")],
            "supervisor paused": lambda: [product.pid("supervisor")],
            "cluster, all of it": lambda: [cluster, *descendants(cluster)],
            "worker paused at a launch": self._at_a_launch,
        }
        if victim in finders:
            return finders[victim]()
        return self._one_of(self._machine.cluster.parts(cluster).get(victim, []))

    def _one_of(self, pids: list[int]) -> list[int]:
        return [self._chance.choice(pids)] if pids else []

    def _at_a_post(self) -> list[int]:
        _wait_a_little(lambda: self._ledger.posts_under_way > 0)
        return children(self._machine.product.pid("web"))

    def _at_a_launch(self) -> list[int]:
        """The worker that holds the lock of an attempt that is starting."""
        found: list[int] = []
        database = self._machine.product.env["DATABASE_URL"]
        with (
            suppress(psycopg.Error),
            psycopg.connect(database, autocommit=True) as rows,
        ):
            _wait_a_little(lambda: self._look_for_launch(rows, found))
        return found

    def _look_for_launch(self, rows: psycopg.Connection, found: list[int]) -> bool:
        query = "SELECT id FROM jobs_attempt WHERE phase = 'starting'"
        starting: list[UUID] = [row[0] for row in rows.execute(query)]
        locks = {f"{pk.int % LOCKS:03x}" for pk in starting}
        watchdog = self._machine.product.pid("cluster")
        workers = self._machine.cluster.parts(watchdog).get("worker", [])
        found += [pid for pid in workers if held_locks(pid) & locks]
        return bool(found)


def _wait_a_little(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + LONGEST_WAIT_S
    while not is_so() and time.monotonic() < until:
        time.sleep(0.01)
