import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pytest
from django.db import connection
from django.utils import timezone

from jobs import lifecycle
from jobs.exceptions import GpuJobsError, OperatorsOnly, TransitionConflict
from jobs.models import AuditRecord, Job, User
from jobs.signals import job_queued
from jobs.spec import Parent
from jobs.status import Status
from jobs.waiting import IN_LINE
from tests.factories import make_attempt, make_job

pytestmark = pytest.mark.django_db

NOT_QUEUED = [status for status in Status if status != Status.QUEUED]


def story(job: Job) -> list[str]:
    return [event.event_type for event in job.events.all()]


def is_ready(job: Job) -> bool:
    return Job.objects.ready(timezone.now()).filter(pk=job.pk).exists()


class TestHold:
    def test_a_held_job_is_queued_and_out_of_line(self, alice: User) -> None:
        job = lifecycle.hold(make_job(alice), by=alice)
        job.refresh_from_db()
        assert (job.status, job.is_held, job.held_by) == ("queued", True, alice)
        assert (job.wait_reason, is_ready(job)) == ("held", False)
        assert story(job) == ["queued", "held"]
        record = AuditRecord.objects.latest("id")
        assert (record.action, record.actor) == ("job.held", alice.email)

    def test_it_does_not_start(self, alice: User) -> None:
        job = lifecycle.hold(make_job(alice), by=alice)
        with pytest.raises(TransitionConflict):
            make_attempt(job)

    def test_twice_is_as_once(self, alice: User) -> None:
        job = lifecycle.hold(make_job(alice), by=alice)
        held_at = job.held_at
        assert lifecycle.hold(job, by=alice).held_at == held_at
        assert story(job) == ["queued", "held"]

    def test_an_operators_takes_the_place_of_the_owners(
        self, alice: User, olga: User
    ) -> None:
        job = make_job(alice, hold=True)
        lifecycle.hold(job, by=olga)
        assert (job.held_by, story(job)) == (olga, ["queued", "held"])
        assert "only an operator" in job.wait_text

    def test_the_owners_does_not_take_the_place_of_an_operators(
        self, alice: User, olga: User
    ) -> None:
        job = lifecycle.hold(make_job(alice), by=olga)
        assert lifecycle.hold(job, by=alice).held_by == olga

    @pytest.mark.parametrize("status", NOT_QUEUED)
    def test_only_a_queued_job_is_held(self, alice: User, status: Status) -> None:
        job = make_job(alice, status=status)
        before = story(job)
        with pytest.raises(TransitionConflict, match=f"it is {status}"):
            lifecycle.hold(job, by=alice)
        job.refresh_from_db()
        assert (job.is_held, story(job)) == (False, before)

    def test_a_held_job_can_be_cancelled(self, alice: User) -> None:
        job = make_job(alice, hold=True)
        assert lifecycle.request_cancel(job, by=alice).status == "cancelled"


class TestRelease:
    def test_it_is_in_line_again_at_its_age(self, alice: User) -> None:
        job = make_job(alice, hold=True)
        created_at = job.created_at
        lifecycle.release_hold(job, by=alice)
        job.refresh_from_db()
        assert (job.held_at, job.held_by, job.created_at) == (None, None, created_at)
        assert (job.wait_reason, job.wait_text) == IN_LINE
        assert is_ready(job)
        assert story(job) == ["queued", "released"]

    def test_of_a_job_that_is_not_held_it_changes_nothing(self, alice: User) -> None:
        job = make_job(alice)
        lifecycle.release_hold(job, by=alice)
        assert story(job) == ["queued"]

    def test_an_operators_hold_is_an_operators_to_end(
        self, alice: User, olga: User
    ) -> None:
        job = lifecycle.hold(make_job(alice), by=olga)
        with pytest.raises(OperatorsOnly, match="ask an operator"):
            lifecycle.release_hold(job, by=alice)
        job.refresh_from_db()
        assert job.is_held
        other = olga.__class__.objects.create_user("two@example.org", is_staff=True)
        assert not lifecycle.release_hold(job, by=other).is_held

    def test_an_operator_ends_the_owners_hold_too(
        self, alice: User, olga: User
    ) -> None:
        job = make_job(alice, hold=True)
        assert not lifecycle.release_hold(job, by=olga).is_held

    def test_who_holds_an_own_job_releases_it(self, olga: User) -> None:
        job = lifecycle.hold(make_job(olga), by=olga)
        olga.is_staff = False
        assert not lifecycle.release_hold(job, by=olga).is_held

    @pytest.mark.parametrize("status", NOT_QUEUED)
    def test_only_a_queued_job_is_released(self, alice: User, status: Status) -> None:
        job = make_job(alice, status=status)
        with pytest.raises(TransitionConflict):
            lifecycle.release_hold(job, by=alice)

    def test_what_else_keeps_it_is_told_then(self, alice: User) -> None:
        later = timezone.now() + timedelta(days=1)
        timed = make_job(alice, hold=True, begin_at=later)
        after = make_job(alice, hold=True, depends_on=[Parent(timed.pk)])
        for job, reason in ((timed, "begin_time"), (after, "dependency")):
            lifecycle.release_hold(job, by=alice)
            assert (job.wait_reason, is_ready(job)) == (reason, False)

    @pytest.mark.django_db(transaction=True)
    def test_the_scheduler_is_told(self, alice: User) -> None:
        job = make_job(alice, hold=True)
        heard: list[object] = []
        job_queued.connect(lambda **_: heard.append(1), weak=False, dispatch_uid="t")
        try:
            lifecycle.release_hold(job, by=alice)
        finally:
            job_queued.disconnect(dispatch_uid="t")
        assert heard == [1]


class TestTop:
    def test_an_operator_moves_a_queued_job(self, alice: User, olga: User) -> None:
        job = lifecycle.move_to_top(make_job(alice), by=olga)
        assert job.topped_at is not None
        assert story(job) == ["queued", "moved_to_top"]
        record = AuditRecord.objects.latest("id")
        assert (record.action, record.actor) == ("job.moved_to_top", olga.email)

    def test_the_latest_is_first(self, alice: User, olga: User) -> None:
        one, other = make_job(alice), make_job(alice)
        first = lifecycle.move_to_top(one, by=olga).topped_at
        second = lifecycle.move_to_top(other, by=olga).topped_at
        third = lifecycle.move_to_top(one, by=olga).topped_at
        assert first is not None
        assert second is not None
        assert third is not None
        assert first < second < third

    def test_the_owner_can_not(self, alice: User) -> None:
        job = make_job(alice)
        with pytest.raises(OperatorsOnly):
            lifecycle.move_to_top(job, by=alice)
        job.refresh_from_db()
        assert (job.topped_at, story(job)) == (None, ["queued"])

    @pytest.mark.parametrize("status", NOT_QUEUED)
    def test_only_a_queued_job_is_moved(
        self, alice: User, olga: User, status: Status
    ) -> None:
        job = make_job(alice, status=status)
        with pytest.raises(TransitionConflict):
            lifecycle.move_to_top(job, by=olga)


class TestEachTask:
    def tasks(self, first: Job) -> list[Job]:
        assert first.array_id is not None
        return list(Job.objects.tasks_of(first.array_id))

    def test_it_is_done_to_all_that_have_not_ended(self, alice: User) -> None:
        first = make_job(alice, array="0-3")
        _, running, ended, _ = self.tasks(first)
        make_attempt(running)
        lifecycle.request_cancel(ended, by=alice)
        lifecycle.each_task(lifecycle.request_cancel, first, by=alice)
        assert [task.status for task in self.tasks(first)] == [
            *["cancelled", "running", "cancelled", "cancelled"],
        ]
        assert first.status == "cancelled"
        running.refresh_from_db()
        assert running.cancel_requested
        assert story(ended).count("cancelled") == 1

    def test_those_it_can_not_be_done_to_are_passed_over(self, alice: User) -> None:
        first = make_job(alice, array="0-2")
        make_attempt(first)
        lifecycle.each_task(lifecycle.hold, first, by=alice)
        assert [task.is_held for task in self.tasks(first)] == [False, True, True]

    def test_other_jobs_are_left_alone(self, alice: User) -> None:
        first, other, array = (
            make_job(alice, array="0-1"),
            make_job(alice),
            make_job(alice, array="0-1"),
        )
        lifecycle.each_task(lifecycle.request_cancel, first, by=alice)
        left = [other, *self.tasks(array)]
        assert {Job.objects.get(pk=job.pk).status for job in left} == {"queued"}

    def test_the_last_task_goes_first(self, alice: User) -> None:
        first = make_job(alice, array="0-2")
        lifecycle.each_task(lifecycle.hold, first, by=alice)
        held = [task.held_at for task in self.tasks(first)]
        assert held == sorted(held, key=lambda at: str(at), reverse=True)

    def test_an_array_that_has_ended_is_a_conflict(self, alice: User) -> None:
        first = make_job(alice, array="0-1")
        lifecycle.each_task(lifecycle.request_cancel, first, by=alice)
        with pytest.raises(TransitionConflict, match="Every task"):
            lifecycle.each_task(lifecycle.request_cancel, first, by=alice)

    def test_where_nothing_can_be_done_the_reason_is_raised(
        self, alice: User, olga: User
    ) -> None:
        first = make_job(alice, array="0-1")
        lifecycle.each_task(lifecycle.hold, first, by=olga)
        with pytest.raises(OperatorsOnly):
            lifecycle.each_task(lifecycle.release_hold, first, by=alice)


@pytest.mark.django_db(transaction=True)
def test_of_a_hold_and_a_start_at_once_one_is_refused(alice: User) -> None:
    for _ in range(10):
        job = make_job(alice)
        refused = at_once(
            partial(lifecycle.hold, Job.objects.get(pk=job.pk), by=alice),
            partial(make_attempt, Job.objects.get(pk=job.pk), status=Status.STARTING),
        )
        job.refresh_from_db()
        assert len(refused) == 1
        assert job.is_held is (job.status == Status.QUEUED)


def at_once(*verbs: Callable[[], object]) -> list[GpuJobsError]:
    start = threading.Barrier(len(verbs))
    refused: list[GpuJobsError] = []

    def run(verb: Callable[[], object]) -> None:
        start.wait()
        try:
            verb()
        except GpuJobsError as error:
            refused.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=[verb]) for verb in verbs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return refused
