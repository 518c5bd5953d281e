"""The whole product on a machine of its own, which can lose its power."""

import os
import signal
import subprocess
import tempfile
import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from time import sleep

from tests.chaos.processes import Cluster, descendants
from tests.chaos.programs import WitnessFolder
from tests.e2e.stack import Stack
from tests.rig.daemon import PrivateDaemon
from tests.rig.fixtures import IMAGE
from tests.rig.machine import StandInMachine

SERVICES = ("web", "cluster", "supervisor")
BOOT_ID = "/proc/sys/kernel/random/boot_id"


class Product(Stack):
    """Its processes read another boot id than the host's: a file lies over the
    kernel's, in a mount namespace of each process. The product knows nothing of it."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        folder.mkdir()
        self._boot = folder / "boot_id"
        self.new_boot()
        # What is mounted below the folder the daemon sees too, and nothing else.
        subprocess.run(["mount", "--bind", folder, folder], check=True)
        subprocess.run(["mount", "--make-shared", folder], check=True)
        over = 'mount --make-rprivate /proc && mount --bind "$0" %s && exec "$@"'
        own = ("unshare", "-m", "--propagation", "unchanged", "sh", "-c")
        unshare = (*own, over % BOOT_ID)
        self.prefix = (*unshare, str(self._boot))
        super().__init__(folder, env)

    def destroy(self) -> None:
        super().destroy()
        subprocess.run(["umount", "-l", self.folder], check=True)

    def new_boot(self) -> None:
        # The file itself: what is mounted already would not follow a rename.
        self._boot.write_text(f"{uuid.uuid4()}\n")

    def command(self, kind: str) -> list[str]:
        command = super().command(kind)
        if kind == "web":
            # One that is killed leaves another.
            command += ["--workers", "2", "--graceful-timeout", "5"]
        return command

    def pid(self, name: str) -> int:
        return self._processes[name].pid

    def is_dead(self, name: str) -> bool:
        return self._processes[name].poll() is not None

    def strays(self) -> list[int]:
        """Processes of it that no service answers for any more."""
        mark = f"GPUJOBS_DATA_ROOT={self.data}\0".encode()
        pids = set(map(int, filter(str.isdigit, os.listdir("/proc"))))
        return sorted(pid for pid in pids - set(self.tree()) if mark in _env_of(pid))

    def tree(self) -> list[int]:
        """Every process of it."""
        roots = [process.pid for process in self._processes.values()]
        return roots + [pid for root in roots for pid in descendants(root)]


class Machine:
    """`guard` is systemd: a service that ended is started again after a little while."""

    def __init__(self, folder: Path) -> None:
        (folder / "gpus").mkdir()
        self.gpus = StandInMachine(folder / "gpus")
        self.daemon = PrivateDaemon(self.gpus, ("--live-restore",))
        self.witness = WitnessFolder(folder / "witness", self.gpus)
        # Held by whoever ends or starts the machine's programs.
        self.lock = threading.RLock()
        self.restarts = 0
        self.cluster = Cluster()
        env = self.daemon.product_env(self.witness.folder)
        self.product = Product(folder / "product", env)

    def start(self) -> None:
        self.daemon.start()
        self.daemon.import_image(IMAGE)
        self.product.start()

    def guard(self, is_over: threading.Event, pauses: Iterator[float]) -> None:
        """A thread, until it is over."""
        while not is_over.wait(0.05):
            for name in SERVICES:
                with self.lock:  # not while it reboots
                    is_dead = self.product.is_dead(name)
                if is_dead:
                    sleep(next(pauses))
                    with self.lock:
                        if self.product.is_dead(name):
                            self.product.spawn(name)
                            self.restarts += 1

    def kill_daemon(self, down_s: float) -> None:
        with self.lock:
            self.daemon.kill()
            sleep(down_s)
            self.daemon.start()

    def reboot(self, down_s: float) -> None:
        with self.lock:
            for pid in self.product.tree():
                kill(pid)
            for name in SERVICES:
                self.product.kill(name)
            self._kill_strays()
            self.daemon.lose_power()
            self.product.new_boot()
            sleep(down_s)
            self.daemon.start()
            for name in SERVICES:
                self.product.spawn(name)

    def destroy(self) -> None:
        """Whatever fails of it, the rest is done."""
        with ExitStack() as last_first:
            last_first.callback(self._kill_strays)
            last_first.callback(self.daemon.destroy)
            last_first.callback(self.product.destroy)

    def _kill_strays(self) -> None:
        for pid in self.product.strays():
            kill(pid)


def kill(pid: int, sig: signal.Signals = signal.SIGKILL) -> bool:
    """False if it was gone before."""
    try:
        os.kill(pid, sig)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def chaos_machine() -> Iterator[Machine]:
    with tempfile.TemporaryDirectory(prefix="gpujobs-chaos-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        machine = Machine(Path(folder))
        try:
            machine.start()
            yield machine
        finally:
            machine.destroy()


def _env_of(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes()
    return b""
