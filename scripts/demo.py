"""`make demo`: the whole product on this machine, with four sample jobs.

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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import requests
from demo_jobs import Api, sample_jobs, say, stop_jobs, until
from demo_machine import Machine, look_at_machine
from demo_models import policies

ROOT = Path(__file__).resolve().parent.parent
MANAGE = [sys.executable, str(ROOT / "manage.py")]
USER, OPERATOR = "demo@example.org", "operator@example.org"


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
        "GPUJOBS_POLICY": str(data / "policy.toml"),
        "GPUJOBS_RUNNER": machine.runner,
        "GPUJOBS_INVENTORY": machine.inventory,
        "GPUJOBS_DOCKER_URL": machine.docker_url,
        "GPUJOBS_NETWORK": machine.network,
        "GPUJOBS_TLS": "0",
        "GPUJOBS_REGISTRATION": "open",
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
    # Whoever polls every two seconds would meet the usual end of a connection.
    gunicorn += ["--no-control-socket", "--keep-alive", "75"]
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


def answers(base_url: str) -> bool:
    with contextlib.suppress(requests.ConnectionError):
        return requests.get(f"{base_url}/health", timeout=5).ok
    return False


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
    for file in policies(machine, data):
        manage(env, "policy", "load", str(file), "--activate")
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
        say("\nAll went as they should." if went_well else "\nThat went wrong.")
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
