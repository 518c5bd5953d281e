"""A node's GPUs: the inventory becomes rows, and what is used is told apart."""

import logging
import sys
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction
from django.utils import timezone

from jobs import audit
from jobs.models import Attempt
from jobs.models.bounds import MAX_MB
from scheduler.execution import BY
from scheduler.inventory.base import (
    Device,
    DeviceSample,
    Inventory,
    InventoryUnavailable,
)
from scheduler.inventory.nvml import NvmlInventory
from scheduler.inventory.simulated import SimulatedInventory
from scheduler.models import GPU, Allocation, GpuSample, Node
from scheduler.reconcile import Use, attribute, strangers
from scheduler.runner.base import Runner
from scheduler.supervisor.losses import lose
from scheduler.supervisor.promises import raise_peak
from scheduler.supervisor.strangers import Strangers

logger = logging.getLogger(__name__)

KEEP_SAMPLES = timedelta(hours=24)
# A change of foreign use that may let a waiting job in or keep one out.
NOTABLE_MB = 64


def node_inventory() -> Inventory:
    """The inventory that the settings choose; simulated GPUs are never a fallback."""
    if settings.INVENTORY == "nvml":
        return NvmlInventory()
    if settings.INVENTORY == "simulated":
        return SimulatedInventory(settings.NODE_NAME)
    raise ImproperlyConfigured("GPUJOBS_INVENTORY is 'nvml' or 'simulated'.")


class Hardware:
    """Keeps GPU rows true. Each look returns whether the scheduler should look too."""

    def __init__(self, node: Node, inventory: Inventory, runner: Runner) -> None:
        self._node = node
        self._inventory = inventory
        self._runner = runner
        self._strangers = Strangers(runner)
        self.report = ""

    def sync(self) -> bool:
        """Make the rows match the devices that the driver lists."""
        try:
            listed = self._inventory.devices()
        except InventoryUnavailable as fault:
            return self._lost_sight(fault)
        devices = [device for device in listed if _is_sound(device)]
        odd = [device.uuid for device in listed if not _is_sound(device)]
        self.report = f"The driver tells impossible sizes of {odd}." if odd else ""
        before = self._present()
        here = GPU.objects.filter(uuid__in=[device.uuid for device in devices])
        ids = dict(here.values_list("uuid", "pk"))
        # All that are new or none: a job that needs two of them must not be refused
        # since only one is known yet. In the order in which a reservation takes them.
        with transaction.atomic():
            for device in sorted(devices, key=lambda d: ids.get(d.uuid, sys.maxsize)):
                self._write(device)
        drivers = sorted({device.driver for device in devices} - {""})
        versions = {"driver": drivers[-1]} if drivers else {}
        Node.objects.filter(pk=self._node.pk).update(versions=versions)
        gone = self._node.gpus.exclude(uuid__in=[d.uuid for d in devices])
        lose(gone.filter(is_present=True))
        # Here since it is seldom, and by GPU since the index is by GPU.
        old = GpuSample.objects.filter(at__lt=timezone.now() - KEEP_SAMPLES)
        old.filter(gpu__node=self._node).delete()
        return self._present() != before

    def _lost_sight(self, fault: InventoryUnavailable) -> bool:
        """No answer is not an answer of no GPUs: no new job, and no judgement."""
        self.report = str(fault)
        return self._node.gpus.filter(is_present=True).update(is_present=False) > 0

    def _present(self) -> set[tuple[str, int]]:
        rows = self._node.gpus.filter(is_present=True)
        return set(rows.values_list("uuid", "total_mb"))

    def _write(self, device: Device) -> None:
        seen = {
            "node": self._node,
            "index": device.index,
            "name": device.name,
            "total_mb": device.total_mb,
            "reserved_mb": device.reserved_mb,
            "pci_bus_id": device.pci_bus_id,
            "nvlink_peers": list(device.nvlink_peers),
            "is_present": True,
        }
        _, is_new = GPU.objects.update_or_create(
            uuid=device.uuid,
            defaults=seen,
            create_defaults={**seen, "headroom_mb": settings.HEADROOM_MB},
        )
        if is_new:
            audit.record("gpu.found", target=device.uuid, by=BY, name=device.name)

    def sample(self) -> bool:
        """Measure; what each attempt uses goes to its allocation, the rest is foreign."""
        try:
            samples = self._inventory.sample()
        except InventoryUnavailable as fault:
            return self._lost_sight(fault)
        gpus = {gpu.uuid: gpu for gpu in self._node.gpus.all()}
        sampled = {sample.uuid for sample in samples}
        if any(gpu.is_present and gpu.uuid not in sampled for gpu in gpus.values()):
            return self.sync()
        attempts = self._attempts()
        changed = False
        for sample in samples:
            if sample.uuid in gpus and _mb(sample.used_mb) == sample.used_mb:
                changed |= self._record(gpus[sample.uuid], sample, attempts)
        return changed

    def _attempts(self) -> dict[str, Attempt]:
        live = Attempt.objects.live().filter(node=self._node.name)
        return {a.container_id: a for a in live if a.container_id}

    def _record(
        self, gpu: GPU, sample: DeviceSample, attempts: dict[str, Attempt]
    ) -> bool:
        live = list(Allocation.objects.live().filter(gpu=gpu))
        holders = {p.pid: self._runner.holder(p.pid) for p in sample.processes}
        owned = [
            (_owner(holders[p.pid], attempts), replace(p, used_mb=_mb(p.used_mb)))
            for p in sample.processes
        ]
        promised = sum(allocation.vram_mb for allocation in live)
        sizes = ((attempt, process.used_mb) for attempt, process in owned)
        use = attribute(sample.used_mb or 0, sizes, promised)
        foreign = [
            self._strangers.describe(process, holders[process.pid])
            for process in strangers(owned)
        ]
        self._write_use(gpu, sample, use, foreign)
        self._measure(gpu, sample, live, use)
        return abs(use.foreign_mb - gpu.foreign_mb) >= NOTABLE_MB

    def _write_use(
        self, gpu: GPU, sample: DeviceSample, use: Use, foreign: list[dict[str, Any]]
    ) -> None:
        seen: dict[str, Any] = {
            "used_mb": sample.used_mb,
            "foreign_mb": use.foreign_mb,
            "utilisation": sample.utilisation,
            "temperature": sample.temperature,
            "power_w": sample.power_w,
        }
        changed = {"foreign_processes": foreign}
        if foreign == gpu.foreign_processes:
            changed = {}
        GPU.objects.filter(pk=gpu.pk).update(
            **seen, **changed, sampled_at=timezone.now()
        )
        GpuSample.objects.create(gpu=gpu, **seen)

    def _measure(
        self, gpu: GPU, sample: DeviceSample, live: Iterable[Allocation], use: Use
    ) -> None:
        for allocation in live:
            measured = use.measured_mb.get(str(allocation.attempt_id), 0)
            Allocation.objects.filter(pk=allocation.pk).update(measured_mb=measured)
            GpuSample.objects.create(
                gpu=gpu,
                attempt_id=allocation.attempt_id,
                used_mb=measured,
                utilisation=sample.utilisation,
            )
            raise_peak(allocation, gpu.uuid, measured)


def _owner(container: str | None, attempts: dict[str, Attempt]) -> str | None:
    attempt = attempts.get(container) if container else None
    return str(attempt.pk) if attempt else None


def _is_sound(device: Device) -> bool:
    """A driver in trouble tells sizes that no row can hold."""
    return 0 < device.total_mb <= MAX_MB and 0 <= device.reserved_mb <= device.total_mb


def _mb(size: int | None) -> int | None:
    return size if size is not None and 0 <= size <= MAX_MB else None
