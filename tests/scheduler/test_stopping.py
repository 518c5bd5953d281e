"""Stop: a wish is carried out, TERM first, KILL once the grace is over."""

from datetime import timedelta

import pytest
import time_machine
from django.utils import timezone

from jobs import lifecycle
from jobs.models import Attempt
from jobs.status import Reason
from scheduler.execution import collect, launch, stop
from scheduler.models import GPU
from scheduler.runner.base import RunnerFault
from tests.fakes import FakeRunner
from tests.scheduler.factories import make_reserved

pytestmark = pytest.mark.django_db


def make_running(runner: FakeRunner, **spec: object) -> Attempt:
    attempt = make_reserved(**spec)
    launch(str(attempt.pk))
    runner.deaf.add(attempt.container_name)
    return Attempt.objects.get(pk=attempt.pk)


@pytest.fixture
def attempt(gpu: GPU, runner: FakeRunner) -> Attempt:
    """It runs, ignores TERM, and has a grace of 10 s."""
    return make_running(runner, grace_s=10)


def wish(attempt: Attempt) -> None:
    lifecycle.request_stop(attempt, Reason.TIMED_OUT, by="test")


def do_stop(attempt: Attempt, after_s: float = 0) -> None:
    with time_machine.travel(timezone.now() + timedelta(seconds=after_s), tick=False):
        stop(str(attempt.pk))


def test_without_a_wish_nothing_is_sent(attempt: Attempt, runner: FakeRunner) -> None:
    do_stop(attempt)
    assert runner.signals == []


def test_first_it_is_asked_to_end(attempt: Attempt, runner: FakeRunner) -> None:
    wish(attempt)
    do_stop(attempt)
    assert runner.signals == [(attempt.container_name, False)]


def test_that_it_was_asked_is_written_before(
    attempt: Attempt, runner: FakeRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []

    def look(_: str, *, force: bool) -> None:
        written.append(Attempt.objects.get().stop_sent_at)

    monkeypatch.setattr(runner, "stop", look)
    wish(attempt)
    do_stop(attempt)
    assert None not in written
    assert len(written) == 1


def test_within_its_grace_it_is_left_alone(
    attempt: Attempt, runner: FakeRunner
) -> None:
    wish(attempt)
    for after_s in (0, 1, 9.9):
        do_stop(attempt, after_s)
    assert runner.signals == [(attempt.container_name, False)]


def test_once_its_grace_is_over_it_is_killed(
    attempt: Attempt, runner: FakeRunner
) -> None:
    wish(attempt)
    do_stop(attempt)
    do_stop(attempt, 10.1)
    assert runner.signals == [
        (attempt.container_name, False),
        (attempt.container_name, True),
    ]


def test_a_clock_that_was_set_back_spares_it_for_no_hour(
    attempt: Attempt, runner: FakeRunner
) -> None:
    wish(attempt)
    do_stop(attempt)
    do_stop(attempt, -3600)
    assert runner.signals[-1] == (attempt.container_name, True)


def test_without_a_grace_it_is_killed_at_once(gpu: GPU, runner: FakeRunner) -> None:
    attempt = make_running(runner, grace_s=0)
    wish(attempt)
    do_stop(attempt)
    assert runner.signals == [(attempt.container_name, True)]


def test_a_kill_that_was_lost_is_sent_again(
    attempt: Attempt, runner: FakeRunner
) -> None:
    wish(attempt)
    do_stop(attempt)
    runner.faults["stop"] = RunnerFault(Reason.DAEMON_FAULT, "no answer")
    with pytest.raises(RunnerFault):
        do_stop(attempt, 11)
    do_stop(attempt, 12)
    assert runner.signals[-1] == (attempt.container_name, True)


def test_what_has_ended_meanwhile_is_judged_by_the_wish_all_the_same(
    attempt: Attempt, runner: FakeRunner
) -> None:
    wish(attempt)
    runner.end(attempt.container_name, 0)
    do_stop(attempt)
    assert runner.signals == []
    collect(str(attempt.pk))
    attempt.refresh_from_db()
    assert (attempt.reason, attempt.job.status) == ("timed_out", "failed")


def test_an_attempt_that_ended_is_left_alone(
    attempt: Attempt, runner: FakeRunner
) -> None:
    wish(attempt)
    runner.end(attempt.container_name, 0)
    collect(str(attempt.pk))
    do_stop(attempt)
    assert runner.signals == []
    attempt.refresh_from_db()
    assert attempt.stop_sent_at is None


def test_a_container_that_is_gone_or_anothers_is_sent_nothing(
    attempt: Attempt, runner: FakeRunner
) -> None:
    wish(attempt)
    runner.change(attempt.container_name, nonce="anothers")
    do_stop(attempt)
    del runner.containers[attempt.container_name]
    do_stop(attempt, 11)
    assert runner.signals == []


def test_what_was_not_launched_yet_is_not_stopped(gpu: GPU, runner: FakeRunner) -> None:
    attempt = make_reserved()
    wish(attempt)
    do_stop(attempt)
    attempt.refresh_from_db()
    assert attempt.stop_sent_at is None
