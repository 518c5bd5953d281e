"""What is there on this node, beside what its rows say. What does not answer is a
finding, and keeps no other look from being taken."""

import re
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TypeVar

from django.conf import settings
from django.db.models import Q, QuerySet
from django.utils import timezone

from jobs.models import Artifact, Attempt
from jobs.status import Reason
from scheduler.invariants import (
    ArtifactFacts,
    AttemptFacts,
    Finding,
    GpuProcess,
    HostFacts,
    LogFacts,
    could_not_look,
)
from scheduler.inventory.base import Inventory, InventoryUnavailable
from scheduler.runner.base import Runner, RunnerFault, Stray
from scheduler.strays import OurStray, ours
from scheduler.verification.rows import AT_ONCE, attempt_facts, with_allocations

T = TypeVar("T")

# A cap that was lowered must not make every old log a finding for ever.
LOGS_OF = timedelta(days=1)
_NAME = re.compile(r"gpujob-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-([0-9]{1,9})")


class _Looking:
    """Asks, and remembers what did not answer."""

    def __init__(self) -> None:
        self.unseen: list[Finding] = []

    def at(self, what: str, invariant: str, ask: Callable[[], T], do: str) -> T | None:
        try:
            return ask()
        except (RunnerFault, InventoryUnavailable, OSError) as fault:
            self.unseen.append(could_not_look(invariant, what, fault, do))
            return None


def look_at_host(
    runner: Runner, inventory: Inventory, since: datetime | None
) -> tuple[HostFacts, list[Finding]]:
    at, unseen = (looking := _Looking()).at, looking.unseen
    docker = "See that Docker runs on this node, and that we may open its socket."
    driver = "Run nvidia-smi on this node."
    disk = "See to the disk of this node."
    # Rows before containers, as what a row calls running was there before.
    live = _facts(Attempt.objects.live().filter(node=settings.NODE_NAME))
    containers = at("the containers", "I4", runner.observe, docker)
    strays = at("the processes below Docker", "I9", partial(_strays, runner), docker)
    on_gpus = partial(_gpu_processes, runner, inventory)
    processes = at("the processes on the GPUs", "I9", on_gpus, driver)
    folders = at("the work folders", "I12", _left_folders, disk)
    logs = at("the logs", "I8", partial(_logs, since), disk)
    artifacts = at("the results", "I12", partial(_artifacts, since), disk)
    nonces = [each.nonce for each in containers or []]
    facts = HostFacts(
        now=timezone.now(),
        log_cap_mb=settings.LOG_CAP_MB,
        attempts={a.nonce: a for a in (*live, *_facts(_by_nonce(nonces)))},
        containers=None if containers is None else tuple(containers),
        strays=tuple(strays or ()),
        processes=tuple(processes or ()),
        logs=tuple(logs or ()),
        artifacts=tuple(artifacts or ()),
        folders=tuple(folders or ()),
    )
    return facts, unseen


def _facts(attempts: QuerySet[Attempt]) -> list[AttemptFacts]:
    rows = attempts.select_related("job").prefetch_related(with_allocations())
    return [attempt_facts(each, each.job) for each in rows]


def _by_nonce(nonces: list[str]) -> QuerySet[Attempt]:
    return Attempt.objects.filter(nonce__in=nonces)


def work_root() -> PurePosixPath:
    return PurePosixPath(settings.RUN_ROOT) / "work"


def names_of(strays: list[Stray]) -> dict[str, str]:
    """Of those whose container our rows know: their names, by the container's id."""
    ids = [each.container_id for each in strays]
    rows = Attempt.objects.filter(container_id__in=ids, node=settings.NODE_NAME)
    return {str(each.container_id): each.container_name for each in rows}


def _strays(runner: Runner) -> list[OurStray]:
    strays = runner.strays()
    return ours(strays, work=work_root(), names=names_of(strays))


def _gpu_processes(runner: Runner, inventory: Inventory) -> list[GpuProcess]:
    return [
        GpuProcess(
            uuid=sample.uuid, pid=process.pid, container_id=runner.holder(process.pid)
        )
        for sample in inventory.sample()
        for process in sample.processes
    ]


def _left_folders() -> list[str]:
    """Of no live attempt. The run root may be shared: other nodes' are theirs to see."""
    work = Path(work_root())
    names = sorted(each.name for each in work.iterdir()) if work.is_dir() else []
    known = {name: _NAME.fullmatch(name) for name in names}
    ids = {uuid.UUID(match[1]) for match in known.values() if match}
    rows = {a.container_name: a for a in Attempt.objects.filter(job_id__in=ids)}
    return [name for name in names if _is_left(rows.get(name))]


def _is_left(attempt: Attempt | None) -> bool:
    if attempt is None:
        return True
    return not attempt.is_live and attempt.node == settings.NODE_NAME


def _here(since: datetime | None) -> QuerySet[Attempt]:
    rows = Attempt.objects.filter(node=settings.NODE_NAME)
    if since is None:
        return rows
    return rows.filter(Q(ended_at=None) | Q(ended_at__gte=since))


def _logs(since: datetime | None) -> list[LogFacts]:
    day = timezone.now() - LOGS_OF
    rows = _here(max(since, day) if since else day).filter(started_at__isnull=False)
    return [
        LogFacts(
            attempt=each.container_name,
            path=each.log_path,
            size=_size(settings.DATA_ROOT / each.log_path),
        )
        for each in rows
    ]


def _artifacts(since: datetime | None) -> list[ArtifactFacts]:
    """Of attempts that ended well: what others left is no result."""
    whole = _here(since).filter(ended_at__isnull=False, reason=Reason.COMPLETED)
    rows = Artifact.objects.filter(attempt__in=whole).select_related("attempt")
    return [
        ArtifactFacts(
            attempt=each.attempt.container_name,
            path=each.path,
            size=each.size,
            stored_size=_size(settings.DATA_ROOT / each.storage_path),
            is_hashed=bool(each.sha256),
        )
        for each in rows.iterator(chunk_size=AT_ONCE)
    ]


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None
