"""Wish against reality: which tasks a node's supervisor must ask for. Pure.

One `Known` attempt and what was found of its container give at most one `Ask`. The
supervisor remembers what it asked and when; this function does not.
"""

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from jobs.status import Phase
from scheduler.inventory.base import DeviceProcess
from scheduler.runner.base import ContainerState, Observation

# After so long what SIGKILL was sent to is not going to end.
KILLED_WITHIN = timedelta(seconds=30)
# How many foreign processes of a GPU are told of.
MOST_STRANGERS = 32
# An attempt above its promise is told of again when it has grown by so much.
GROWTH = 1.1


class Task(enum.StrEnum):
    LAUNCH = "launch"
    STOP = "stop"
    COLLECT = "collect"
    # Not tasks: the supervisor writes the rows itself.
    EXPIRE = "expire"
    GIVE_UP = "give_up"


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A live attempt as its row tells it."""

    attempt_id: str
    container: str  # its id, or the name it is to have
    phase: Phase
    ran_for: timedelta = timedelta(0)
    timeout: timedelta = timedelta(hours=1)
    grace: timedelta = timedelta(seconds=10)
    stop_wanted: bool = False
    stop_sent_at: datetime | None = None
    # Its result is judged by another attempt, whose end will ask for it.
    is_waiting: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    task: Task
    attempt_id: str
    # Where it stands: an ask is repeated at once when this has changed.
    stage: str


def reconcile(
    now: datetime, attempts: Iterable[Known], found: Iterable[Observation]
) -> list[Ask]:
    """What to ask for so that each live attempt gets on."""
    containers = {key: o for o in found for key in (o.name, o.container_id)}
    asks = []
    for known in attempts:
        task = _next(now, known, containers.get(known.container))
        if task is not None:
            stage = f"{known.phase}/{known.stop_sent_at is not None}"
            asks.append(Ask(task=task, attempt_id=known.attempt_id, stage=stage))
    return asks


def _next(now: datetime, known: Known, found: Observation | None) -> Task | None:
    if known.is_waiting:
        return None
    if known.phase in (Phase.COLLECTING, Phase.JUDGING):
        return Task.COLLECT
    if found is not None and found.state is ContainerState.EXITED:
        return Task.COLLECT
    if known.phase is Phase.STARTING:
        return Task.LAUNCH
    if found is None or found.state is ContainerState.CREATED:
        return Task.COLLECT
    return _running(now, known)


def _running(now: datetime, known: Known) -> Task | None:
    if known.stop_wanted:
        sent = known.stop_sent_at
        if sent is None:
            return Task.STOP
        if now - sent >= known.grace + KILLED_WITHIN:
            return Task.GIVE_UP
        # Either way: a clock that was set back must not make us wait for hours.
        return Task.STOP if abs(now - sent) >= known.grace else None
    return Task.EXPIRE if known.ran_for >= known.timeout else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """An attempt that ended, as its row tells it; `container_id` if it ever ran."""

    attempt_id: str
    name: str
    nonce: str
    container_id: str | None = None


def leftovers(found: Iterable[Observation], ended: Iterable[Ended]) -> list[str]:
    """The attempts that ended and left a container, known as theirs by its nonce
    together with its name or its id.

    A container whose labels look like ours but whose nonce we never gave is nobody's to
    touch.
    """
    by_nonce = {each.nonce: each for each in ended}
    return [
        known.attempt_id
        for each in found
        if (known := by_nonce.get(each.nonce))
        and (each.name == known.name or each.container_id == known.container_id)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What is used on one GPU, told apart. MiB."""

    foreign_mb: int
    measured_mb: dict[str, int]  # by attempt id


def attribute(
    used_mb: int, processes: Iterable[tuple[str | None, int | None]], promised_mb: int
) -> Use:
    """Split a GPU's used VRAM between our attempts and processes outside.

    `processes` are pairs of the attempt a process belongs to (None: it is foreign)
    and its MiB (None: the driver does not say). A process in one of our containers is
    never foreign, so what one of unknown size may use is not counted as foreign.
    Where no process is listed at all, what our attempts were promised is theirs.
    """
    listed = list(processes)
    ours: dict[str, int] = {}
    unknown: set[str] = set()
    for attempt, mb in listed:
        if attempt is not None:
            ours[attempt] = ours.get(attempt, 0) + (mb or 0)
            if mb is None:
                unknown.add(attempt)
    rest = max(0, used_mb - sum(ours.values()))
    if not listed:
        return Use(foreign_mb=max(0, rest - promised_mb), measured_mb={})
    if not unknown:
        return Use(foreign_mb=rest, measured_mb=ours)
    foreign = min(rest, sum(mb or 0 for attempt, mb in listed if attempt is None))
    for attempt in unknown:
        ours[attempt] += (rest - foreign) // len(unknown)
    return Use(foreign_mb=foreign, measured_mb=ours)


def strangers(
    processes: Iterable[tuple[str | None, DeviceProcess]],
) -> list[DeviceProcess]:
    """The foreign ones of `processes` (pairs as above), the largest first."""
    foreign = [process for attempt, process in processes if attempt is None]
    foreign.sort(key=lambda process: (-(process.used_mb or 0), process.pid))
    return foreign[:MOST_STRANGERS]


def is_news(promised_mb: int, told_mb: int | None, measured_mb: int) -> bool:
    """Whether to tell that an attempt uses more than it was promised; `told_mb` is
    what was told last."""
    if measured_mb <= promised_mb:
        return False
    return told_mb is None or measured_mb >= told_mb * GROWTH
