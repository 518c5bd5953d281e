"""`make demo`: the whole product on this machine, with three sample jobs.

Everything it keeps lies in one folder (DATA). It listens on loopback only.
"""

import argparse
import atexit
import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import requests
from demo_machine import Machine, look_at_machine

ROOT = Path(__file__).resolve().parent.parent
MANAGE = [sys.executable, str(ROOT / "manage.py")]
USER, OPERATOR = "demo@example.org", "operator@example.org"
PATIENCE_S = 60.0
T = TypeVar("T")


def say(text: str = "") -> None:
    print(text, flush=True)


def until(condition: Callable[[], T | None], what: str) -> T:
    deadline = time.monotonic() + PATIENCE_S
    while not (value := condition()):
        if time.monotonic() > deadline:
            sys.exit(f"Waited {PATIENCE_S:.0f} s in vain for {what}; see DATA/*.log.")
        time.sleep(0.1)
    return value


# --- Setting up ----------------------------------------------------------------------


def environment(data: Path, machine: Machine) -> dict[str, str]:
    key = data / "secret_key"
    if not key.exists():
        key.touch(mode=0o600)
        key.write_text(secrets.token_urlsafe(50))
    # What this shell sets for another installation must not reach the demo, nor a
    # `.env` file: it would take their database for its own.
    ours = ("GPUJOBS_", "DATABASE_URL", "DJANGO_", "Q_CLUSTER")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    return {
        **clean,
        "GPUJOBS_ENV_FILE": os.devnull,
        "DATABASE_URL": f"sqlite:///{data / 'gpujobs.db'}",
        "GPUJOBS_SECRET_KEY": key.read_text(),
        "GPUJOBS_DATA_ROOT": str(data),
        "GPUJOBS_RUN_ROOT": str(run_root(data, machine)),
        "GPUJOBS_RUNNER": machine.runner,
        "GPUJOBS_INVENTORY": machine.inventory,
        "GPUJOBS_DOCKER_URL": machine.docker_url,
        "GPUJOBS_NETWORK": machine.network,
        "GPUJOBS_TLS": "0",
        "GPUJOBS_ALLOWED_HOSTS": "127.0.0.1,localhost",
    }


def run_root(data: Path, machine: Machine) -> Path:
    """Inside DATA, unless an unprivileged process could not reach that."""
    folders = [data, *data.parents]
    reachable = all(folder.stat().st_mode & 0o001 for folder in folders)
    if machine.runner == "docker" or os.geteuid() != 0 or reachable:
        return data / "run"
    folder = Path(tempfile.mkdtemp(prefix="gpujobs-demo-"))
    folder.chmod(0o711)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def manage(env: dict[str, str], *arguments: str, text: str = "") -> None:
    done = subprocess.run(
        [*MANAGE, *arguments], env=env, input=text, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(done.stdout + done.stderr)


def make_accounts(env: dict[str, str], written: Path) -> dict[str, dict[str, str]]:
    """Both accounts, with the passwords of the last run if there was one."""
    old = json.loads(written.read_text()) if written.exists() else {}
    accounts = {
        role: {
            "email": email,
            "password": old.get(role, {}).get("password", secrets.token_urlsafe(12)),
        }
        for role, email in (("user", USER), ("operator", OPERATOR))
    }
    manage(env, "shell", "-v0", "-c", ACCOUNTS, text=json.dumps(accounts))
    return accounts


ACCOUNTS = f"""
import json, sys
from jobs.models import User
accounts = json.load(sys.stdin)
for role, account in accounts.items():
    user = User.objects.filter(email=account["email"]).first()
    user = user or User.objects.create_user(account["email"])
    user.set_password(account["password"])
    user.is_staff = user.is_superuser = account["email"] == {OPERATOR!r}
    user.save()
"""


def check_port(port: int) -> None:
    if not 0 < port < 65536:
        sys.exit(f"Port {port}: ports are 1 to 65535. Try: make demo PORT=8000")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            sys.exit(f"Port {port}: {error.strerror}. Try: make demo PORT={port + 1}")


# --- Processes -----------------------------------------------------------------------


@contextlib.contextmanager
def processes(env: dict[str, str], data: Path, port: int) -> Iterator[None]:
    """Web, cluster and supervisor, each in its own session: Ctrl-C is ours alone."""
    gunicorn = [sys.executable, "-m", "gunicorn", "gpujobs.wsgi", "-k", "gthread"]
    gunicorn += ["--no-control-socket"]
    commands = {
        "web": [*gunicorn, "--threads", "8", "-b", f"127.0.0.1:{port}"],
        "cluster": [*MANAGE, "cluster"],
        "supervisor": [*MANAGE, "supervise"],
    }
    started = []
    try:
        for name, command in commands.items():
            with (data / f"{name}.log").open("ab") as log:
                started.append(
                    subprocess.Popen(
                        command,
                        env=env,
                        cwd=ROOT,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        start_new_session=True,
                    )
                )
        yield
    finally:
        for process in reversed(started):
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


class Api:
    def __init__(self, base_url: str, account: dict[str, str]) -> None:
        self._url = f"{base_url}/api/v1"
        self._session = requests.Session()
        tokens = self.call("POST", "/auth/login", account)
        self._session.headers["Authorization"] = f"Bearer {tokens['access_token']}"

    def call(self, method: str, path: str, body: Any = None) -> Any:
        answer = self._session.request(method, self._url + path, json=body, timeout=30)
        if not answer.ok:
            sys.exit(f"{method} {path}: {answer.status_code} {answer.text}")
        kind = answer.headers.get("Content-Type", "")
        return answer.json() if "json" in kind else answer.text

    def job(self, job_id: str) -> dict[str, Any]:
        return dict(self.call("GET", f"/jobs/{job_id}"))


def answers(base_url: str) -> bool:
    with contextlib.suppress(requests.ConnectionError):
        return requests.get(f"{base_url}/health", timeout=5).ok
    return False


# --- The sample jobs -----------------------------------------------------------------

SUCCEEDS = """
echo "Hello from attempt $GPUJOBS_ATTEMPT on GPUs $GPUJOBS_GPU_UUIDS"
for step in 1 2 3 4 5; do echo "step $step of 5"; sleep 1; done
echo '{"accuracy": 0.93}' > "$GPUJOBS_ARTIFACTS/metrics.json"
echo "done"
"""
FAILS = "echo 'reading the configuration'; echo 'error: no such file' >&2; exit 3"
WAITS = "echo 'my turn at last'"


def sample_jobs(api: Api, image: str) -> bool:
    """Submit the three and show them to the end; whether all went as it should."""
    gpus = until(
        lambda: [g for g in api.call("GET", "/gpus")["results"] if g["is_present"]],
        "the supervisor to find the GPUs",
    )
    free = sum(gpu["foreign_mb"] < 512 for gpu in gpus)
    spec = {"image": image, "timeout_s": 300}

    def submit(name: str, command: str, gpu_count: int) -> str:
        body = {**spec, "name": name, "command": command, "gpu_count": gpu_count}
        return str(api.call("POST", "/jobs", body)["id"])

    first = submit("takes every GPU and succeeds", SUCCEEDS, free)
    waits = ("queued", "starting")
    until(lambda: api.job(first)["status"] not in waits, "job 1 to run")
    if api.job(first)["status"] != "running":
        show(api, 1, first)
        return False
    second = submit("fails with exit code 3", FAILS, 0)
    third = submit("waits for a GPU", WAITS, 1)
    reason = until(lambda: api.job(third)["wait_reason"], "a reason why job 3 waits")
    say(f"\nJob 3 waits: {reason}. {api.job(third)['wait_text']}")
    ended = [show(api, n, i) for n, i in enumerate((first, second, third), start=1)]
    files = api.call("GET", f"/jobs/{first}/artifact")["files"]
    say("\nJob 1 left " + ", ".join(f"{f['path']} ({f['size']} bytes)" for f in files))
    seen = [(job["status"], job["exit_code"]) for job in ended]
    return seen == [("succeeded", 0), ("failed", 3), ("succeeded", 0)] and bool(files)


def show(api: Api, number: int, job_id: str) -> dict[str, Any]:
    ended = ("succeeded", "failed", "cancelled")
    until(lambda: api.job(job_id)["status"] in ended, f"job {number} to end")
    job = api.job(job_id)
    say(f"\nJob {number}, {job['name']}: {job['status']}. {job['reason_text']}")
    for line in api.call("GET", f"/jobs/{job_id}/logs").splitlines():
        say(f"    {line}")
    return job


def stop_jobs(api: Api) -> None:
    """Nothing of the demo outlives it."""
    live = "/jobs?status=queued&status=starting&status=running&limit=200"
    for job in api.call("GET", live)["results"]:
        api.call("POST", f"/jobs/{job['id']}/cancel")
    until(lambda: not api.call("GET", live)["results"], "the jobs to stop")


# --- All together --------------------------------------------------------------------


def told(
    base_url: str, accounts: dict[str, dict[str, str]], machine: Machine, again: str
) -> None:
    say("\n".join(machine.notes))
    say(f"\n  Pages   {base_url}/\n  API     {base_url}/api/v1/docs")
    say(f"  Admin   {base_url}/admin/\n")
    for role, account in accounts.items():
        word = f"as before, in {again}" if again else account["password"]
        say(f"  {role:8}  {account['email']}  password {word}")


def write_demo_json(path: Path, content: dict[str, Any]) -> None:
    part = path.with_suffix(".part")
    part.unlink(missing_ok=True)
    part.touch(mode=0o600)
    part.write_text(json.dumps(content, indent=2))
    part.replace(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--data", type=Path, default=ROOT / "var" / "demo")
    parser.add_argument("--once", action="store_true")
    asked = parser.parse_args()
    data, base_url = asked.data.resolve(), f"http://127.0.0.1:{asked.port}"
    check_port(asked.port)
    data.mkdir(parents=True, exist_ok=True)
    data.chmod(0o711)
    os.umask(0o027)
    machine = look_at_machine()
    env = environment(data, machine)
    manage(env, "migrate", "-v0")
    manage(env, "collectstatic", "-v0", "--noinput")
    written = data / "demo.json"
    # Generated passwords are shown once.
    again = str(written) if written.exists() else ""
    accounts = make_accounts(env, written)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt), processes(env, data, asked.port):
        until(lambda: answers(base_url), "the web server")
        facts = {"runner": machine.runner, "inventory": machine.inventory}
        facts |= {"base_url": base_url, "image": machine.image}
        write_demo_json(written, {**facts, **accounts})
        told(base_url, accounts, machine, again)
        return serve(base_url, accounts, machine, once=asked.once)
    return 130 if asked.once else 0


def serve(
    base_url: str, accounts: dict[str, dict[str, str]], machine: Machine, *, once: bool
) -> int:
    try:
        went_well = sample_jobs(Api(base_url, accounts["user"]), machine.image)
        say("\nAll three went as they should." if went_well else "\nThat went wrong.")
        if once:
            return 0 if went_well else 1
        say(f"Serving {base_url} until Ctrl-C.")
        signal.pause()
        return 0
    finally:
        say("Stopping.")
        # A new login: the demo may have run for longer than a token is good for.
        stop_jobs(Api(base_url, accounts["operator"]))


if __name__ == "__main__":
    sys.exit(main())
