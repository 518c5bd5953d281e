"""Fixtures of the rig, for the tests' conftest to take up."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig.daemon import DOCKERD, PrivateDaemon
from tests.rig.image import BUSYBOX
from tests.rig.machine import StandInMachine

IMAGE = "gpujobs-test/busybox:1"


@pytest.fixture(scope="session")
def session_machine(tmp_path_factory: pytest.TempPathFactory) -> StandInMachine:
    return StandInMachine(tmp_path_factory.mktemp("machine"))


@pytest.fixture
def machine(session_machine: StandInMachine) -> StandInMachine:
    """The machine that the daemon sees too, in order and idle again for each test."""
    session_machine.reset()
    return session_machine


@pytest.fixture(scope="session")
def daemon(session_machine: StandInMachine) -> Iterator[PrivateDaemon]:
    yield from running_daemon(PrivateDaemon(session_machine))


def running_daemon(daemon: PrivateDaemon) -> Iterator[PrivateDaemon]:
    """For fixtures: started and with the image in it, destroyed at the end."""
    try:
        require_docker()
        daemon.start()
        daemon.import_image(IMAGE)
        yield daemon
    finally:
        daemon.destroy()


def require_docker() -> None:
    missing = [path for path in (DOCKERD, BUSYBOX) if not Path(path).exists()]
    if os.geteuid() != 0 or missing or not shutil.which("gcc"):
        pytest.skip(f"needs root, gcc, docker.io and busybox-static; lacks {missing}")
