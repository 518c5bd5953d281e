"""A whole product on stand-in GPUs for each file that asks for it."""

from collections.abc import Iterator

import pytest

from tests.e2e.gates import Gates
from tests.e2e.operator import Operator
from tests.e2e.stack import Person, Stack, running, until
from tests.postgres import Server, programs, temporary_server
from tests.rig.daemon import PrivateDaemon
from tests.rig.machine import StandInMachine


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A PostgreSQL to be stopped, as the session's must not be."""
    if programs() is None:
        pytest.skip("needs PostgreSQL's server programs")
    with temporary_server() as server:
        yield server


@pytest.fixture(scope="module")
def gates(tmp_path_factory: pytest.TempPathFactory) -> Gates:
    return Gates(tmp_path_factory.mktemp("gates"))


@pytest.fixture(scope="module")
def stack(
    tmp_path_factory: pytest.TempPathFactory,
    daemon: PrivateDaemon,
    session_machine: StandInMachine,
    gates: Gates,
) -> Iterator[Stack]:
    session_machine.reset()
    env = daemon.product_env(gates.folder)
    with running(tmp_path_factory.mktemp("stack"), env) as stack:
        yield stack


@pytest.fixture(scope="module")
def ada(stack: Stack) -> Person:
    return stack.person("ada@example.org")


@pytest.fixture(scope="module")
def operator(stack: Stack) -> Operator:
    return Operator(stack, "operator@example.org")


@pytest.fixture
def tidy(operator: Operator) -> Iterator[None]:
    """Nothing runs or waits after a test, whatever became of it."""
    yield
    until(lambda: not operator.cancel_all(), "every job to end")
