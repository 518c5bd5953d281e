"""GPUs that do not exist, for a first look without any: a setting asks for them."""

import uuid

from scheduler.inventory.base import Device, DeviceSample

MODELS = (
    ("NVIDIA GeForce RTX 3090", 24_576, 265),
    ("NVIDIA GeForce RTX 3090", 24_576, 265),
    ("NVIDIA RTX A6000", 49_140, 454),
    ("NVIDIA RTX A6000", 49_140, 454),
)
IDLE_TEMPERATURE = 30
IDLE_POWER_W = 20


class SimulatedInventory:
    """Four idle GPUs of two sizes, with the same UUIDs whenever the node is the same."""

    def __init__(self, node: str) -> None:
        self._devices = [
            Device(
                uuid=f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{index}.{node}')}",
                index=index,
                name=name,
                total_mb=total_mb,
                reserved_mb=reserved_mb,
                pci_bus_id=f"00000000:{index + 1:02X}:00.0",
            )
            for index, (name, total_mb, reserved_mb) in enumerate(MODELS)
        ]

    def devices(self) -> list[Device]:
        return list(self._devices)

    def sample(self) -> list[DeviceSample]:
        return [
            DeviceSample(
                uuid=device.uuid,
                used_mb=0,
                utilisation=0,
                temperature=IDLE_TEMPERATURE,
                power_w=IDLE_POWER_W,
                processes=(),
            )
            for device in self._devices
        ]

    def close(self) -> None:
        """Nothing is held open."""
