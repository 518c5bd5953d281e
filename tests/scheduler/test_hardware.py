"""Hardware: the driver's devices become rows, and what is used is told apart."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.utils import timezone

from jobs.models import Attempt, AuditRecord
from scheduler import placement, reservation
from scheduler.execution import launch
from scheduler.inventory.base import (
    Device,
    DeviceProcess,
    DeviceSample,
    InventoryFault,
    InventoryUnavailable,
)
from scheduler.models import GPU, Allocation, GpuSample, GpuState, Node
from scheduler.supervisor.hardware import Hardware
from tests.fakes import FakeRunner
from tests.scheduler.factories import GB, make_node, make_reserved

pytestmark = pytest.mark.django_db


class FakeInventory:
    """Two GPUs, whose figures a test may change."""

    def __init__(self) -> None:
        self.listed = [device(0), device(1)]
        self.seen = {d.uuid: idle(d.uuid) for d in self.listed}
        self.fault: InventoryUnavailable | None = None

    def devices(self) -> list[Device]:
        if self.fault:
            raise self.fault
        return list(self.listed)

    def sample(self) -> list[DeviceSample]:
        if self.fault:
            raise self.fault
        return list(self.seen.values())

    def close(self) -> None:
        """Nothing is held open."""


def device(number: int, **fields: Any) -> Device:
    made = Device(
        uuid=f"GPU-{number}",
        index=number,
        name="NVIDIA GeForce RTX 3090",
        total_mb=24 * GB,
        reserved_mb=265,
        pci_bus_id=f"00000000:0{number}:00.0",
    )
    return replace(made, **fields)


def idle(uuid: str, **fields: Any) -> DeviceSample:
    made = DeviceSample(
        uuid=uuid, used_mb=0, utilisation=0, temperature=30, power_w=20, processes=()
    )
    return replace(made, **fields)


@pytest.fixture
def inventory() -> FakeInventory:
    return FakeInventory()


@pytest.fixture
def hardware(db: None, inventory: FakeInventory, runner: FakeRunner) -> Hardware:
    return Hardware(make_node(), inventory, runner.holder)


def rows() -> list[tuple[str, int, bool]]:
    return list(GPU.objects.order_by("uuid").values_list("uuid", "index", "is_present"))


def takes_jobs() -> bool:
    request = placement.Request(job_id="", gpu_count=1)
    decided = placement.decide(reservation.snapshot(), request)
    return isinstance(decided, placement.Placement)


class TestSync:
    def test_each_device_becomes_a_row_and_its_coming_is_recorded(
        self, hardware: Hardware
    ) -> None:
        assert hardware.sync() is True
        assert rows() == [("GPU-0", 0, True), ("GPU-1", 1, True)]
        gpu = GPU.objects.get(uuid="GPU-0")
        assert (gpu.total_mb, gpu.reserved_mb) == (24 * GB, 265)
        assert AuditRecord.objects.filter(action="gpu.found").count() == 2
        assert takes_jobs()

    def test_twice_is_as_once(self, hardware: Hardware) -> None:
        hardware.sync()
        assert hardware.sync() is False
        assert GPU.objects.count() == 2
        assert AuditRecord.objects.filter(action="gpu.found").count() == 2

    def test_one_that_vanished_stays_a_row_and_takes_no_job(
        self, hardware: Hardware, inventory: FakeInventory
    ) -> None:
        hardware.sync()
        inventory.listed = []
        assert hardware.sync() is True
        assert rows() == [("GPU-0", 0, False), ("GPU-1", 1, False)]
        assert not takes_jobs()

    def test_one_that_came_back_takes_jobs_again(
        self, hardware: Hardware, inventory: FakeInventory
    ) -> None:
        hardware.sync()
        kept, inventory.listed = inventory.listed, []
        hardware.sync()
        inventory.listed = kept
        assert hardware.sync() is True
        assert takes_jobs()

    def test_a_driver_that_does_not_answer_is_told_and_nothing_is_forgotten(
        self, hardware: Hardware, inventory: FakeInventory
    ) -> None:
        hardware.sync()
        inventory.fault = InventoryUnavailable(InventoryFault.DRIVER_FAULT, "code 999")
        assert hardware.sync() is True
        assert hardware.sync() is False
        assert "code 999" in hardware.report
        assert GPU.objects.count() == 2
        assert not takes_jobs()
        inventory.fault = None
        hardware.sync()
        assert (hardware.report, takes_jobs()) == ("", True)

    def test_indices_that_were_swapped_do_not_swap_gpus(
        self, hardware: Hardware, inventory: FakeInventory
    ) -> None:
        hardware.sync()
        before = dict(GPU.objects.values_list("uuid", "pk"))
        inventory.listed = [device(0, index=1), device(1, index=0)]
        hardware.sync()
        assert dict(GPU.objects.values_list("uuid", "pk")) == before
        assert rows() == [("GPU-0", 1, True), ("GPU-1", 0, True)]

    def test_what_the_operator_set_is_never_overwritten(
        self, hardware: Hardware, settings: Any, inventory: FakeInventory
    ) -> None:
        settings.HEADROOM_MB = 512
        hardware.sync()
        assert set(GPU.objects.values_list("headroom_mb", flat=True)) == {512}
        GPU.objects.update(
            headroom_mb=0, state=GpuState.DRAINING, state_reason="fan 2 stalls"
        )
        settings.HEADROOM_MB = 1024
        inventory.listed = [device(0, total_mb=20 * GB)]
        hardware.sync()
        gpu = GPU.objects.get(uuid="GPU-0")
        assert (gpu.headroom_mb, gpu.state, gpu.state_reason) == (
            0,
            "draining",
            "fan 2 stalls",
        )
        assert gpu.total_mb == 20 * GB

    @pytest.mark.parametrize(
        "nonsense",
        [
            {"total_mb": 0},
            {"total_mb": -1},
            {"total_mb": 2**44},
            {"reserved_mb": -5},
            {"reserved_mb": 2**40},
        ],
    )
    def test_sizes_that_can_not_be_take_that_gpu_out_and_no_other(
        self, hardware: Hardware, inventory: FakeInventory, nonsense: dict[str, int]
    ) -> None:
        hardware.sync()
        inventory.listed = [device(0, **nonsense), device(1)]
        hardware.sync()
        assert rows() == [("GPU-0", 0, False), ("GPU-1", 1, True)]
        assert "impossible sizes" in hardware.report
        assert "GPU-0" in hardware.report

    def test_a_card_that_was_moved_to_another_host_is_the_same_gpu(
        self, hardware: Hardware
    ) -> None:
        euler = Node.objects.create(name="euler")
        GPU.objects.create(node=euler, uuid="GPU-0", index=3, name="?", total_mb=1)
        hardware.sync()
        assert GPU.objects.get(uuid="GPU-0").node.name == "gauss"


@pytest.fixture
def attempt(hardware: Hardware, runner: FakeRunner) -> Attempt:
    """It runs alone on GPU-0 or GPU-1, process 4242 is in its container."""
    hardware.sync()
    GPU.objects.filter(uuid="GPU-1").update(state=GpuState.DRAINING)
    attempt = make_reserved(min_vram_mb=8 * GB, share=True)
    launch(str(attempt.pk))
    runner.holders[4242] = runner.containers[attempt.container_name].container_id
    return attempt


def see(inventory: FakeInventory, used_mb: int | None, **processes: int | None) -> None:
    inventory.seen["GPU-0"] = idle(
        "GPU-0",
        used_mb=used_mb,
        utilisation=90,
        processes=tuple(
            DeviceProcess(pid=int(name.removeprefix("pid_")), used_mb=mb)
            for name, mb in processes.items()
        ),
    )


class TestSample:
    def test_figures_come_to_the_gpu_and_to_its_samples(
        self, hardware: Hardware, inventory: FakeInventory
    ) -> None:
        hardware.sync()
        see(inventory, 3000, pid_1=3000)
        assert hardware.sample() is True
        gpu = GPU.objects.get(uuid="GPU-0")
        assert (gpu.used_mb, gpu.foreign_mb, gpu.utilisation) == (3000, 3000, 90)
        assert (gpu.temperature, gpu.power_w) == (30, 20)
        assert gpu.sampled_at is not None
        assert GpuSample.objects.filter(gpu=gpu, attempt=None).count() == 1

    def test_what_ours_uses_is_its_and_the_rest_is_foreign(
        self, hardware: Hardware, inventory: FakeInventory, attempt: Attempt
    ) -> None:
        see(inventory, 9000, pid_4242=5000, pid_77=4000)
        hardware.sample()
        assert GPU.objects.get(uuid="GPU-0").foreign_mb == 4000
        assert Allocation.objects.get().measured_mb == 5000
        sample = GpuSample.objects.get(attempt=attempt)
        assert (sample.used_mb, sample.utilisation) == (5000, 90)

    def test_the_peak_stays_when_use_falls(
        self, hardware: Hardware, inventory: FakeInventory, attempt: Attempt
    ) -> None:
        for used in (3000, 7000, 1000):
            see(inventory, used, pid_4242=used)
            hardware.sample()
        attempt.refresh_from_db()
        assert attempt.peak_vram_mb == {"GPU-0": 7000}
        assert Allocation.objects.get().measured_mb == 1000

    def test_a_change_of_foreign_use_is_told_and_a_flicker_is_not(
        self, hardware: Hardware, inventory: FakeInventory
    ) -> None:
        hardware.sync()
        hardware.sample()
        for used, told in ((63, False), (200, True), (180, False), (0, True)):
            see(inventory, used, pid_1=used)
            assert hardware.sample() is told

    def test_a_driver_that_does_not_answer_takes_the_gpus_out(
        self, hardware: Hardware, inventory: FakeInventory
    ) -> None:
        hardware.sync()
        inventory.fault = InventoryUnavailable(InventoryFault.TIMED_OUT)
        assert hardware.sample() is True
        assert hardware.report
        assert not takes_jobs()

    def test_a_gpu_that_is_not_in_the_rows_yet_is_left_for_the_next_sync(
        self, hardware: Hardware, inventory: FakeInventory
    ) -> None:
        assert hardware.sample() is False
        assert GpuSample.objects.count() == 0

    @pytest.mark.parametrize("used_mb", [None, -1, 2**44])
    def test_a_figure_that_is_missing_or_can_not_be_stops_nothing(
        self,
        hardware: Hardware,
        inventory: FakeInventory,
        attempt: Attempt,
        used_mb: int | None,
    ) -> None:
        see(inventory, used_mb, pid_4242=2**44, pid_77=None)
        inventory.seen["GPU-1"] = idle("GPU-1", used_mb=777)
        hardware.sample()
        assert GPU.objects.get(uuid="GPU-1").foreign_mb == 777
        assert Allocation.objects.get().measured_mb == 0

    def test_samples_older_than_a_day_go(
        self, hardware: Hardware, inventory: FakeInventory
    ) -> None:
        hardware.sync()
        now = timezone.now()
        with time_machine.travel(now - timedelta(hours=25)):
            hardware.sample()
        with time_machine.travel(now - timedelta(hours=23)):
            hardware.sample()
        hardware.sync()
        assert GpuSample.objects.count() == 2
        assert GpuSample.objects.filter(at__lt=now - timedelta(hours=24)).count() == 0
