"""Run a command with a PostgreSQL of its own: python -m tests.postgres COMMAND...

The server lives in a temporary folder, listens on a free port of loopback alone, and
is gone afterwards; an installed cluster is not touched. Its programs refuse root, so that as
root they run as the user postgres.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

FAST = "-c fsync=off -c full_page_writes=off -c listen_addresses=127.0.0.1"


def programs() -> Path | None:
    """The folder of initdb and pg_ctl, the newest if there are several."""
    on_path = shutil.which("initdb")
    if on_path:
        return Path(on_path).parent
    found = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    newest = max(found, key=lambda path: int(path.parts[-3]), default=None)
    return newest.parent if newest else None


def _as_postgres() -> list[str]:
    if os.geteuid() != 0:
        return []
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def temporary_server() -> Iterator[str]:
    """The URL of a database on a server that ends with the context."""
    binaries = programs()
    assert binaries is not None, "PostgreSQL's server programs are not installed"
    folder = Path(tempfile.mkdtemp(prefix="gpujobs-pg-", dir="/tmp"))
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres", "postgres")
    data = folder / "data"

    def run(program: str, *arguments: str) -> None:
        command = [*_as_postgres(), str(binaries / program), "-D", str(data)]
        subprocess.run(
            [*command, *arguments], check=True, cwd=folder, stdout=subprocess.DEVNULL
        )

    port = _free_port()
    try:
        run("initdb", "-U", "gpujobs", "-A", "trust", "-E", "UTF8", "--no-sync")
        run(
            "pg_ctl",
            "-w",
            "-l",
            f"{folder}/log",
            "-o",
            f"{FAST} -k {folder} -p {port}",
            "start",
        )
        yield f"postgres://gpujobs@127.0.0.1:{port}/postgres"
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):
            run("pg_ctl", "-w", "-m", "immediate", "stop")
        shutil.rmtree(folder)


def main() -> int:
    with temporary_server() as url:
        child = subprocess.Popen(sys.argv[1:], env={**os.environ, "DATABASE_URL": url})
        signal.signal(signal.SIGTERM, lambda *_: child.terminate())
        return child.wait()


if __name__ == "__main__":
    sys.exit(main())
