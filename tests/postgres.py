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


class Server:
    """A server of its own, which can be stopped as by a crash and started again."""

    def __init__(self) -> None:
        binaries = programs()
        assert binaries is not None, "PostgreSQL's server programs are not installed"
        self._binaries = binaries
        self._folder = Path(tempfile.mkdtemp(prefix="gpujobs-pg-", dir="/tmp"))
        if os.geteuid() == 0:
            shutil.chown(self._folder, "postgres", "postgres")
        self._port = _free_port()
        self.url = f"postgres://gpujobs@127.0.0.1:{self._port}/postgres"
        self._run("initdb", "-U", "gpujobs", "-A", "trust", "-E", "UTF8", "--no-sync")

    def _run(self, program: str, *arguments: str) -> None:
        data = ["-D", str(self._folder / "data")]
        subprocess.run(
            [*_as_postgres(), str(self._binaries / program), *data, *arguments],
            check=True,
            cwd=self._folder,
            stdout=subprocess.DEVNULL,
        )

    def start(self) -> None:
        options = f"{FAST} -k {self._folder} -p {self._port}"
        log = f"{self._folder}/log"
        self._run("pg_ctl", "-w", "-l", log, "-o", options, "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-w", "-m", "immediate", "stop")

    def stand_still(self) -> None:
        """It neither answers nor goes away, as on a disk that hangs."""
        self._send(signal.SIGSTOP)

    def go_on(self) -> None:
        self._send(signal.SIGCONT)

    def _send(self, number: signal.Signals) -> None:
        main = (self._folder / "data/postmaster.pid").read_text().split()[0]
        os.kill(int(main), number)
        for child in Path(f"/proc/{main}/task/{main}/children").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(child), number)

    def destroy(self) -> None:
        with contextlib.suppress(subprocess.CalledProcessError):
            self.stop()
        shutil.rmtree(self._folder)


@contextlib.contextmanager
def temporary_server() -> Iterator[Server]:
    server = Server()
    try:
        server.start()
        yield server
    finally:
        server.destroy()


def main() -> int:
    with temporary_server() as server:
        env = {**os.environ, "DATABASE_URL": server.url}
        child = subprocess.Popen(sys.argv[1:], env=env)
        signal.signal(signal.SIGTERM, lambda *_: child.terminate())
        return child.wait()


if __name__ == "__main__":
    sys.exit(main())
