"""A real dockerd of the tests' own, beside whatever else runs on the machine."""

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import docker

from tests.rig.image import root_file_system
from tests.rig.machine import BIN, StandInMachine

DOCKERD = "/usr/sbin/dockerd"
NVIDIA_DEFAULT_RUNTIME = (
    "--add-runtime",
    f"nvidia={BIN / 'fake-nvidia-container-runtime'}",
    "--default-runtime",
    "nvidia",
)
CGROUPS = Path("/sys/fs/cgroup")
START_S = 60.0
STOP_S = 60.0
LEFTOVERS_S = 10.0


class PrivateDaemon:
    """dockerd with its own data, socket, containerd and cgroup, all named after it.

    Its containers need `network_mode="none"`, since it makes no bridge.
    """

    def __init__(self, machine: StandInMachine, extra_args: Sequence[str] = ()) -> None:
        # A short path: a socket's may have 107 bytes.
        self.folder = Path(tempfile.mkdtemp(prefix="gpujobs-rig-", dir="/tmp"))
        self.log = self.folder / "log"
        self.cgroup_parent = f"/{self.folder.name}"
        self.extra_args = tuple(extra_args)
        self._machine = machine
        self._env = {**os.environ, **machine.env()}
        self._env["PATH"] = f"{BIN}:{os.environ['PATH']}:/usr/sbin:/sbin"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def base_url(self) -> str:
        return f"unix://{self.folder}/docker.sock"

    def product_env(self, volumes: Path | None = None) -> dict[str, str]:
        """With what the product runs on this daemon and its machine; jobs may mount
        what is under `volumes`."""
        return {
            **self._machine.env(),
            "GPUJOBS_RUNNER": "docker",
            "GPUJOBS_INVENTORY": "nvml",
            "GPUJOBS_DOCKER_URL": self.base_url,
            "GPUJOBS_POLICY": str(self._policy(volumes)),
        }

    def _policy(self, volumes: Path | None) -> Path:
        path = self.folder / f"policy-{volumes.name if volumes else 'none'}.toml"
        images = json.dumps(["docker.io/*", "127.0.0.1:*", "localhost:*"])
        roots = json.dumps([str(volumes)] if volumes else [])
        named = {"shared": volumes, "declared": volumes / "declared"} if volumes else {}
        table = "[volumes]\n" if named else ""
        table += "".join(f"{k} = {json.dumps(str(v))}\n" for k, v in named.items())
        path.write_text(f"images = {images}\nwritable = {roots}\n{table}")
        return path

    @property
    def pid(self) -> int:
        assert self._process is not None, "this daemon is not running"
        return self._process.pid

    def client(self, timeout: float = 60) -> docker.DockerClient:
        return docker.DockerClient(base_url=self.base_url, timeout=timeout)

    def start(self) -> None:
        """Returns when it answers; may be called again after stop and kill."""
        self._remove_stale_pidfile("pid")
        self._remove_stale_pidfile("exec/containerd/containerd.pid")
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [DOCKERD, *self._arguments()],
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
        _wait_until(self._answers, START_S, self._story)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """As a crash would: containers and their shims stay."""
        self._end(signal.SIGKILL)

    def destroy(self) -> None:
        """Nothing of it is left: processes, mounts, cgroups, files."""
        # A program that ignores SIGTERM would hold up dockerd's end.
        self._kill_all(self.container_pids())
        self.stop()
        self._sweep()
        shutil.rmtree(self.folder)

    def lose_power(self) -> None:
        """As a reboot would: no process, no mount, and nothing of what is in /run."""
        self.kill()
        self._sweep()
        shutil.rmtree(self.folder / "exec")

    def _sweep(self) -> None:
        _wait_until(self._is_swept, LEFTOVERS_S, self._story)
        for mount in reversed(self._mounts()):
            subprocess.run(["umount", "-l", mount], check=True)

    def import_image(self, tag: str, changes: Sequence[str] = ()) -> None:
        """A busybox of 2 MB; `changes` are Dockerfile lines such as ENV."""
        repository, _, version = tag.rpartition(":")
        client = self.client()
        client.api.import_image_from_data(
            root_file_system(), repository=repository, tag=version, changes=[*changes]
        )
        client.close()

    def devices_cgroup(self, container_id: str) -> Path:
        return CGROUPS / "devices" / self.folder.name / container_id

    def container_pids(self) -> list[int]:
        """Processes in its containers' cgroups, even those Docker forgot."""
        return sorted(
            {
                int(pid)
                for cgroup in self._cgroups()
                for procs in cgroup.rglob("cgroup.procs")
                for pid in procs.read_text().split()
            }
        )

    def leftovers(self) -> list[int]:
        """Its containers' processes and whatever names its folder: shims, containerd."""
        named = [
            int(proc.name)
            for proc in Path("/proc").glob("[0-9]*")
            if str(self.folder) in _command_line(proc)
        ]
        return sorted({*named, *self.container_pids()} - {os.getpid()})

    def _arguments(self) -> list[str]:
        return [
            f"--data-root={self.folder}/data",
            f"--exec-root={self.folder}/exec",
            f"--pidfile={self.folder}/pid",
            f"--host={self.base_url}",
            f"--cgroup-parent={self.cgroup_parent}",
            "--bridge=none",
            "--iptables=false",
            "--ip6tables=false",
            *self.extra_args,
        ]

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._story()
        with suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(5)
            connection.connect(f"{self.folder}/docker.sock")
            connection.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            return b" 200 " in connection.recv(4096)
        return False

    def _end(self, sig: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(sig)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _remove_stale_pidfile(self, name: str) -> None:
        # After a kill -9 dockerd takes a zombie, or a stranger that was given the
        # same pid, for itself and does not start.
        path = self.folder / name
        with suppress(FileNotFoundError, ValueError):
            pid = int(path.read_text())
            _wait_until(lambda: not self._runs(pid), START_S, self._story)
            path.unlink()

    def _runs(self, pid: int) -> bool:
        # A zombie has no command line.
        return str(self.folder) in _command_line(Path(f"/proc/{pid}"))

    def _is_swept(self) -> bool:
        self._kill_all(self.leftovers())
        for cgroup in self._cgroups():
            _remove_cgroup(cgroup)
        return not self.leftovers() and not self._cgroups()

    def _kill_all(self, pids: Sequence[int]) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _mounts(self) -> list[str]:
        lines = Path("/proc/self/mounts").read_text().splitlines()
        targets = [line.split()[1] for line in lines]
        return [target for target in targets if target.startswith(f"{self.folder}/")]

    def _cgroups(self) -> list[Path]:
        folders = [CGROUPS / self.folder.name, *CGROUPS.glob(f"*/{self.folder.name}")]
        return [folder for folder in folders if folder.is_dir()]

    def _story(self) -> str:
        return f"dockerd {self.folder}:\n{self.log.read_text()[-3000:]}"


def _wait_until(
    is_so: Callable[[], bool], within_s: float, story: Callable[[], str]
) -> None:
    until = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < until, f"not within {within_s:g} s; {story()}"
        time.sleep(0.02)


def _command_line(proc: Path) -> str:
    try:
        return (proc / "cmdline").read_bytes().decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _remove_cgroup(folder: Path) -> None:
    for inner in (*sorted(folder.rglob("*/"), reverse=True), folder):
        # A process that was just killed keeps its cgroup for a moment.
        with suppress(OSError):
            inner.rmdir()
