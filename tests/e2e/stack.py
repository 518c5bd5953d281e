"""The product as it is installed: web, cluster and supervisor as real processes."""

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import psycopg
import requests

ROOT = Path(__file__).resolve().parents[2]
PASSWORD = "correct-horse-battery"
# Twice a second, as jobs.api.throttles lets a person.
LOG_EVERY_S = 0.51
PATIENCE_S = 120.0


T = TypeVar("T")


def until(
    condition: Callable[[], T | None], what: str, timeout_s: float = PATIENCE_S
) -> T:
    """Wait for a condition; its first true value."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {timeout_s} s in vain for {what}"
        time.sleep(0.05)
    return value


class Stack:
    """`env` is added to the environment of every process."""

    # What every command of the product is run by; it must become that command.
    prefix: tuple[str, ...] = ()
    # Where the code of the product is.
    root = ROOT

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.data.mkdir(parents=True)
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.env = {
            **os.environ,
            "GPUJOBS_DATA_ROOT": str(self.data),
            "GPUJOBS_RUN_ROOT": str(self.data / "run"),
            "GPUJOBS_SECRET_KEY": secrets.token_urlsafe(50),
            "GPUJOBS_TLS": "0",
            "GPUJOBS_DEBUG": "1",
            "GPUJOBS_NODE": "gauss",
            "GPUJOBS_REGISTRATION": "open",
            "GPUJOBS_NETWORK": "none",
            **env,
        }
        self._database = _fresh_database(self.env, self.data)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.manage("migrate", "-v0")

    # --- Processes -------------------------------------------------------------------

    def manage(self, *arguments: str) -> str:
        done = subprocess.run(
            [*self.prefix, *self.program, *arguments],
            env=self.env,
            cwd=self.root,
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @property
    def program(self) -> list[str]:
        return [sys.executable, str(self.root / "manage.py")]

    def shell(self, code: str) -> str:
        """What this prints, run inside the product and with its database."""
        return self.manage("shell", "-v0", "-c", code)

    def start(self, *names: str, env: dict[str, str] | None = None) -> None:
        """A name with a number, such as cluster-2, is one more of its kind."""
        for name in names or ("web", "cluster", "supervisor"):
            self.spawn(name, env)
        if "web" in self._processes:
            until(self._answers, "the web server")

    def spawn(self, name: str, env: dict[str, str] | None = None) -> None:
        """Start one process, and do not wait until it serves."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [*self.prefix, *self.command(name.partition("-")[0])],
                env={**self.env, **(env or {})},
                cwd=self.root,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def command(self, kind: str) -> list[str]:
        return {
            "web": [
                *(sys.executable, "-m", "gunicorn", "gpujobs.wsgi", "-k", "gthread"),
                *("--threads", "8", "-b", f"127.0.0.1:{self.port}"),
                "--no-control-socket",
            ],
            "cluster": [*self.program, "cluster"],
            "supervisor": [*self.program, "supervise"],
        }[kind]

    def _answers(self) -> bool:
        with contextlib.suppress(requests.ConnectionError):
            return requests.get(f"{self.url}/health", timeout=10).ok
        return False

    def stop(self, *names: str) -> None:
        for name in names or tuple(self._processes):
            process = self._processes.pop(name)
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                raise AssertionError(f"{name} did not end: {self.story()}") from None

    def revive(self, name: str) -> None:
        """Once it died, start it anew, as an init system would."""
        self._processes[name].wait(PATIENCE_S)
        self.start(name)

    def pid(self, name: str) -> int:
        return self._processes[name].pid

    def kill(self, *names: str) -> None:
        """kill -9 of all its processes, as a crash."""
        for name in names:
            process = self._processes.pop(name)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def destroy(self) -> None:
        with contextlib.ExitStack() as stack:
            stack.callback(_drop_database, self._database)
            stack.callback(self._unmount)
            self.stop()

    def _unmount(self) -> None:
        """The volumes of jobs that it left running."""
        mounts = Path("/proc/self/mounts").read_text().splitlines()
        for target in (line.split()[1] for line in mounts):
            if target.startswith(f"{self.folder}/"):
                subprocess.run(["umount", "-l", target], check=True)

    def story(self) -> str:
        logs = sorted(self.folder.glob("*.log"))
        return "\n".join(f"--- {log.name}\n{log.read_text()[-4000:]}" for log in logs)

    # --- A person at the API ---------------------------------------------------------

    def person(self, email: str) -> "Person":
        """Register, log in, and act."""
        account = {"email": email, "password": PASSWORD}
        registered = self.post("/auth/register", account)
        assert registered.status_code == 201, registered.text
        return Person(self.url, self.token(email))

    def token(self, email: str) -> str:
        """Of somebody who has an account."""
        account = {"email": email, "password": PASSWORD}
        tokens = self.post("/auth/login", account).json()
        assert tokens["token_type"].lower() == "bearer"
        return str(tokens["access_token"])

    def post(self, path: str, body: Any) -> requests.Response:
        return requests.post(f"{self.url}/api/v1{path}", json=body, timeout=60)


class Person:
    def __init__(self, url: str, token: str) -> None:
        self._url = f"{url}/api/v1"
        self._session = requests.Session()
        self._next_log = 0.0
        self._session.headers["Authorization"] = f"Bearer {token}"

    def get(self, path: str, **params: Any) -> requests.Response:
        """Asked to, it waits: many tests look more often than a person may. At a log no
        more often than that, since what is watched would be over after such a wait."""
        if path.endswith("/logs"):
            time.sleep(max(0.0, self._next_log - time.monotonic()))
            self._next_log = time.monotonic() + LOG_EVERY_S
        while True:
            answer = self._session.get(self._url + path, params=params, timeout=60)
            if answer.status_code != 429:
                return answer
            time.sleep(int(answer.headers["Retry-After"]))

    def post(
        self, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> requests.Response:
        url = self._url + path
        return self._session.post(url, json=body, headers=headers, timeout=60)

    def put(self, path: str, body: Any) -> requests.Response:
        return self._session.put(self._url + path, json=body, timeout=60)

    def delete(self, path: str) -> requests.Response:
        return self._session.delete(self._url + path, timeout=60)

    def submit(self, **spec: Any) -> str:
        answer = self.post("/jobs", spec)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def job(self, job_id: str) -> dict[str, Any]:
        answer = self.get(f"/jobs/{job_id}")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def wait_for(self, job_id: str, *statuses: str) -> dict[str, Any]:
        """The job once it has one of the statuses; fails if it can not get there."""
        ended = ("succeeded", "failed", "cancelled")

        def settled() -> dict[str, Any] | None:
            job = self.job(job_id)
            return job if job["status"] in (*statuses, *ended) else None

        job = until(settled, f"job {job_id} to be {statuses}")
        assert job["status"] in statuses, job
        return job

    def log(self, job_id: str) -> bytes:
        return self.get(f"/jobs/{job_id}/logs").content

    def events(self, job_id: str) -> list[dict[str, Any]]:
        answer = self.get(f"/jobs/{job_id}/events").json()
        return list(answer["results"] if isinstance(answer, dict) else answer)


@contextlib.contextmanager
def running(folder: Path, env: dict[str, str]) -> Iterator[Stack]:
    stack = Stack(folder, env)
    try:
        stack.start()
        yield stack
    finally:
        stack.destroy()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _fresh_database(env: dict[str, str], data: Path) -> tuple[str, str] | None:
    """Point `env` at a new database: a file, or one on the server of DATABASE_URL."""
    server = env.get("DATABASE_URL", "sqlite")
    if server.startswith("sqlite:"):
        return None
    if server == "sqlite":
        env["DATABASE_URL"] = f"sqlite:///{data / 'gpujobs.db'}"
        return None
    name = f"stack_{secrets.token_hex(4)}"
    base, _, _ = server.rpartition("/")
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    env["DATABASE_URL"] = f"{base}/{name}"
    return server, name


def _drop_database(database: tuple[str, str] | None) -> None:
    if database is not None:
        server, name = database
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
