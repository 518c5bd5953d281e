"""What an inventory answers: the GPUs of this host, and how they are used now."""

import enum
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    uuid: str
    index: int
    name: str
    total_mb: int
    reserved_mb: int
    pci_bus_id: str
    nvlink_peers: tuple[str, ...] = ()
    # Of the driver that answered; empty where there is none.
    driver: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceProcess:
    pid: int
    used_mb: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSample:
    """One GPU now; None where the driver gives no such figure.

    `used_mb` leaves out the driver's reserve. `utilisation` is percent,
    `temperature` degrees Celsius, `power_w` watts.
    """

    uuid: str
    used_mb: int | None
    utilisation: int | None
    temperature: int | None
    power_w: int | None
    processes: tuple[DeviceProcess, ...]


class InventoryFault(enum.StrEnum):
    LIBRARY_MISSING = "library_missing"
    DRIVER_FAULT = "driver_fault"
    TIMED_OUT = "timed_out"


ADVICE = {
    InventoryFault.LIBRARY_MISSING: (
        "NVIDIA's library libnvidia-ml.so.1 can not be loaded. Install the NVIDIA"
        " driver on this host, or choose the simulated inventory in the settings."
    ),
    InventoryFault.DRIVER_FAULT: (
        "The NVIDIA driver does not answer as it should. Run nvidia-smi on this host;"
        " after a driver update reload its kernel modules or reboot."
    ),
    InventoryFault.TIMED_OUT: (
        "The NVIDIA driver did not answer in time. Look for Xid errors in the kernel"
        " log (dmesg); a GPU that hangs needs a reset or a reboot of this host."
    ),
}


class InventoryUnavailable(Exception):
    """The host's GPUs could not be listed; the text says what to do about it."""

    def __init__(self, fault: InventoryFault, detail: str = "") -> None:
        self.fault = fault
        self.detail = detail
        super().__init__(f"{ADVICE[fault]} ({detail})" if detail else ADVICE[fault])


class Inventory(Protocol):
    """Both calls raise InventoryUnavailable when the host gives no answer at all.

    A GPU that can not be asked (lost, or its memory unreadable) is left out of the
    answer and the others stay in it, so a GPU that is known but absent from a list
    must get no new job.
    """

    def devices(self) -> list[Device]: ...

    def sample(self) -> list[DeviceSample]: ...

    def close(self) -> None: ...
