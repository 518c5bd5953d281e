"""Wish against reality, by tables."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from jobs.status import Phase
from scheduler.inventory.base import DeviceProcess
from scheduler.reconcile import (
    MOST_STRANGERS,
    Ask,
    Ended,
    Known,
    Task,
    Use,
    attribute,
    is_news,
    leftovers,
    reconcile,
    strangers,
)
from scheduler.runner.base import ContainerState, Observation

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
AGO = NOW - timedelta(minutes=10)
RUNNING = Known(
    attempt_id="a",
    container="gpujob-a-1",
    phase=Phase.RUNNING,
    ran_for=timedelta(minutes=10),
    timeout=timedelta(hours=1),
    grace=timedelta(seconds=10),
)
STARTING = replace(RUNNING, phase=Phase.STARTING)
ENDED = Ended(attempt_id="a", name="gpujob-a-1", nonce="n")
STOPPING = replace(RUNNING, stop_wanted=True)


def seen(state: ContainerState) -> Observation:
    return Observation(name="gpujob-a-1", nonce="n", container_id="c", state=state)


CREATED, UP, EXITED = map(
    seen, (ContainerState.CREATED, ContainerState.RUNNING, ContainerState.EXITED)
)

TABLE = [
    ("whether its launch stands is the queue's to know", STARTING, None, Task.LAUNCH),
    ("its launcher died after the start: adopt it", STARTING, UP, Task.LAUNCH),
    ("made and not started: launch looks into it", STARTING, CREATED, Task.LAUNCH),
    ("it ended before its row said running", STARTING, EXITED, Task.COLLECT),
    (
        "cancelled before its launch: launch ends it",
        replace(STARTING, stop_wanted=True),
        None,
        Task.LAUNCH,
    ),
    ("it runs, all is well", RUNNING, UP, None),
    ("it exited", RUNNING, EXITED, Task.COLLECT),
    ("its container is gone", RUNNING, None, Task.COLLECT),
    (
        "its container was renamed by hand: it runs all the same",
        replace(RUNNING, container="c"),
        replace(UP, name="by-hand"),
        None,
    ),
    (
        "its container is back to created: that is no run",
        RUNNING,
        CREATED,
        Task.COLLECT,
    ),
    (
        "its time is over",
        replace(RUNNING, timeout=timedelta(minutes=10)),
        UP,
        Task.EXPIRE,
    ),
    (
        "its time is not over yet",
        replace(RUNNING, timeout=timedelta(minutes=10, seconds=1)),
        UP,
        None,
    ),
    ("a wish stands that was not sent", STOPPING, UP, Task.STOP),
    (
        "TERM was sent, the grace runs",
        replace(STOPPING, stop_sent_at=NOW - timedelta(seconds=9)),
        UP,
        None,
    ),
    (
        "the grace is over",
        replace(STOPPING, stop_sent_at=NOW - timedelta(seconds=10)),
        UP,
        Task.STOP,
    ),
    (
        "the clock was set back after TERM: no hour of grace",
        replace(STOPPING, stop_sent_at=NOW + timedelta(hours=1)),
        UP,
        Task.STOP,
    ),
    (
        "it was killed half a minute ago and runs: perhaps nobody can end it",
        replace(STOPPING, stop_sent_at=NOW - timedelta(seconds=40)),
        UP,
        Task.GIVE_UP,
    ),
    (
        "before that it is killed again and again",
        replace(STOPPING, stop_sent_at=NOW - timedelta(seconds=39)),
        UP,
        Task.STOP,
    ),
    ("stopped, and it exited", STOPPING, EXITED, Task.COLLECT),
    (
        "a wish and a time limit: the wish was first",
        replace(STOPPING, timeout=timedelta(0)),
        UP,
        Task.STOP,
    ),
    (
        "a crash during collect",
        replace(RUNNING, phase=Phase.COLLECTING),
        EXITED,
        Task.COLLECT,
    ),
    (
        "a crash after the container was removed",
        replace(RUNNING, phase=Phase.JUDGING),
        None,
        Task.COLLECT,
    ),
]


@pytest.mark.parametrize(
    ("known", "found", "task"), [r[1:] for r in TABLE], ids=[r[0] for r in TABLE]
)
def test_what_is_asked_for(
    known: Known, found: Observation | None, task: Task | None
) -> None:
    asks = reconcile(NOW, [known], [found] if found else [])
    assert [ask.task for ask in asks] == ([task] if task else [])


def test_a_stop_that_needs_more_is_another_ask_than_the_first() -> None:
    later = replace(STOPPING, stop_sent_at=AGO)
    (first,), (second,) = (reconcile(NOW, [k], [UP]) for k in (STOPPING, later))
    assert first != second
    assert first == Ask(task=Task.STOP, attempt_id="a", stage="running/False")


class TestLeftovers:
    def test_a_container_of_an_ended_attempt_is_one(self) -> None:
        assert leftovers([EXITED], [ENDED]) == ["a"]

    def test_also_when_somebody_gave_it_another_name(self) -> None:
        ended = replace(ENDED, container_id="c")
        assert leftovers([replace(UP, name="by-hand")], [ended]) == ["a"]

    @pytest.mark.parametrize(
        "ended", [[], [replace(ENDED, nonce="other")], [replace(ENDED, name="x")]]
    )
    def test_one_that_only_looks_like_ours_is_nobodys_to_touch(
        self, ended: list[Ended]
    ) -> None:
        assert leftovers([UP], ended) == []


USES = [
    ("nothing runs", 0, [], 0, Use(foreign_mb=0, measured_mb={})),
    (
        "a process started by hand",
        5000,
        [(None, 5000)],
        0,
        Use(foreign_mb=5000, measured_mb={}),
    ),
    (
        "ours alone",
        5000,
        [("a", 5000)],
        8000,
        Use(foreign_mb=0, measured_mb={"a": 5000}),
    ),
    (
        "ours in two processes, beside a foreign one",
        9000,
        [("a", 2000), ("a", 3000), (None, 4000)],
        8000,
        Use(foreign_mb=4000, measured_mb={"a": 5000}),
    ),
    (
        "used by nobody who is listed: the rest is foreign",
        9000,
        [("a", 5000)],
        8000,
        Use(foreign_mb=4000, measured_mb={"a": 5000}),
    ),
    (
        "ours, of a size that the driver does not tell: never foreign",
        9000,
        [("a", None)],
        8000,
        Use(foreign_mb=0, measured_mb={"a": 9000}),
    ),
    (
        "ours of unknown size beside a foreign one of known size",
        9000,
        [("a", None), (None, 4000)],
        8000,
        Use(foreign_mb=4000, measured_mb={"a": 5000}),
    ),
    (
        "two of ours of unknown size share the rest",
        9000,
        [("a", None), ("b", None)],
        8000,
        Use(foreign_mb=0, measured_mb={"a": 4500, "b": 4500}),
    ),
    (
        "a driver that lists nothing: promises are ours",
        9000,
        [],
        8000,
        Use(foreign_mb=1000, measured_mb={}),
    ),
    (
        "a driver that lists nothing, and nothing is ours",
        9000,
        [],
        0,
        Use(foreign_mb=9000, measured_mb={}),
    ),
    (
        "more is listed than is used",
        100,
        [("a", 500)],
        0,
        Use(foreign_mb=0, measured_mb={"a": 500}),
    ),
]


@pytest.mark.parametrize(
    ("used", "processes", "promised", "use"),
    [r[1:] for r in USES],
    ids=[r[0] for r in USES],
)
def test_what_is_used_is_told_apart(
    used: int, processes: list[tuple[str | None, int | None]], promised: int, use: Use
) -> None:
    assert attribute(used, processes, promised) == use


def on_gpu(
    *processes: tuple[str | None, int, int | None],
) -> list[tuple[str | None, DeviceProcess]]:
    return [(who, DeviceProcess(pid=pid, used_mb=mb)) for who, pid, mb in processes]


class TestStrangers:
    def test_those_in_our_containers_are_none(self) -> None:
        assert strangers(on_gpu(("a", 1, 100), ("b", 2, None))) == []

    def test_the_largest_come_first_and_those_of_unknown_size_last(self) -> None:
        told = strangers(
            on_gpu((None, 5, None), (None, 4, 10), ("a", 3, 99), (None, 2, 10))
            + on_gpu((None, 1, 500))
        )
        assert [(p.pid, p.used_mb) for p in told] == [
            (1, 500),
            (2, 10),
            (4, 10),
            (5, None),
        ]

    def test_of_many_the_largest_are_told(self) -> None:
        many = on_gpu(*[(None, pid, pid) for pid in range(1, 101)])
        told = strangers(many)
        assert len(told) == MOST_STRANGERS
        assert {p.pid for p in told} == set(range(69, 101))


@pytest.mark.parametrize(
    ("promised", "told", "measured", "news"),
    [
        (1000, None, 1000, False),
        (1000, None, 1001, True),
        (1000, 1001, 1050, False),
        (1000, 2000, 2199, False),
        (1000, 2000, 2200, True),
        (1000, 2000, 1500, False),
    ],
)
def test_an_attempt_above_its_promise_is_news_once_and_when_it_has_grown(
    promised: int, told: int | None, measured: int, news: bool
) -> None:
    assert is_news(promised, told, measured) is news
