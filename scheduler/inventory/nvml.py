"""NVIDIA's GPUs, asked through NVML in a child process.

A call into the driver can hang for ever, and nothing in the same process can end it.
So this module, run as a program, asks in a child and answers the questions on its
stdin with one line of JSON each.
"""

import functools
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import pynvml

from scheduler.inventory.base import (
    Device,
    DeviceProcess,
    DeviceSample,
    InventoryFault,
    InventoryUnavailable,
)
from scheduler.inventory.child import Child, Row

MIB = 1024 * 1024


class NvmlInventory:
    """The GPUs of this host; a thread's question waits for the one before it."""

    def __init__(
        self, deadline_s: float = 5.0, env: Mapping[str, str] | None = None
    ) -> None:
        self._deadline_s = deadline_s
        self._env = env
        self._child: Child | None = None
        self._lock = threading.Lock()

    def devices(self) -> list[Device]:
        return [
            Device(**{**row, "nvlink_peers": tuple(row["nvlink_peers"])})
            for row in self._ask("devices")
        ]

    def sample(self) -> list[DeviceSample]:
        return [
            DeviceSample(
                **{
                    **row,
                    "processes": tuple(
                        DeviceProcess(**each) for each in row["processes"]
                    ),
                }
            )
            for row in self._ask("sample")
        ]

    def close(self) -> None:
        with self._lock:
            if self._child is not None:
                self._child.close()
            self._child = None

    def _ask(self, question: str) -> list[Row]:
        with self._lock:
            child = self._child or Child("scheduler.inventory.nvml", self._env)
            # Kept only if it answers: else it may hang, owe an answer, or hold the
            # library of a driver that was replaced since.
            self._child = None
            try:
                rows = child.ask(question, self._deadline_s)
            except InventoryUnavailable:
                child.kill()
                raise
            self._child = child
            return rows


def main() -> None:
    # A library that writes to stdout must not garble the answers.
    with os.fdopen(os.dup(1), "w", buffering=1) as answers:
        os.dup2(2, 1)
        answers.write("started\n")
        for line in sys.stdin:
            answers.write(json.dumps(_answer(line.strip())) + "\n")


def _answer(question: str) -> Row:
    try:
        _initialise()
        rows = _devices() if question == "devices" else _samples()
    except pynvml.NVMLError_LibraryNotFound:
        return {"fault": InventoryFault.LIBRARY_MISSING, "detail": ""}
    except pynvml.NVMLError as error:
        return {"fault": InventoryFault.DRIVER_FAULT, "detail": f"NVML: {error}"}
    return {"rows": [asdict(row) for row in rows]}


@functools.cache
def _initialise() -> None:
    pynvml.nvmlInit()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A whole card, or in MIG mode one of its instances: a GPU of its own."""

    index: int
    uuid: str
    handle: Any
    card: Any


def _found() -> Iterator[_Found]:
    """Each GPU that can be asked. A card in MIG mode itself runs nothing."""
    for index in range(pynvml.nvmlDeviceGetCount()):
        with suppress(pynvml.NVMLError):
            card = pynvml.nvmlDeviceGetHandleByIndex(index)
            if _is_split(card):
                yield from _instances(index, card)
            else:
                uuid = pynvml.nvmlDeviceGetUUID(card)
                yield _Found(index=index, uuid=uuid, handle=card, card=card)


def _is_split(card: Any) -> bool:
    try:
        current, _ = pynvml.nvmlDeviceGetMigMode(card)
    except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound):
        return False
    return bool(current == pynvml.NVML_DEVICE_MIG_ENABLE)


def _instances(index: int, card: Any) -> Iterator[_Found]:
    for slot in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(card)):
        with suppress(pynvml.NVMLError):  # most slots are empty
            handle = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(card, slot)
            uuid = pynvml.nvmlDeviceGetUUID(handle)
            # Shown only, and unlike that of any card: 203 is slot 3 of GPU 1.
            shown = 100 * (index + 1) + slot
            yield _Found(index=shown, uuid=uuid, handle=handle, card=card)


def _devices() -> list[Device]:
    found = list(_found())
    # An instance reaches no other GPU, whatever links its card has.
    whole = [each for each in found if each.handle is each.card]
    peers = _nvlink_peers({each.uuid: each.handle for each in whole})
    devices = []
    for each in found:
        with suppress(pynvml.NVMLError):
            devices.append(_device(each, peers.get(each.uuid, ())))
    return devices


def _device(found: _Found, peers: tuple[str, ...]) -> Device:
    total, reserved, _ = _memory(found.handle)
    return Device(
        uuid=found.uuid,
        index=found.index,
        name=_name(found),
        total_mb=total // MIB,
        reserved_mb=_whole_mb(reserved),
        pci_bus_id=_bus_id(pynvml.nvmlDeviceGetPciInfo(found.card)),
        nvlink_peers=peers,
        driver=str(pynvml.nvmlSystemGetDriverVersion()),
    )


def _name(found: _Found) -> str:
    with suppress(pynvml.NVMLError):
        return str(pynvml.nvmlDeviceGetName(found.handle))
    return f"{pynvml.nvmlDeviceGetName(found.card)} MIG"


def _samples() -> list[DeviceSample]:
    samples = []
    for found in _found():
        with suppress(pynvml.NVMLError):
            samples.append(_sample(found.uuid, found.handle))
    return samples


def _sample(uuid: str, handle: Any) -> DeviceSample:
    try:
        used_mb = _whole_mb(_memory(handle)[2])
    except pynvml.NVMLError_NotSupported:
        used_mb = None
    return DeviceSample(
        uuid=uuid,
        used_mb=used_mb,
        utilisation=_figure(lambda: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu),
        temperature=_figure(lambda: _temperature(handle)),
        power_w=_figure(lambda: round(pynvml.nvmlDeviceGetPowerUsage(handle) / 1000)),
        processes=_processes(handle),
    )


def _figure(ask: Callable[[], int]) -> int | None:
    try:
        return ask()
    except pynvml.NVMLError:
        return None


def _memory(handle: Any) -> tuple[int, int, int]:
    """Bytes in all, reserved by the driver, used.

    Drivers before 510 can not tell the reserve apart: it is part of what is used then.
    """
    try:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    except (
        pynvml.NVMLError_FunctionNotFound,
        pynvml.NVMLError_NotSupported,
        pynvml.NVMLError_ArgumentVersionMismatch,
    ):
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        return memory.total, 0, memory.used
    return memory.total, memory.reserved, memory.used


def _whole_mb(size: int) -> int:
    """Rounded up, since memory that is taken in part is not free."""
    return -(-size // MIB)


def _temperature(handle: Any) -> int:
    sensor = pynvml.NVML_TEMPERATURE_GPU
    try:
        reading: int = pynvml.nvmlDeviceGetTemperatureV(handle, sensor)
    except pynvml.NVMLError_FunctionNotFound:
        reading = pynvml.nvmlDeviceGetTemperature(handle, sensor)
    return reading


def _processes(handle: Any) -> tuple[DeviceProcess, ...]:
    """By pid; for one that computes and draws both lists tell the same memory."""
    used: dict[int, int | None] = {}
    for listing in (
        pynvml.nvmlDeviceGetComputeRunningProcesses_v3,
        pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3,
    ):
        with suppress(pynvml.NVMLError):
            for process in listing(handle):
                known = [used.get(process.pid), _process_mb(process)]
                used[process.pid] = max(
                    (size for size in known if size is not None), default=None
                )
    return tuple(DeviceProcess(pid=pid, used_mb=mb) for pid, mb in sorted(used.items()))


def _process_mb(process: Any) -> int | None:
    return None if process.usedGpuMemory is None else _whole_mb(process.usedGpuMemory)


def _bus_id(pci: Any) -> str:
    bus_id: str = pci.busId.decode() if isinstance(pci.busId, bytes) else pci.busId
    return bus_id.upper()


def _nvlink_peers(handles: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """UUIDs joined by a link, or by links to one and the same switch."""
    buses = {}
    for uuid, handle in handles.items():
        with suppress(pynvml.NVMLError):
            buses[uuid] = _bus_id(pynvml.nvmlDeviceGetPciInfo(handle))
    remotes = {uuid: _remote_buses(handles[uuid]) for uuid in buses}
    gpu_buses = set(buses.values())
    return {
        uuid: tuple(
            other
            for other in buses
            if other != uuid
            and (
                buses[other] in remotes[uuid]
                or (remotes[uuid] & remotes[other]) - gpu_buses
            )
        )
        for uuid in buses
    }


def _remote_buses(handle: Any) -> set[str]:
    buses = set()
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        with suppress(pynvml.NVMLError):
            if pynvml.nvmlDeviceGetNvLinkState(handle, link):
                remote = pynvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link)
                buses.add(_bus_id(remote))
    return buses


if __name__ == "__main__":
    main()
