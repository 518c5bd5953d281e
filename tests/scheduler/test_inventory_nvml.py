"""The NVML inventory over a compiled stand-in for NVIDIA's library."""

import importlib.metadata
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler.inventory.base import (
    DeviceProcess,
    DeviceSample,
    InventoryFault,
    InventoryUnavailable,
)
from scheduler.inventory.child import Child
from scheduler.inventory.nvml import NvmlInventory
from tests.rig.machine import StandInMachine

FUNCTION_NOT_FOUND = 13
BOGUS_BUS = "00000000:FF:00.0"


@pytest.fixture
def machine(tmp_path: Path) -> StandInMachine:
    return StandInMachine(tmp_path)


@pytest.fixture
def inventory(machine: StandInMachine) -> Iterator[NvmlInventory]:
    inventory = NvmlInventory(deadline_s=2.0, env={**os.environ, **machine.env()})
    yield inventory
    inventory.close()


def sample_of(inventory: NvmlInventory, uuid: str) -> DeviceSample:
    [sample] = [sample for sample in inventory.sample() if sample.uuid == uuid]
    return sample


def test_every_gpu_is_listed_as_the_driver_tells_it(
    machine: StandInMachine, inventory: NvmlInventory
) -> None:
    listed = [
        (d.index, d.uuid, d.name, d.total_mb, d.reserved_mb, d.pci_bus_id)
        for d in inventory.devices()
    ]

    assert listed == [
        (g.index, g.uuid, g.name, g.total_mb, g.reserved_mb, g.pci_bus_id)
        for g in machine.gpus
    ]
    assert len({total_mb for _, _, _, total_mb, _, _ in listed}) == 2


def test_a_sample_has_all_figures(
    machine: StandInMachine, inventory: NvmlInventory
) -> None:
    uuid = machine.uuids[2]
    machine.set_used(uuid, 1_234)
    machine.add_process(uuid, 4242, 1_200)

    assert sample_of(inventory, uuid) == DeviceSample(
        uuid=uuid,
        used_mb=1_234,
        utilisation=7,
        temperature=41,
        power_w=25,
        processes=(DeviceProcess(pid=4242, used_mb=1_200),),
    )
    assert sample_of(inventory, machine.uuids[0]).used_mb == 0


@pytest.mark.parametrize(
    ("code", "driver"),
    [(FUNCTION_NOT_FOUND, "older than 510"), (3, "that says not supported")],
)
def test_without_the_second_memory_call_the_reserve_counts_as_used(
    machine: StandInMachine, inventory: NvmlInventory, code: int, driver: str
) -> None:
    gpu = machine.gpus[0]
    machine.fails(gpu.uuid, "memory_v2", code)
    machine.set_used(gpu.uuid, 100)

    device = inventory.devices()[0]

    assert (device.total_mb, device.reserved_mb) == (gpu.total_mb, 0), driver
    assert sample_of(inventory, gpu.uuid).used_mb == 100 + gpu.reserved_mb, driver


def test_processes_of_both_lists_are_told_once_and_may_hide_their_memory(
    machine: StandInMachine, inventory: NvmlInventory
) -> None:
    uuid = machine.uuids[0]
    machine.add_process(uuid, 30, 700)
    machine.add_process(uuid, 20, None)
    machine.add_process(uuid, 30, 700, kind="graphics")
    machine.add_process(uuid, 20, 5, kind="graphics")
    machine.add_process(uuid, 10, None, kind="graphics")

    told = [(p.pid, p.used_mb) for p in sample_of(inventory, uuid).processes]

    assert told == [(10, None), (20, 5), (30, 700)]

    machine.clear_processes()
    assert sample_of(inventory, uuid).processes == ()


@pytest.mark.parametrize("column", ["utilisation", "temperature", "power_w"])
def test_a_figure_that_is_not_supported_is_none_and_takes_nothing_with_it(
    machine: StandInMachine, inventory: NvmlInventory, column: str
) -> None:
    uuid = machine.uuids[1]
    whole = sample_of(inventory, uuid)
    machine.not_supported(uuid, column)

    sample = sample_of(inventory, uuid)

    assert getattr(sample, column) is None
    assert sample != whole
    others = {"utilisation", "temperature", "power_w", "used_mb"} - {column}
    assert all(getattr(sample, name) == getattr(whole, name) for name in others)
    assert len(inventory.sample()) == 4


def test_an_older_drivers_temperature_is_read_by_the_older_call(
    machine: StandInMachine, inventory: NvmlInventory
) -> None:
    machine.fails(machine.uuids[0], "temperature_v", FUNCTION_NOT_FOUND)

    assert sample_of(inventory, machine.uuids[0]).temperature == 41


def test_a_gpu_that_tells_no_memory_is_sampled_but_not_offered(
    machine: StandInMachine, inventory: NvmlInventory
) -> None:
    uuid = machine.uuids[3]
    machine.not_supported(uuid, "memory_v2")
    machine.not_supported(uuid, "memory")

    assert sample_of(inventory, uuid).used_mb is None
    assert [d.uuid for d in inventory.devices()] == machine.uuids[:3]


def test_processes_that_can_not_be_listed_leave_the_other_list(
    machine: StandInMachine, inventory: NvmlInventory
) -> None:
    uuid = machine.uuids[0]
    machine.add_process(uuid, 30, 700)
    machine.add_process(uuid, 40, 300, kind="graphics")
    machine.not_supported(uuid, "graphics")

    assert [p.pid for p in sample_of(inventory, uuid).processes] == [30]


@pytest.mark.parametrize("fault", ["lost", "memory unreadable"])
def test_a_gpu_that_can_not_be_asked_leaves_the_rest(
    machine: StandInMachine, inventory: NvmlInventory, fault: str
) -> None:
    gone, *rest = machine.uuids
    if fault == "lost":
        machine.lose(gone)
    else:
        machine.fails(gone, "memory_v2")

    assert [device.uuid for device in inventory.devices()] == rest
    assert [sample.uuid for sample in inventory.sample()] == rest
    assert [device.index for device in inventory.devices()] == [1, 2, 3]


def test_links_make_peers_directly_or_over_a_switch(
    machine: StandInMachine, inventory: NvmlInventory
) -> None:
    first, second, third, fourth = machine.gpus
    machine.link(first.uuid, second.pci_bus_id)
    machine.link(first.uuid, third.pci_bus_id)
    machine.link(second.uuid, first.pci_bus_id)
    machine.link(third.uuid, first.pci_bus_id)
    machine.link(third.uuid, BOGUS_BUS)
    machine.link(fourth.uuid, BOGUS_BUS)

    peers = {device.uuid: device.nvlink_peers for device in inventory.devices()}

    assert peers == {
        first.uuid: (second.uuid, third.uuid),
        second.uuid: (first.uuid,),
        third.uuid: (first.uuid, fourth.uuid),
        fourth.uuid: (third.uuid,),
    }


def test_a_machine_without_links_has_no_peers(inventory: NvmlInventory) -> None:
    assert {device.nvlink_peers for device in inventory.devices()} == {()}


class TestMig:
    """A card that is split: its instances are the GPUs, and it is none itself."""

    def test_instances_are_listed_as_gpus_and_their_card_is_not(
        self, machine: StandInMachine, inventory: NvmlInventory
    ) -> None:
        first, second, third, fourth = machine.gpus
        small, large = machine.split(second.uuid, {0: 4_864, 3: 9_856})

        listed = {d.uuid: d for d in inventory.devices()}

        assert list(listed) == [
            first.uuid,
            small.uuid,
            large.uuid,
            third.uuid,
            fourth.uuid,
        ]
        found = listed[large.uuid]
        assert found.uuid.startswith("MIG-")
        assert (found.index, found.name) == (203, large.name)
        assert (found.total_mb, found.reserved_mb) == (9_856, 12)
        assert found.pci_bus_id == second.pci_bus_id
        assert listed[third.uuid].index == 2

    def test_each_is_sampled_for_itself_without_what_only_a_card_tells(
        self, machine: StandInMachine, inventory: NvmlInventory
    ) -> None:
        small, large = machine.split(machine.uuids[0], {0: 4_864, 1: 9_856})
        machine.set_used(large.uuid, 3_000)
        machine.add_process(large.uuid, 4242, 2_900)

        assert sample_of(inventory, large.uuid) == DeviceSample(
            uuid=large.uuid,
            used_mb=3_000,
            utilisation=None,
            temperature=None,
            power_w=None,
            processes=(DeviceProcess(pid=4242, used_mb=2_900),),
        )
        assert sample_of(inventory, small.uuid).used_mb == 0
        assert machine.uuids[0] not in [s.uuid for s in inventory.sample()]

    def test_one_without_instances_offers_nothing(
        self, machine: StandInMachine, inventory: NvmlInventory
    ) -> None:
        machine.split(machine.uuids[0], {})
        assert [d.uuid for d in inventory.devices()] == machine.uuids[1:]

    def test_a_card_that_could_be_split_and_is_not_is_one_gpu(
        self, machine: StandInMachine, inventory: NvmlInventory
    ) -> None:
        machine.direct(machine.uuids[0], "mig_mode 0")
        assert [d.uuid for d in inventory.devices()] == machine.uuids

    @pytest.mark.parametrize("code", [3, FUNCTION_NOT_FOUND])
    def test_a_driver_that_knows_nothing_of_it_lists_cards(
        self, machine: StandInMachine, inventory: NvmlInventory, code: int
    ) -> None:
        machine.fails(machine.uuids[0], "mig_mode", code)
        assert [d.uuid for d in inventory.devices()] == machine.uuids

    def test_one_that_can_not_say_is_left_out_as_any_that_can_not_be_asked(
        self, machine: StandInMachine, inventory: NvmlInventory
    ) -> None:
        machine.fails(machine.uuids[0], "mig_mode")
        assert [d.uuid for d in inventory.devices()] == machine.uuids[1:]

    def test_an_instance_has_no_peers_whatever_links_its_card_has(
        self, machine: StandInMachine, inventory: NvmlInventory
    ) -> None:
        first, second, third, _ = machine.gpus
        machine.link(first.uuid, second.pci_bus_id)
        machine.link(second.uuid, first.pci_bus_id)
        machine.link(second.uuid, third.pci_bus_id)
        machine.link(third.uuid, second.pci_bus_id)
        (instance,) = machine.split(first.uuid, {0: 4_864})

        peers = {device.uuid: device.nvlink_peers for device in inventory.devices()}

        assert peers[instance.uuid] == ()
        assert peers[second.uuid] == (third.uuid,)

    def test_one_that_does_not_tell_its_name_is_called_after_its_card(
        self, machine: StandInMachine, inventory: NvmlInventory
    ) -> None:
        gpu = machine.gpus[0]
        (instance,) = machine.split(gpu.uuid, {0: 4_864})
        machine.not_supported(instance.uuid, "name")
        assert inventory.devices()[0].name == f"{gpu.name} MIG"


def test_a_missing_library_says_what_to_install(tmp_path: Path) -> None:
    env = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    inventory = NvmlInventory(env=env)

    with pytest.raises(InventoryUnavailable, match="Install the NVIDIA driver") as info:
        inventory.devices()

    assert info.value.fault is InventoryFault.LIBRARY_MISSING
    inventory.close()


def test_a_broken_driver_is_a_fault_until_it_is_mended(
    machine: StandInMachine, inventory: NvmlInventory
) -> None:
    machine.break_driver("unknown error")

    with pytest.raises(
        InventoryUnavailable, match=r"nvidia-smi.*Unknown Error"
    ) as info:
        inventory.sample()

    assert info.value.fault is InventoryFault.DRIVER_FAULT
    machine.mend_driver()
    assert len(inventory.sample()) == 4


def test_a_library_that_crashes_takes_only_the_child(
    machine: StandInMachine, inventory: NvmlInventory
) -> None:
    inventory.sample()
    machine.crash()

    with pytest.raises(InventoryUnavailable, match="code -9") as info:
        inventory.sample()

    assert info.value.fault is InventoryFault.DRIVER_FAULT
    machine.mend_driver()
    assert len(inventory.sample()) == 4


def test_a_hanging_call_is_given_up_at_the_deadline_and_asked_anew(
    machine: StandInMachine,
) -> None:
    inventory = NvmlInventory(deadline_s=1.0, env={**os.environ, **machine.env()})
    machine.hang()
    for _ in range(2):
        begun = time.monotonic()
        with pytest.raises(InventoryUnavailable, match="within 1 s") as info:
            inventory.sample()
        assert info.value.fault is InventoryFault.TIMED_OUT
        assert 1 <= time.monotonic() - begun < 10

    machine.mend_driver()

    assert len(inventory.sample()) == 4
    inventory.close()


def test_a_child_that_was_killed_is_replaced(
    machine: StandInMachine, inventory: NvmlInventory
) -> None:
    inventory.sample()
    [child] = children_of(os.getpid())
    os.kill(child, signal.SIGKILL)

    with pytest.raises(InventoryUnavailable, match="code -9"):
        inventory.sample()

    assert len(inventory.sample()) == 4
    inventory.close()
    assert children_of(os.getpid()) == []


def children_of(pid: int) -> list[int]:
    """Those that run our module; a test run may have others."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    pids = [int(word) for task in tasks for word in task.read_text().split()]
    return [
        child
        for child in pids
        if b"scheduler.inventory.nvml" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


def test_it_works_from_any_folder(
    machine: StandInMachine,
    inventory: NvmlInventory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "scheduler.py").write_text("raise SystemExit('the wrong one')")
    monkeypatch.chdir(tmp_path)

    assert [device.uuid for device in inventory.devices()] == machine.uuids


def test_only_nvidias_own_binding_is_installed() -> None:
    assert importlib.metadata.version("nvidia-ml-py")
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("pynvml")


def test_an_answer_that_is_no_json_is_a_fault_of_the_driver(
    inventory: NvmlInventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    inventory.devices()
    monkeypatch.setattr(Child, "_line", lambda *_: b"NVRM: oops")
    with pytest.raises(InventoryUnavailable, match="no JSON") as caught:
        inventory.sample()
    assert caught.value.fault is InventoryFault.DRIVER_FAULT
