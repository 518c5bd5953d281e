"""The web server is killed in the middle of commits to SQLite: what was acknowledged is
there, once, and the file is whole."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest
import requests

from tests.e2e.stack import Person, Stack, until

KILLS = 5
SPEC = {"image": "busybox:1", "command": "true", "gpu_count": 0}


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    stack = Stack(tmp_path / "stack", {"DATABASE_URL": "sqlite"})
    try:
        stack.start("web")
        yield stack
    finally:
        stack.destroy()


class Crowd:
    """Four people who submit without a pause, each job under a name of its own."""

    def __init__(self, ada: Person) -> None:
        self._ada = ada
        self.accepted: list[str] = []
        self.refused: list[int] = []
        self._is_over = threading.Event()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        threads = [threading.Thread(target=self._submit, args=[n]) for n in range(4)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            for thread in threads:
                thread.join()

    def has_more_than(self, number: int) -> bool:
        return len(self.accepted) > number

    def _submit(self, person: int) -> None:
        number = 0
        while not self._is_over.is_set():
            key = f"{person}-{number}"
            try:
                told = {**SPEC, "name": key}
                answer = self._ada.post("/jobs", told, {"Idempotency-Key": key})
            except requests.RequestException:
                self._is_over.wait(0.05)
                continue
            if answer.status_code in (200, 201):
                self.accepted.append(key)
                number += 1
            else:
                self.refused.append(answer.status_code)


def test_it_is_killed_again_and_again(stack: Stack) -> None:
    """F16, F28."""
    ada = stack.person("ada@example.org")
    crowd = Crowd(ada)
    with crowd.at_work():
        for _ in range(KILLS):
            until(partial(crowd.has_more_than, len(crowd.accepted) + 5), "more jobs")
            stack.kill("web")
            stack.start("web")
    stack.stop("web")
    assert set(crowd.refused) <= {503}
    with closing(sqlite3.connect(stack.data / "gpujobs.db")) as file:
        assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        names = [name for (name,) in file.execute("SELECT name FROM jobs_job")]
    # The last of each person may be there although nobody heard of it.
    assert len(names) == len(set(names))
    assert set(crowd.accepted) <= set(names)
    assert len(names) <= len(crowd.accepted) + 4
