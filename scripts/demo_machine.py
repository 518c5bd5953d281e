"""What this machine offers a demo: Docker or not, GPUs or not, and an image."""

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import docker
from docker.errors import DockerException
from docker.types import DeviceRequest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scheduler.inventory.base import InventoryUnavailable
from scheduler.inventory.nvml import NvmlInventory

IMAGE = "gpujobs-demo:1"
# What the sample jobs and a first look round need; sh first.
PROGRAMS = (
    "sh",
    "cat",
    "date",
    "echo",
    "env",
    "grep",
    "id",
    "ls",
    "seq",
    "sleep",
    "true",
)


@dataclass
class Machine:
    runner: str = "docker"
    inventory: str = "simulated"
    docker_url: str = "unix:///var/run/docker.sock"
    network: str = "bridge"
    image: str = IMAGE
    notes: list[str] = field(default_factory=list)


def look_at_machine() -> Machine:
    machine = Machine(docker_url=os.environ.get("DOCKER_HOST", Machine.docker_url))
    gpu = _first_gpu(machine)
    try:
        with contextlib.closing(_client(machine.docker_url)) as client:
            _prepare_docker(client, machine, gpu)
    except (DockerException, OSError) as error:
        machine.runner = "process"
        why = _why_no_docker(machine.docker_url, error)
        machine.notes.insert(
            0, f"{why}, so jobs run as plain processes with no isolation."
        )
    if machine.runner == "docker":
        machine.notes.insert(0, "Jobs run in Docker containers.")
    return machine


def _why_no_docker(url: str, error: Exception) -> str:
    path = Path(url.removeprefix("unix://"))
    if url.startswith("unix://") and not path.exists():
        return f"There is no Docker daemon at {path}"
    if "Permission denied" in str(error):
        return f"This user may not use the Docker daemon at {path}"
    return f"Docker can not be used ({_short(error)})"


def _client(url: str) -> docker.DockerClient:
    return docker.DockerClient(base_url=url, timeout=60)


def _first_gpu(machine: Machine) -> str:
    """The UUID of a GPU of this machine that nobody uses; empty if there is none."""
    with contextlib.closing(NvmlInventory()) as inventory:
        try:
            samples = inventory.sample()
            idle = [s.uuid for s in samples if (s.used_mb or 0) < 512]
        except InventoryUnavailable as unavailable:
            machine.notes.append(f"The GPUs are simulated. ({_short(unavailable)})")
            return ""
    if not idle:
        machine.notes.append("The GPUs are simulated: every real one is in use.")
        return ""
    machine.inventory = "nvml"
    machine.notes.append("The GPUs are real ones, seen through NVML.")
    return idle[0]


def _prepare_docker(client: docker.DockerClient, machine: Machine, gpu: str) -> None:
    """Make the image from files of this machine: no registry need be reached."""
    client.ping()
    tar = _image_tar()
    client.api.import_image_from_data(tar, repository="gpujobs-demo", tag="1")
    networks = {network.name for network in client.networks.list()}
    machine.network = "bridge" if "bridge" in networks else "none"
    if gpu:
        _try_gpu(client, gpu)


def _try_gpu(client: docker.DockerClient, gpu: str) -> None:
    """Raises DockerException where the daemon can give no GPU to a container."""
    request = DeviceRequest(device_ids=[gpu], capabilities=[["gpu"]])
    client.containers.run(
        IMAGE, ["true"], remove=True, network_mode="none", device_requests=[request]
    )


def _image_tar() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        files = list(_files())
        # Each folder by itself: one that is not named may be made for root alone.
        above = {parent for _, target in files for parent in Path(target).parents}
        named = {str(path).lstrip("/") for path in above} | {"tmp", "etc", "proc"}
        for folder in sorted((named | {"sys", "dev"}) - {""}):
            entry = tarfile.TarInfo(folder)
            entry.type = tarfile.DIRTYPE
            entry.mode = 0o1777 if folder == "tmp" else 0o755
            tar.addfile(entry)
        for source, target in files:
            tar.add(Path(source).resolve(), target.lstrip("/"), recursive=False)
    return buffer.getvalue()


def _files() -> Iterator[tuple[str, str]]:
    """Programs of this machine with the libraries that ldd names for them."""
    libraries: set[str] = set()
    for name in PROGRAMS:
        program = shutil.which(name, path="/bin:/usr/bin")
        if program:
            yield program, f"/bin/{name}"
            libraries.update(_libraries(program))
    for library in sorted(libraries):
        yield library, library


def _libraries(program: str) -> set[str]:
    told = subprocess.run(
        ["ldd", program], capture_output=True, text=True, check=False
    ).stdout
    return set(re.findall(r"(/\S+) \(0x", told))


def _short(error: Exception) -> str:
    return str(error).splitlines()[0][:200]
