"""The simulated inventory: GPUs of no machine, told the same way every time."""

from scheduler.inventory.base import Inventory
from scheduler.inventory.simulated import SimulatedInventory


def test_a_node_has_four_idle_gpus_of_two_sizes() -> None:
    inventory: Inventory = SimulatedInventory("gauss")

    devices = inventory.devices()

    assert [device.index for device in devices] == [0, 1, 2, 3]
    assert [device.total_mb for device in devices] == [24_576, 24_576, 49_140, 49_140]
    assert all(0 < device.reserved_mb < 1_024 for device in devices)
    assert len({device.pci_bus_id for device in devices}) == 4


def test_uuids_are_stable_for_a_node_and_differ_between_nodes() -> None:
    def uuids(node: str) -> list[str]:
        return [device.uuid for device in SimulatedInventory(node).devices()]

    assert uuids("gauss") == uuids("gauss")
    assert len({*uuids("gauss"), *uuids("noether")}) == 8
    assert all(uuid.startswith("GPU-") for uuid in uuids("gauss"))


def test_every_gpu_has_a_sample_without_foreign_use() -> None:
    inventory = SimulatedInventory("gauss")

    samples = inventory.sample()

    assert [s.uuid for s in samples] == [d.uuid for d in inventory.devices()]
    assert {(s.used_mb, s.utilisation, s.processes) for s in samples} == {(0, 0, ())}
    inventory.close()
