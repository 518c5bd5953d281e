"""Hardware: the driver's devices become rows, and what is used is told apart."""

import getpass
import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import time_machine
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from jobs.models import Attempt, AuditRecord, JobEvent
from jobs.status import Reason
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
from scheduler.runner.base import RunnerFault
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
    return Hardware(make_node(), inventory, runner)


def rows() -> list[tuple[str, int, bool]]:
    return list(GPU.objects.order_by("uuid").values_list("uuid", "index", "is_present"))


def takes_jobs() -> bool:
    request = placement.Request(gpu_count=1)
    decided = placement.decide(reservation.load_snapshot(), request)
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

    def test_all_become_rows_or_none(
        self, hardware: Hardware, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A job that needs both must not be refused since only one is known yet."""
        record = Mock(side_effect=[None, OperationalError("gone")])
        monkeypatch.setattr("scheduler.supervisor.hardware.audit.record", record)
        with pytest.raises(OperationalError):
            hardware.sync()
        assert rows() == []

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

    def test_one_that_vanished_under_a_job_stays_out_until_somebody_looked(
        self, hardware: Hardware, inventory: FakeInventory
    ) -> None:
        hardware.sync()
        attempt = make_reserved()
        held = GPU.objects.get(allocations__attempt=attempt)
        kept = inventory.listed
        inventory.listed = [device for device in kept if device.uuid != held.uuid]
        hardware.sync()
        inventory.listed = kept
        hardware.sync()
        held.refresh_from_db()
        assert (held.state, held.is_present) == (GpuState.QUARANTINED, True)
        assert held.lost_at is not None
        assert "a job was on it" in held.state_reason
        other = GPU.objects.exclude(pk=held.pk).get()
        assert (other.state, other.lost_at) == (GpuState.ENABLED, None)

    def test_one_that_is_not_sampled_any_more_is_looked_for_at_once(
        self, hardware: Hardware, inventory: FakeInventory
    ) -> None:
        hardware.sync()
        inventory.listed = inventory.listed[:1]
        del inventory.seen["GPU-1"]
        assert hardware.sample() is True
        assert rows() == [("GPU-0", 0, True), ("GPU-1", 1, False)]

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

    def test_our_own_process_is_never_among_the_foreign_ones(
        self, hardware: Hardware, inventory: FakeInventory, attempt: Attempt
    ) -> None:
        see(inventory, 9000, pid_4242=5000, pid_4194305=4000)
        hardware.sample()
        assert [p["pid"] for p in foreign()] == [4194305]

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


def foreign() -> list[dict[str, Any]]:
    return list(GPU.objects.get(uuid="GPU-0").foreign_processes)


# No process has such a number: the kernel's largest is one less.
GONE = 2**22 + 1


class TestForeignProcesses:
    def test_whose_it_is_and_what_it_is_called_stand_with_the_gpu(
        self, hardware: Hardware, inventory: FakeInventory
    ) -> None:
        hardware.sync()
        see(inventory, 3000, **{f"pid_{os.getpid()}": 2900})
        hardware.sample()
        assert foreign() == [
            {
                "pid": os.getpid(),
                "user": getpass.getuser(),
                "process": Path("/proc/self/comm").read_text().strip(),
                "used_mb": 2900,
                "container": "",
            }
        ]
        # All that is used is foreign, also what no listed process accounts for.
        assert GPU.objects.get(uuid="GPU-0").foreign_mb == 3000

    def test_one_that_has_ended_meanwhile_is_a_number_only(
        self, hardware: Hardware, inventory: FakeInventory
    ) -> None:
        hardware.sync()
        see(inventory, 3000, **{f"pid_{GONE}": None})
        hardware.sample()
        nobody = {"user": "", "process": "", "used_mb": None, "container": ""}
        assert foreign() == [{"pid": GONE, **nobody}]

    def test_the_container_of_somebody_else_is_named(
        self, hardware: Hardware, inventory: FakeInventory, runner: FakeRunner
    ) -> None:
        hardware.sync()
        runner.holders = {GONE: "a" * 64, GONE + 1: "b" * 64}
        runner.names = {"a" * 64: "somebodys-notebook"}
        see(inventory, 3000, **{f"pid_{GONE}": 2000, f"pid_{GONE + 1}": 1000})
        hardware.sample()
        told = [process["container"] for process in foreign()]
        assert told == ["somebodys-notebook", "b" * 12]

    def test_a_runner_that_does_not_answer_leaves_the_short_id_for_now(
        self, hardware: Hardware, inventory: FakeInventory, runner: FakeRunner
    ) -> None:
        hardware.sync()
        runner.holders, runner.names = {GONE: "a" * 64}, {"a" * 64: "notebook"}
        runner.faults["name_of"] = RunnerFault(Reason.DAEMON_FAULT, "away")
        see(inventory, 3000, **{f"pid_{GONE}": 2000})
        for name in ("a" * 12, "notebook"):
            hardware.sample()
            assert foreign()[0]["container"] == name

    def test_a_name_is_asked_for_once(
        self,
        hardware: Hardware,
        inventory: FakeInventory,
        runner: FakeRunner,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        hardware.sync()
        asked: list[str] = []

        def name_of(container_id: str) -> str:
            asked.append(container_id)
            return "notebook"

        monkeypatch.setattr(runner, "name_of", name_of)
        runner.holders = {GONE: "a" * 64}
        see(inventory, 3000, **{f"pid_{GONE}": 2000})
        for _ in range(3):
            hardware.sample()
        assert asked == ["a" * 64]

    def test_of_very_many_the_largest_are_kept(
        self, hardware: Hardware, inventory: FakeInventory
    ) -> None:
        hardware.sync()
        see(inventory, 9000, **{f"pid_{GONE + n}": n for n in range(100)})
        hardware.sample()
        assert [p["used_mb"] for p in foreign()] == list(range(99, 67, -1))

    def test_they_are_written_only_when_they_changed(
        self, hardware: Hardware, inventory: FakeInventory
    ) -> None:
        hardware.sync()
        see(inventory, 3000, **{f"pid_{GONE}": 2000})
        for times in (1, 0, 0):
            with CaptureQueriesContext(connection) as captured:
                hardware.sample()
            updates = [q["sql"] for q in captured if q["sql"].startswith("UPDATE")]
            written = [sql for sql in updates if "foreign_processes" in sql]
            assert len(written) == times

    def test_when_they_have_gone_none_stand_there(
        self, hardware: Hardware, inventory: FakeInventory
    ) -> None:
        hardware.sync()
        see(inventory, 3000, **{f"pid_{GONE}": 2000})
        hardware.sample()
        see(inventory, 0)
        hardware.sample()
        assert foreign() == []


def excesses() -> list[tuple[int, int]]:
    events = JobEvent.objects.filter(event_type="vram_over_promise").order_by("id")
    return [(e.payload["promised_mb"], e.payload["measured_mb"]) for e in events]


class TestPromises:
    """`attempt` is a shared one that was promised 8 GiB."""

    def use(self, hardware: Hardware, inventory: FakeInventory, *used: int) -> None:
        for used_mb in used:
            see(inventory, used_mb, pid_4242=used_mb)
            hardware.sample()

    def test_one_that_uses_more_is_told_of_on_its_job(
        self, hardware: Hardware, inventory: FakeInventory, attempt: Attempt
    ) -> None:
        self.use(hardware, inventory, 9000)
        event = JobEvent.objects.get(event_type="vram_over_promise")
        assert event.job_id == attempt.job_id
        assert event.payload == {
            "attempt": 1,
            "gpu": "GPU-0",
            "promised_mb": 8 * GB,
            "measured_mb": 9000,
        }
        assert AuditRecord.objects.filter(action="job.vram_over_promise").count() == 1

    def test_within_the_promise_nothing_is_told(
        self, hardware: Hardware, inventory: FakeInventory, attempt: Attempt
    ) -> None:
        self.use(hardware, inventory, 100, 8 * GB)
        assert excesses() == []

    def test_once_and_again_when_the_peak_has_grown_by_a_tenth(
        self, hardware: Hardware, inventory: FakeInventory, attempt: Attempt
    ) -> None:
        self.use(hardware, inventory, 8000, 9000, 9001, 9500, 4000, 9000, 9899)
        assert excesses() == [(8 * GB, 9000)]
        self.use(hardware, inventory, 9900, 10_000)
        assert excesses() == [(8 * GB, 9000), (8 * GB, 9900)]

    def test_one_that_has_the_gpu_for_itself_can_not_be_over(
        self, hardware: Hardware, inventory: FakeInventory, runner: FakeRunner
    ) -> None:
        hardware.sync()
        GPU.objects.filter(uuid="GPU-1").update(state=GpuState.DRAINING)
        attempt = make_reserved()
        launch(str(attempt.pk))
        runner.holders[4242] = runner.containers[attempt.container_name].container_id
        # More than is usable: the driver's reserve is not among it.
        self.use(hardware, inventory, 24 * GB)
        assert excesses() == []
        attempt.refresh_from_db()
        assert attempt.peak_vram_mb == {"GPU-0": 24 * GB}

    def test_a_later_attempt_of_the_job_is_told_of_anew(
        self, hardware: Hardware, inventory: FakeInventory, attempt: Attempt
    ) -> None:
        self.use(hardware, inventory, 9000)
        Attempt.objects.update(number=2, peak_vram_mb={})
        self.use(hardware, inventory, 9000)
        assert excesses() == [(8 * GB, 9000)] * 2
