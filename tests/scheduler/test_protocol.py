"""The protocol of one attempt, model-checked: whoever dies wherever, the program is
started once at most, and no GPU is given back under what runs or could still start.

The verbs are the real ones on real rows; the engine is one that has Docker's measured
oddities. That two actors never work on one attempt at the same time is the lock's doing
(tests/e2e/test_one_start.py), so that what is left of concurrency is an actor that died
and whose last request the engine has still to carry out.
"""

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import hypothesis.strategies as st
import pytest
from django.db import connection
from django.utils import timezone
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from jobs import lifecycle
from jobs.models import Attempt, Job
from jobs.status import Phase, Reason
from scheduler.execution import collect, ground, launch, stop
from scheduler.models import Node, NodeState
from scheduler.runner.base import ContainerState, LaunchSpec, Observation, RunnerFault
from tests.factories import make_job
from tests.fakes import FakeRunner
from tests.scheduler.factories import holds, make_gpu, make_node, place

EXAMPLES = int(os.environ.get("EXAMPLES", "150"))
CRASHES = ["", "before create", "after create", "start on its way", "after start"]


class Death(BaseException):
    """kill -9 of the actor: nothing of it goes on, no handler runs."""


class OddEngine(FakeRunner):
    """`on_its_way` are starts that were asked for by an actor that died since, by the
    id of the container. `poisoned` are containers whose start a crash of the engine cut
    in two: they never start again."""

    def __init__(self) -> None:
        super().__init__()
        self.crash = ""
        self.on_its_way: list[str] = []
        self.poisoned: set[str] = set()
        self.ran: Counter[str] = Counter()

    def launch(self, spec: LaunchSpec) -> Observation:
        if spec.name in self.containers:
            return self.containers[spec.name]
        self._die_if("before create")
        self.create(spec)
        self.specs[spec.name] = spec
        self._die_if("after create")
        container_id = self.containers[spec.name].container_id
        if self.crash == "start on its way":
            self.on_its_way.append(container_id)
        self._die_if("start on its way")
        self.start(container_id)
        self._die_if("after start")
        return self.containers[spec.name]

    def _die_if(self, where: str) -> None:
        if self.crash == where:
            self.crash = ""
            raise Death(where)

    def start(self, container_id: str) -> None:
        """As Docker does it: also of one that ended, and never of one that is gone."""
        for name, found in list(self.containers.items()):
            if found.container_id != container_id or name in self.poisoned:
                continue
            if found.state is not ContainerState.RUNNING:
                self.change(name, state=ContainerState.RUNNING, exit_code=None)
                self.ran[name] += 1

    def catch_up(self) -> None:
        for container_id in self.on_its_way:
            self.start(container_id)
        self.on_its_way.clear()

    def restart(self) -> None:
        """A crash of the engine: what was on its way is poisoned."""
        for name, found in self.containers.items():
            if found.container_id in self.on_its_way:
                self.poisoned.add(name)
        self.on_its_way.clear()


@contextmanager
def mortal() -> Iterator[None]:
    try:
        yield
    except (Death, RunnerFault):
        # The kernel frees its lock, and the database rolls back what it had open.
        assert not connection.needs_rollback


class Protocol(RuleBasedStateMachine):
    engine: OddEngine

    @initialize()
    def begin(self) -> None:
        self.engine = OddEngine()
        Protocol.engine = self.engine
        ground.node_runner.cache_clear()
        # As it was before the last example, which may have failed a start.
        Node.objects.update(state=NodeState.UP, state_until=None)
        self.job = make_job(
            command=["train"], gpu_count=1, min_vram_mb=1, share=True, grace_s=0
        )
        self.attempt = place(self.job)

    # --- What happens ---------------------------------------------------------------

    @rule(crash=st.sampled_from(CRASHES))
    def launches(self, crash: str) -> None:
        self.engine.crash = crash
        with mortal():
            launch(str(self.attempt.pk))
        self.engine.crash = ""

    @rule(
        verb=st.sampled_from(["", "observe", "logs", "remove"]), is_late=st.booleans()
    )
    def collects(self, verb: str, is_late: bool) -> None:
        faults = self.engine.late_faults if is_late else self.engine.faults
        if verb:
            faults[verb] = Death(verb)
        with mortal():
            collect(str(self.attempt.pk))
        self.engine.faults.clear()
        self.engine.late_faults.clear()

    @rule()
    def stops(self) -> None:
        with mortal():
            stop(str(self.attempt.pk))

    @rule()
    def is_cancelled(self) -> None:
        job = Job.objects.get(pk=self.job.pk)
        if not job.is_terminal:
            lifecycle.request_cancel(job, by=job.owner)

    @rule(code=st.sampled_from([0, 3, 137]))
    def program_ends(self, code: int) -> None:
        for name, found in list(self.engine.containers.items()):
            if found.state is ContainerState.RUNNING:
                self.engine.end(name, code)

    @rule()
    def somebody_removes_it(self) -> None:
        self.engine.containers.clear()

    @rule()
    def engine_catches_up(self) -> None:
        self.engine.catch_up()

    @rule()
    def engine_restarts(self) -> None:
        self.engine.restart()

    # --- What must hold -------------------------------------------------------------

    @invariant()
    def its_program_is_started_once_at_most(self) -> None:
        assert all(times <= 1 for times in self.engine.ran.values())

    @invariant()
    def what_is_given_back_can_not_run(self) -> None:
        if holds(self.attempt):
            return
        found = self.engine.containers.get(self.attempt.container_name)
        if found is not None:
            assert found.state is ContainerState.EXITED
            assert found.container_id not in self.engine.on_its_way

    @invariant()
    def no_false_success(self) -> None:
        attempt = Attempt.objects.get(pk=self.attempt.pk)
        if attempt.reason == Reason.COMPLETED:
            assert attempt.exit_code == 0
            assert self.engine.ran[attempt.container_name] == 1

    def teardown(self) -> None:
        """Nobody dies any more: it comes to its end, and leaves nothing."""
        for _ in range(4):
            self.engine.catch_up()
            self.program_ends(0)
            for verb in (launch, stop, collect):
                verb(str(self.attempt.pk))
        attempt = Attempt.objects.get(pk=self.attempt.pk)
        assert not attempt.is_live, Phase(attempt.phase)
        assert not holds(attempt)
        assert attempt.container_name not in self.engine.containers
        self.its_program_is_started_once_at_most()


@pytest.mark.django_db
def test_no_order_of_events_breaks_it(
    monkeypatch: pytest.MonkeyPatch, runner: FakeRunner
) -> None:
    # More than all that the examples hold at once.
    soon = timezone.now() + timedelta(hours=1)
    node = make_node(cpus=4000, memory_mb=2**20, heartbeat_at=soon)
    make_gpu(node, total_mb=2**20)
    monkeypatch.setattr(ground, "ProcessRunner", lambda _: Protocol.engine)
    run_state_machine_as_test(
        Protocol,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=15,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
