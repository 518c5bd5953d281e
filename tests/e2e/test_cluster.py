"""The cluster and its watchdog, as real processes that are killed in every part."""

import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scheduler.runner.birth import born
from tests.chaos.processes import AT_BIRTH, WORKERS, children
from tests.e2e.stack import Stack, until

# Nobody's: the task looks, finds no row, and is over.
ASK = "from scheduler.queue import enqueue; enqueue('launch', '{}', node='gauss')"
LEFT = "from scheduler.models import TaskMessage as T; print(T.objects.count())"


class Tree:
    """The processes of one cluster, by their place: they have no other names."""

    def __init__(self, watchdog: int) -> None:
        self.watchdog = watchdog
        [self.main] = until(lambda: children(watchdog), "the cluster")
        [self.sentinel] = until(lambda: children(self.main), "its sentinel")
        self.parts = until(self._whole, "its workers, monitor and pusher")

    def _whole(self) -> list[int] | None:
        found = children(self.sentinel)
        return found if len(found) == len(AT_BIRTH) else None

    @property
    def workers(self) -> list[int]:
        return self._called("worker")

    @property
    def monitor(self) -> int:
        return self._called("monitor")[0]

    @property
    def pusher(self) -> int:
        return self._called("pusher")[0]

    def _called(self, part: str) -> list[int]:
        return [p for p, name in zip(self.parts, AT_BIRTH, strict=True) if name == part]

    @property
    def all(self) -> list[int]:
        return [self.main, self.sentinel, *self.parts]


def is_gone(pids: list[int]) -> bool:
    return not any(born(pid) for pid in pids)


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    stack = Stack(tmp_path / "stack", {})
    try:
        stack.start("cluster")
        yield stack
    finally:
        stack.destroy()


@pytest.fixture
def tree(stack: Stack) -> Tree:
    tree = Tree(stack.pid("cluster"))
    works(stack)
    return tree


def works(stack: Stack) -> None:
    """A task that is asked for now is done."""
    stack.shell(ASK.format(uuid.uuid4()))
    until(lambda: stack.shell(LEFT).strip() == "0", "the task to be done")


def test_there_are_as_many_workers_as_the_tests_believe(settings: Any) -> None:
    """Those who kill them by name go by this number."""
    assert settings.Q_CLUSTER["workers"] == WORKERS


@pytest.mark.parametrize("part", ["main", "sentinel", "pusher", "monitor"])
def test_killed_in_any_part_it_goes_on(stack: Stack, tree: Tree, part: str) -> None:
    os.kill(getattr(tree, part), signal.SIGKILL)
    works(stack)


def test_a_worker_that_takes_the_lock_of_the_queue_with_it_silences_nothing(
    stack: Stack, tree: Tree
) -> None:
    """One of them waits at the queue, with its lock; the others for the lock."""
    for worker in tree.workers:
        os.kill(worker, signal.SIGKILL)
    works(stack)


def test_nothing_of_it_outlives_its_watchdog(stack: Stack, tree: Tree) -> None:
    os.kill(tree.watchdog, signal.SIGKILL)
    until(lambda: is_gone(tree.all), "every process to end", 10)


def test_nor_one_that_its_watchdog_had_only_just_begun(stack: Stack) -> None:
    """It takes a second or so until it can ask to die with its parent."""
    watchdog = stack.pid("cluster")
    begun = until(lambda: children(watchdog), "the cluster to be begun")
    os.kill(watchdog, signal.SIGKILL)
    until(lambda: is_gone(begun), "it to end", 30)


def test_nothing_of_a_cluster_outlives_its_first_process(
    stack: Stack, tree: Tree
) -> None:
    os.kill(tree.main, signal.SIGKILL)
    until(lambda: is_gone(tree.all), "every process to end", 10)
    works(stack)


@pytest.mark.parametrize("is_deaf", [False, True])
def test_it_ends_when_it_is_told_also_when_it_can_not_hear(
    stack: Stack, tree: Tree, is_deaf: bool
) -> None:
    if is_deaf:
        for worker in tree.workers:
            os.kill(worker, signal.SIGKILL)
    os.kill(tree.watchdog, signal.SIGTERM)
    until(lambda: is_gone([tree.watchdog, *tree.all]), "every process to end", 20)
