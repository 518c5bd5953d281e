"""The database goes away while jobs run and people submit: the API says so, nothing is
lost or doubled, what runs is not touched, and everything goes on by itself.

On a PostgreSQL of its own and on SQLite, whichever database the session has.
"""

import sqlite3
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
import requests

from tests.e2e.gates import Gates
from tests.e2e.stack import Person, Stack, running, until
from tests.postgres import Server
from tests.rig.daemon import PrivateDaemon
from tests.rig.fixtures import IMAGE
from tests.rig.machine import StandInMachine

pytestmark = [pytest.mark.docker, pytest.mark.postgres]

AWAY_S = 8.0
MANNERS = [200, 201, 503]


@pytest.fixture(scope="module")
def env(
    daemon: PrivateDaemon, session_machine: StandInMachine, gates: Gates
) -> dict[str, str]:
    session_machine.reset()
    return daemon.product_env(gates.folder)


@pytest.fixture(scope="module")
def on_postgres(
    tmp_path_factory: pytest.TempPathFactory, env: dict[str, str], server: Server
) -> Iterator[Stack]:
    told = {**env, "DATABASE_URL": server.url}
    with running(tmp_path_factory.mktemp("stack"), told) as stack:
        yield stack


@pytest.fixture(scope="module")
def on_sqlite(
    tmp_path_factory: pytest.TempPathFactory, env: dict[str, str]
) -> Iterator[Stack]:
    told = {**env, "DATABASE_URL": "sqlite"}
    with running(tmp_path_factory.mktemp("stack"), told) as stack:
        yield stack


class Crowd:
    """Three people who submit all the time, and send again what nobody answered."""

    def __init__(self, stack: Stack, ada: Person) -> None:
        self._stack = stack
        self._ada = ada
        self.told: Counter[int] = Counter()
        self.ids: dict[str, str] = {}
        self._is_over = threading.Event()
        self._threads = [
            threading.Thread(target=self._submit, args=[name]) for name in "abc"
        ]

    def __enter__(self) -> "Crowd":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _submit(self, name: str) -> None:
        number = 0
        while not self._is_over.is_set():
            key = f"{name}-{number}-{id(self)}"
            if self._sent(key):
                number += 1
            self._is_over.wait(0.1)

    def _sent(self, key: str) -> bool:
        spec = {"image": IMAGE, "command": "true", "name": key}
        try:
            answer = self._ada.post("/jobs", spec, headers={"Idempotency-Key": key})
        except requests.ConnectionError:
            return False
        self.told[answer.status_code] += 1
        if answer.status_code == 503:
            assert answer.headers["Content-Type"] == "application/problem+json"
            assert answer.headers["Retry-After"]
        if answer.status_code in (200, 201):
            self.ids[key] = answer.json()["id"]
        return key in self.ids

    def check(self) -> None:
        """As many jobs as keys, each at its end; no answer but those expected."""
        assert set(self.told) <= set(MANNERS), self.told
        for key, job_id in self.ids.items():
            self._ada.wait_for(job_id, "succeeded")
            assert self._ada.get("/jobs", name=key).json()["count"] == 1
        assert len(set(self.ids.values())) == len(self.ids) > 0


def goes_on(
    stack: Stack, gates: Gates, lose: Callable[[], Any], bring_back: Callable[[], Any]
) -> None:
    """Whatever `lose` does to the database, for AWAY_S seconds."""
    email = f"{time.monotonic_ns()}@example.org"
    ada = stack.person(email)
    until(lambda: ada.get("/gpus").json()["count"] == 4, "the GPUs to be known")
    spec = gates.asks(gpu_count=1, then="seq 1000")
    job_id = ada.submit(**spec)
    late = ada.submit(image=IMAGE, command="sleep 600", gpu_count=1, timeout_s=4)
    for each in (job_id, late):
        ada.wait_for(each, "running")
    with Crowd(stack, ada) as crowd:
        until(lambda: len(crowd.ids) > 2, "some to be accepted")
        lose()
        until(lambda: crowd.told[503], "the loss to be noticed")
        health = requests.get(f"{stack.url}/health", timeout=10)
        assert health.status_code in (200, 503)
        # It ends while nobody can write that down.
        gates.open(spec)
        time.sleep(AWAY_S)  # an outage lasts
        bring_back()
        before = len(crowd.ids)
        until(lambda: len(crowd.ids) > before + 2, "some to be accepted again")
    crowd.check()
    ada.wait_for(job_id, "succeeded")
    assert ada.log(job_id).split() == [str(n).encode() for n in range(1, 1001)]
    assert ada.wait_for(late, "failed")["reason"] == "timed_out"
    assert "Internal Server Error" not in (stack.folder / "web.log").read_text()


def test_a_server_that_is_stopped_and_started(
    on_postgres: Stack, server: Server, gates: Gates
) -> None:
    """F27."""
    goes_on(on_postgres, gates, server.stop, server.start)


def test_connections_that_are_cut_all_the_time(
    on_postgres: Stack, server: Server, gates: Gates
) -> None:
    """F27."""
    is_over = threading.Event()

    def cut() -> None:
        query = (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )
        while not is_over.wait(0.05):
            with psycopg.connect(server.url, autocommit=True) as admin:
                admin.execute(query)

    cutter = threading.Thread(target=cut)

    def stop() -> None:
        is_over.set()
        cutter.join()

    goes_on(on_postgres, gates, cutter.start, stop)


def test_a_server_that_only_follows(
    on_postgres: Stack, server: Server, gates: Gates
) -> None:
    """F27."""

    def only_follow(is_so: str) -> None:
        with psycopg.connect(server.url, autocommit=True) as admin:
            admin.execute(f"ALTER SYSTEM SET default_transaction_read_only = {is_so}")
            admin.execute("SELECT pg_reload_conf()")

    goes_on(on_postgres, gates, lambda: only_follow("on"), lambda: only_follow("off"))


def test_a_file_that_another_process_holds(on_sqlite: Stack, gates: Gates) -> None:
    """F28."""
    holder = sqlite3.connect(
        on_sqlite.data / "gpujobs.db", isolation_level=None, check_same_thread=False
    )
    with closing(holder):
        goes_on(
            on_sqlite,
            gates,
            lambda: holder.execute("BEGIN EXCLUSIVE"),
            lambda: holder.execute("ROLLBACK"),
        )


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    size = ["-t", "tmpfs", "-o", "size=24m", "tmpfs"]
    subprocess.run(["mount", *size, str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_disk_that_is_full_under_the_file(
    tmp_path: Path, small_disk: Path, env: dict[str, str], gates: Gates
) -> None:
    """F28, F29."""
    told = {**env, "DATABASE_URL": f"sqlite:///{small_disk}/gpujobs.db"}
    filling = small_disk / "filling"

    def fill() -> None:
        with suppress(OSError), filling.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))

    with running(tmp_path / "stack", told) as stack:
        goes_on(stack, gates, fill, filling.unlink)
        with closing(sqlite3.connect(small_disk / "gpujobs.db")) as file:
            assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
