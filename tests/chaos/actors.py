"""People at the API: they submit, cancel and look, and try again where nobody answers."""

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests

from tests.chaos.programs import Program
from tests.e2e.stack import PASSWORD

PAUSE_S = 0.2
AWAY = (502, 503, 504)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """One that was accepted: when the first try was sent and the answer came."""

    asked_at: float
    accepted_at: float
    status: str


@dataclass(slots=True)
class Ledger:
    """What people were told. Each key is written by one thread."""

    submitted: dict[str, Program] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)
    # The ids that were acknowledged for a key: one, and no key has the id of another.
    acknowledged: dict[str, set[str]] = field(default_factory=dict)
    cancels: dict[str, Cancel] = field(default_factory=dict)
    answers: Counter[str] = field(default_factory=Counter)
    refused: list[str] = field(default_factory=list)
    posts_under_way: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, what: str) -> None:
        with self._lock:
            self.answers[what] += 1

    def post(self, step: int) -> None:
        with self._lock:
            self.posts_under_way += step


class Client:
    """Asks again until somebody answers, or until it is over. `tokens` are shared, by
    the person's address: only so many may log in a minute."""

    def __init__(
        self,
        url: str,
        email: str,
        ledger: Ledger,
        is_over: threading.Event,
        tokens: dict[str, str],
    ) -> None:
        self._url = f"{url}/api/v1"
        self._email = email
        self._ledger = ledger
        self._is_over = is_over
        self._tokens = tokens

    def ask(
        self, method: str, path: str, body: Any = None, key: str = "", **query: Any
    ) -> requests.Response | None:
        """The first answer that is none of a server that is away; None once over."""
        while True:
            answer = self._try(method, path, body, key, query)
            if answer is not None and answer.status_code not in AWAY:
                return answer
            if self._is_over.wait(PAUSE_S):
                return None

    def _try(
        self, method: str, path: str, body: Any, key: str, query: dict[str, Any]
    ) -> requests.Response | None:
        token = self._tokens.get(self._email) or self._log_in()
        if not token:
            return None
        headers = {"Authorization": f"Bearer {token}"}
        if key:
            headers["Idempotency-Key"] = key
        answer = self._send(method, path, json=body, headers=headers, params=query)
        if answer is not None and answer.status_code == 401:
            # It lasts for some minutes; another thread may have a new one by now.
            if self._tokens.get(self._email) == token:
                del self._tokens[self._email]
            return None
        return answer

    def _log_in(self) -> str:
        account = {"email": self._email, "password": PASSWORD}
        answer = self._send("POST", "/auth/login", json=account)
        if answer is None or answer.status_code != 200:
            return ""
        self._tokens[self._email] = str(answer.json()["access_token"])
        return self._tokens[self._email]

    def _send(self, method: str, path: str, **sent: Any) -> requests.Response | None:
        place = path.split("/")[1] if path.count("/") < 3 else path.rpartition("/")[2]
        try:
            answer = requests.request(method, self._url + path, timeout=60, **sent)
        except requests.RequestException as error:
            self._ledger.note(f"{method} {place}: {type(error).__name__}")
            return None
        self._ledger.note(f"{method} {place}: {answer.status_code}")
        if answer.status_code >= 500 and answer.status_code not in AWAY:
            self._ledger.refused.append(f"{method} {path}: {answer.text[:300]}")
        return answer


class Crowd:
    """Threads of people. `programs` are handed out one by one, over `within_s`."""

    def __init__(
        self, url: str, folder: Path, ledger: Ledger, is_over: threading.Event
    ) -> None:
        self._url = url
        self._folder = folder
        self.ledger = ledger
        self._is_over = is_over
        self._tokens: dict[str, str] = {}
        self._timers: list[threading.Timer] = []

    def submit_all(
        self, email: str, programs: Iterator[Program], pauses: Iterator[float]
    ) -> None:
        """A thread: one after another, each acknowledged before the next."""
        client = self.client(email)
        for program in programs:
            self.ledger.submitted[program.key] = program
            self.ledger.owners[program.key] = email
            job_id = self._submit(client, program)
            if job_id and program.cancel_after_s is not None:
                self._cancel_later(email, job_id, program.cancel_after_s)
            if self._is_over.wait(next(pauses)):
                return

    def client(self, email: str) -> Client:
        return Client(self._url, email, self.ledger, self._is_over, self._tokens)

    def _submit(self, client: Client, program: Program) -> str | None:
        self.ledger.post(1)
        spec = program.spec(self._folder)
        answer = client.ask("POST", "/jobs", spec, key=program.key)
        self.ledger.post(-1)
        if answer is None:
            return None
        if answer.status_code not in (200, 201):
            self.ledger.refused.append(f"submit {program.key}: {answer.text[:300]}")
            return None
        job_id = str(answer.json()["id"])
        self.ledger.acknowledged.setdefault(program.key, set()).add(job_id)
        return job_id

    def _cancel_later(self, email: str, job_id: str, after_s: float) -> None:
        timer = threading.Timer(after_s, self._cancel, [email, job_id])
        timer.daemon = True
        timer.start()
        self._timers.append(timer)

    def _cancel(self, email: str, job_id: str) -> None:
        asked_at = time.time()
        answer = self.client(email).ask("POST", f"/jobs/{job_id}/cancel")
        if answer is None or answer.status_code == 409:
            return
        if answer.status_code != 200:
            self.ledger.refused.append(f"cancel {job_id}: {answer.text[:300]}")
            return
        self.ledger.cancels[job_id] = Cancel(
            asked_at=asked_at, accepted_at=time.time(), status=answer.json()["status"]
        )

    def look_around(self, email: str, chance: random.Random) -> None:
        """A thread: reads pages until it is over, and submits again what was
        acknowledged long ago, which must be answered with the same job."""
        client = self.client(email)
        while not self._is_over.wait(chance.uniform(0.1, 0.6)):
            known = [
                (key, next(iter(ids)))
                for key, ids in list(self.ledger.acknowledged.items())
                if self.ledger.owners[key] == email
            ]
            if known and chance.random() < 0.1:
                self._submit(client, self.ledger.submitted[chance.choice(known)[0]])
                continue
            paths = ["/jobs", "/gpus", "/nodes", "/health"]
            if known:
                parts = ("", "/logs", "/events", "/attempts", "/explain")
                paths += [f"/jobs/{chance.choice(known)[1]}{part}" for part in parts]
            client.ask("GET", chance.choice(paths))

    def wait_for_cancels(self) -> None:
        for timer in self._timers:
            timer.join()
