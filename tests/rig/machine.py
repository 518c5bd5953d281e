"""A machine whose GPUs are files: what the hook and the fake NVML library read."""

import atexit
import functools
import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

RIG = Path(__file__).resolve().parent
BIN = RIG / "bin"
# Not the indices, so that a mix-up of index and minor is seen.
MINORS = (0, 1, 3, 2)
MODELS = (
    ("NVIDIA GeForce RTX 3090", 24_576, 265),
    ("NVIDIA RTX A6000", 49_140, 454),
)
NOT_SUPPORTED = 3
UNKNOWN = 999


@dataclass(frozen=True, slots=True, kw_only=True)
class StandInGpu:
    index: int
    uuid: str
    minor: int
    name: str
    total_mb: int
    reserved_mb: int

    @property
    def pci_bus_id(self) -> str:
        return f"00000000:{self.index + 1:02X}:00.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuStart:
    at: float
    container_id: str
    uuids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StandInInstance:
    """A MIG instance: a part of a GPU that is one of its own."""

    slot: int
    uuid: str
    name: str
    total_mb: int
    reserved_mb: int


@dataclass(slots=True)
class _Use:
    used_mb: int = 0
    processes: list[str] = field(default_factory=list)
    directives: list[str] = field(default_factory=list)


def _stand_in_gpu(index: int) -> StandInGpu:
    name, total_mb, reserved_mb = MODELS[index // 2 % len(MODELS)]
    return StandInGpu(
        index=index,
        uuid=f"GPU-{index:08d}-0000-4000-8000-{index:012d}",
        minor=MINORS[index] if index < len(MINORS) else index,
        name=name,
        total_mb=total_mb,
        reserved_mb=reserved_mb,
    )


@functools.cache
def nvml_library_folder() -> Path:
    """A folder with the compiled libnvidia-ml.so.1, for LD_LIBRARY_PATH."""
    folder = Path(tempfile.mkdtemp(prefix="gpujobs-nvml-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    source, library = RIG / "libnvidia-ml.c", folder / "libnvidia-ml.so.1"
    flags = ["-Wall", "-Wextra", "-Werror", "-Wno-stringop-truncation", "-O1"]
    subprocess.run(
        ["gcc", *flags, "-shared", "-fPIC", "-o", library, source], check=True
    )
    return folder


class StandInMachine:
    """Every change is seen by the next NVML call and the next container start."""

    def __init__(self, folder: Path, gpus: int = 4) -> None:
        self.folder = folder
        self.gpus = [_stand_in_gpu(index) for index in range(gpus)]
        self._log = folder / "starts.log"
        self._fault = folder / "fault"
        self.reset()

    @property
    def uuids(self) -> list[str]:
        return [gpu.uuid for gpu in self.gpus]

    def env(self) -> dict[str, str]:
        """What a program needs to see this machine, beside its own environment."""
        return {
            "LD_LIBRARY_PATH": str(nvml_library_folder()),
            "FAKE_NVML_FILE": str(self.folder / "nvml.txt"),
            "FAKE_GPUS_FILE": str(self.folder / "gpus.json"),
            "FAKE_GPUS_LOG": str(self._log),
            "FAKE_GPUS_FAULT": str(self._fault),
        }

    def reset(self) -> None:
        """Back to idle GPUs, a driver in order and an empty log of starts."""
        self._use = {uuid: _Use() for uuid in self.uuids}
        self._instances: dict[str, list[StandInInstance]] = {}
        self._directives: list[str] = []
        self._fault.unlink(missing_ok=True)
        self._replace("starts.log", "")
        table = [
            {"index": gpu.index, "uuid": gpu.uuid, "minor": gpu.minor}
            for gpu in self.gpus
        ]
        self._replace("gpus.json", json.dumps(table))
        self._write_nvml()

    def split(self, uuid: str, sizes: dict[int, int]) -> list[StandInInstance]:
        """Turn MIG mode on, with an instance of so many MiB in each slot named."""
        [gpu] = [gpu for gpu in self.gpus if gpu.uuid == uuid]
        made = [
            StandInInstance(
                slot=slot,
                uuid=f"MIG-{gpu.index:08d}-0000-4000-8000-{slot:012d}",
                name=f"{gpu.name} MIG {total_mb // 1024}gb",
                total_mb=total_mb,
                reserved_mb=12,
            )
            for slot, total_mb in sizes.items()
        ]
        self._instances[uuid] = made
        self._use |= {instance.uuid: _Use() for instance in made}
        self.direct(uuid, "mig_mode 1")
        return made

    def direct(self, uuid: str, line: str) -> None:
        """A line of the file that libnvidia-ml.c reads, about this GPU."""
        self._use[uuid].directives.append(line)
        self._write_nvml()

    def set_used(self, uuid: str, used_mb: int) -> None:
        self._use[uuid].used_mb = used_mb
        self._write_nvml()

    def add_process(
        self, uuid: str, pid: int, used_mb: int | None, kind: str = "compute"
    ) -> None:
        """`kind` is compute or graphics; the memory is not added to what is used."""
        size = "N/A" if used_mb is None else str(used_mb)
        self._use[uuid].processes.append(f"{kind} {pid} {size}")
        self._write_nvml()

    def clear_processes(self) -> None:
        for use in self._use.values():
            use.processes.clear()
        self._write_nvml()

    def hang(self) -> None:
        self._direct(["hang"])

    def crash(self) -> None:
        self._direct(["crash"])

    def break_driver(self, text: str) -> None:
        """Starts of containers with GPUs fail with this text, and so does NVML."""
        self._replace("fault", text)
        self._direct([f"driver_fault {UNKNOWN}"])

    def break_hook(self, text: str) -> None:
        """Starts of containers with GPUs fail with this text; NVML is in order."""
        self._replace("fault", text)

    def mend_hook(self) -> None:
        self._fault.unlink(missing_ok=True)

    def mend_driver(self) -> None:
        """Ends a hang, a crash and a broken driver; a lost GPU stays lost."""
        self._fault.unlink(missing_ok=True)
        self._direct([])

    def lose(self, uuid: str) -> None:
        self.direct(uuid, "lost")

    def not_supported(self, uuid: str, field: str) -> None:
        self.fails(uuid, field, NOT_SUPPORTED)

    def fails(self, uuid: str, field: str, code: int = UNKNOWN) -> None:
        """`field` is a name that libnvidia-ml.c gives to ASK."""
        self.direct(uuid, f"fails {field} {code}")

    def link(self, uuid: str, bus_id: str) -> None:
        self.direct(uuid, f"link {bus_id}")

    def starts(self) -> list[GpuStart]:
        """Every start of a container with GPUs, written down by the hook itself."""
        lines = [json.loads(line) for line in self._log.read_text().splitlines()]
        return [GpuStart(**{**line, "uuids": tuple(line["uuids"])}) for line in lines]

    def _direct(self, directives: list[str]) -> None:
        self._directives = directives
        self._write_nvml()

    def _write_nvml(self) -> None:
        lines = [*self._directives]
        for gpu in self.gpus:
            lines += [f"gpu {gpu.uuid}", f"bus {gpu.pci_bus_id}"]
            lines += self._told(gpu)
            lines += ["utilisation 7", "temperature 41", "power_mw 25400"]
            for instance in self._instances.get(gpu.uuid, []):
                lines.append(f"mig {instance.slot} {instance.uuid}")
                lines += self._told(instance)
        self._replace("nvml.txt", "\n".join(lines) + "\n")

    def _told(self, gpu: StandInGpu | StandInInstance) -> list[str]:
        use = self._use[gpu.uuid]
        return [
            f"name {gpu.name}",
            f"total_mb {gpu.total_mb}",
            f"reserved_mb {gpu.reserved_mb}",
            f"used_mb {use.used_mb}",
            *use.processes,
            *use.directives,
        ]

    def _replace(self, name: str, text: str) -> None:
        draft = self.folder / f".{name}"
        draft.write_text(text)
        os.replace(draft, self.folder / name)
