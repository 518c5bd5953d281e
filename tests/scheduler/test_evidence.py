"""What the kernel says of a container that was started: kept, and acted on."""

from dataclasses import replace
from typing import Any

import pytest

from jobs.models import Attempt
from scheduler.execution import collect, launch
from scheduler.models import GPU
from scheduler.runner.base import Rights, RunnerFault
from tests.fakes import FakeRunner
from tests.scheduler.factories import holds, make_reserved

pytestmark = pytest.mark.django_db

AS_MEANT = Rights(
    capabilities=0,
    no_new_privileges=True,
    seccomp=2,
    user=(65534, 65534),
    gpu_devices=(),
    mounts={},
)


@pytest.fixture
def attempt(gpu: GPU, runner: FakeRunner) -> Attempt:
    return make_reserved()


def started(runner: FakeRunner, attempt: Attempt, rights: Rights | None) -> Attempt:
    if rights:
        runner.has[attempt.container_name] = rights
    launch(str(attempt.pk))
    return read(attempt)


def read(attempt: Attempt) -> Attempt:
    return Attempt.objects.select_related("job").get(pk=attempt.pk)


def test_what_was_seen_is_kept_to_the_end(runner: FakeRunner, attempt: Attempt) -> None:
    started(runner, attempt, AS_MEANT)
    runner.end(attempt.container_name)
    collect(str(attempt.pk))
    attempt = read(attempt)
    assert attempt.reason == "completed"
    assert attempt.evidence["rights"] == {
        "capabilities": 0,
        "no_new_privileges": True,
        "seccomp": 2,
        "user": [65534, 65534],
        "gpu_devices": [],
        "mounts": {},
    }
    assert attempt.evidence["oom_killed"] is False


def test_one_that_has_more_than_it_should_is_killed_without_grace(
    runner: FakeRunner, attempt: Attempt
) -> None:
    attempt = started(runner, attempt, replace(AS_MEANT, capabilities=1 << 21))
    assert runner.signals == [(attempt.container_name, True)]
    assert attempt.stop_reason == "policy_denied"
    assert "rights" in attempt.evidence
    collect(str(attempt.pk))
    job = read(attempt).job
    assert (job.status, job.reason) == ("failed", "policy_denied")
    assert job.reason_text == (
        "It was not as it was to be when it started, and was killed. "
        "It has capabilities that it should not have: 0x200000."
    )
    assert not holds(attempt)


def test_of_one_that_ended_at_once_nothing_is_told(
    runner: FakeRunner, attempt: Attempt
) -> None:
    attempt = started(runner, attempt, None)
    assert attempt.phase == "running"
    assert "rights" not in attempt.evidence


def test_one_whose_look_failed_is_looked_at_by_the_next_launch(
    runner: FakeRunner, attempt: Attempt
) -> None:
    runner.has[attempt.container_name] = AS_MEANT
    runner.faults["rights"] = RunnerFault("daemon_fault", "no answer")  # type: ignore[arg-type]
    with pytest.raises(RunnerFault):
        launch(str(attempt.pk))
    assert read(attempt).phase == "starting"
    launch(str(attempt.pk))
    attempt = read(attempt)
    assert attempt.phase == "running"
    assert "rights" in attempt.evidence
    assert runner.starts == [attempt.container_name]


def test_what_the_host_grants_is_no_more_than_it_should(
    runner: FakeRunner, attempt: Attempt, declare: Any
) -> None:
    declare(capabilities=["IPC_LOCK"])
    attempt = started(runner, attempt, replace(AS_MEANT, capabilities=1 << 14))
    assert attempt.stop_reason == ""
    assert runner.specs[attempt.container_name].capabilities == ("IPC_LOCK",)
