import threading
import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.db import IntegrityError, connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from jobs import lifecycle
from jobs.exceptions import OverQuota
from jobs.models import AuditRecord, Job, JobDependency, JobEvent, Quota, User
from jobs.signals import job_queued
from jobs.spec import Parent
from jobs.status import Condition, Status, WaitReason
from jobs.waiting import IN_LINE
from tests.factories import IMAGE, make_job, make_user

pytestmark = pytest.mark.django_db


def refusal(owner: User, *parents: Parent) -> ValidationError:
    with pytest.raises(ValidationError) as caught:
        make_job(owner, depends_on=parents)
    [error] = caught.value.error_dict["depends_on"]
    return error


# --- Arrays --------------------------------------------------------------------------


class TestArray:
    def test_it_makes_a_job_for_each_index_and_the_first_is_returned(
        self, alice: User
    ) -> None:
        first = make_job(alice, array="3,1,7%2", name="sweep")
        tasks = list(Job.objects.tasks_of(first.pk))
        assert [task.array_index for task in tasks] == [1, 3, 7]
        assert tasks[0] == first
        assert {task.array_id for task in tasks} == {first.pk}
        assert {(task.name, task.array) for task in tasks} == {("sweep", "3,1,7%2")}

    def test_its_tasks_are_in_line_in_the_order_of_their_indices(
        self, alice: User
    ) -> None:
        make_job(alice, array="0-19")
        line = [job.array_index for job in Job.objects.queued()]
        assert line == list(range(20))

    def test_each_task_has_its_event_and_its_audit_record(self, alice: User) -> None:
        make_job(alice, array="0-2")
        for job in Job.objects.all():
            assert [event.event_type for event in job.events.all()] == ["queued"]
            assert AuditRecord.objects.get(target=str(job.pk)).action == "job.queued"

    def test_the_key_is_on_the_first_task_alone(self, alice: User) -> None:
        first = make_job(alice, array="0-2", idempotency_key="k1")
        keys = list(Job.objects.exclude(pk=first.pk).values_list("idempotency_key"))
        assert (first.idempotency_key, keys) == ("k1", [(None,), (None,)])

    def test_none_is_made_where_one_can_not_be(self, alice: User) -> None:
        make_job(alice, idempotency_key="k1")
        with pytest.raises(IntegrityError):
            make_job(alice, array="0-2", idempotency_key="k1")

    def test_a_job_alone_is_no_task(self, alice: User) -> None:
        job = make_job(alice)
        assert (job.array, job.array_id, job.array_index) == ("", None, None)

    def test_a_thousand_tasks_take_as_many_statements_as_two(self, alice: User) -> None:
        parent = make_job(alice)

        def statements(array: str) -> int:
            with CaptureQueriesContext(connection) as captured:
                make_job(alice, array=array, depends_on=[Parent(parent.pk)])
            return len(captured)

        few, many = statements("0-1"), statements("0-999")
        if connection.vendor == "sqlite":
            # Django splits what goes over 999 parameters of a statement.
            assert many < few + 100
        else:
            assert many == few
        assert Job.objects.count() == 1003


# --- What keeps a job out of the line from the first ---------------------------------


class TestWait:
    def test_a_job_in_line_is_told_so(self, alice: User) -> None:
        job = make_job(alice, begin_at=timezone.now() - timedelta(days=1))
        assert (job.wait_reason, job.wait_text) == IN_LINE

    def test_a_held_job_is_told_to_be_held_by_whom(self, alice: User) -> None:
        job = make_job(alice, hold=True)
        assert (job.held_by, job.wait_reason) == (alice, "held")
        assert job.held_at is not None
        assert "Release it" in job.wait_text
        assert job.events.get().payload["hold"] is True

    def test_a_job_that_is_not_held_says_nothing_of_it(self, alice: User) -> None:
        assert "hold" not in make_job(alice).events.get().payload

    def test_a_time_to_come_is_told(self, alice: User) -> None:
        job = make_job(alice, begin_at=timezone.now() + timedelta(days=1))
        assert job.wait_reason == WaitReason.BEGIN_TIME

    def test_another_job_is_told_by_its_id(self, alice: User) -> None:
        parent = make_job(alice)
        job = make_job(alice, depends_on=[Parent(parent.pk)])
        assert job.wait_reason == WaitReason.DEPENDENCY
        assert str(parent.pk) in job.wait_text

    def test_of_all_three_the_hold_is_told(self, alice: User) -> None:
        later = timezone.now() + timedelta(days=1)
        parents = [Parent(make_job(alice).pk)]
        held = make_job(alice, hold=True, begin_at=later, depends_on=parents)
        timed = make_job(alice, begin_at=later, depends_on=parents)
        assert [held.wait_reason, timed.wait_reason] == ["held", "begin_time"]

    def test_every_task_of_an_array_has_it(self, alice: User) -> None:
        parent = make_job(alice)
        make_job(alice, array="0-2", hold=True, depends_on=[Parent(parent.pk)])
        assert Job.objects.filter(wait_reason="held", held_by=alice).count() == 3
        assert JobDependency.objects.filter(parent_id=parent.pk).count() == 3


# --- Other jobs ----------------------------------------------------------------------


class TestParents:
    def test_of_one_that_has_ended_the_outcome_is_known_at_once(
        self, alice: User
    ) -> None:
        done = make_job(alice, status=Status.SUCCEEDED)
        failed = make_job(alice, status=Status.FAILED)
        parents = [Parent(done.pk), Parent(failed.pk, Condition.AFTER_ANY)]
        job = make_job(alice, depends_on=parents)
        outcomes = [row.outcome for row in job.dependencies.all()]
        assert outcomes == ["succeeded", "failed"]
        assert job.wait_reason == "priority"
        assert job in Job.objects.ready(timezone.now())

    @pytest.mark.parametrize("status", [Status.FAILED, Status.CANCELLED])
    def test_one_that_has_failed_is_refused_and_told_how_it_ended(
        self, alice: User, status: Status
    ) -> None:
        parent = make_job(alice, status=status)
        error = refusal(alice, Parent(parent.pk))
        assert error.code == "parent_failed"
        assert f"it is {status}" in error.message
        assert "after_any" in error.message
        assert Job.objects.count() == 1

    def test_one_that_is_not_there_and_one_of_a_stranger_read_the_same(
        self, alice: User, bob: User
    ) -> None:
        foreign, nothing = make_job(bob).pk, uuid.uuid4()
        errors = [refusal(alice, Parent(job_id)) for job_id in (foreign, nothing)]
        texts = [
            error.message.replace(str(job_id), "ID")
            for error, job_id in zip(errors, (foreign, nothing), strict=True)
        ]
        assert {error.code for error in errors} == {"no_such_job"}
        assert texts == ["There is no job ID, or it is not yours."] * 2

    def test_an_operator_may_wait_for_anybodys_job(
        self, alice: User, olga: User
    ) -> None:
        assert make_job(olga, depends_on=[Parent(make_job(alice).pk)]).pk

    def test_an_arrays_id_stands_for_all_its_tasks(self, alice: User) -> None:
        first = make_job(alice, array="0-1")
        lifecycle.request_cancel(first, by=alice)
        job = make_job(alice, depends_on=[Parent(first.pk, Condition.AFTER_ANY)])
        assert job.dependencies.get().outcome == ""
        assert job.wait_reason == WaitReason.DEPENDENCY

    def test_an_array_is_known_although_its_first_task_is_deleted(
        self, alice: User
    ) -> None:
        first = make_job(alice, array="0-1")
        array_id = first.pk
        lifecycle.delete(first, by=alice)
        assert make_job(alice, depends_on=[Parent(array_id)]).wait_reason

    def test_a_task_that_is_not_the_first_stands_for_itself(self, alice: User) -> None:
        first = make_job(alice, array="0-1")
        other = Job.objects.tasks_of(first.pk)[1]
        lifecycle.request_cancel(other, by=alice)
        assert refusal(alice, Parent(other.pk)).code == "parent_failed"

    def test_no_statement_is_added_by_many_of_them(self, alice: User) -> None:
        parents = [Parent(make_job(alice).pk) for _ in range(12)]

        def statements(some: list[Parent]) -> int:
            with CaptureQueriesContext(connection) as captured:
                make_job(alice, depends_on=some)
            return len(captured)

        assert statements(parents[:1]) == statements(parents)


# --- How many may wait ---------------------------------------------------------------


class TestQuota:
    def test_the_users_own_row_counts(self, alice: User) -> None:
        Quota.objects.create(queued_jobs=0)
        Quota.objects.create(user=alice, queued_jobs=2)
        make_job(alice)
        make_job(alice)
        with pytest.raises(OverQuota, match="You have 2 queued jobs of at most 2: 1 "):
            make_job(alice)
        assert Job.objects.count() == JobEvent.objects.count() == 2

    def test_who_has_none_has_the_default(self, alice: User, bob: User) -> None:
        Quota.objects.create(queued_jobs=1)
        Quota.objects.create(user=bob, queued_jobs=None)
        make_job(alice)
        with pytest.raises(OverQuota):
            make_job(alice)
        make_job(bob)
        make_job(bob)

    def test_with_no_row_at_all_there_is_still_a_limit(
        self, alice: User, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("jobs.lifecycle.submission.MOST_QUEUED", 3)
        make_job(alice, array="0-2")
        with pytest.raises(OverQuota):
            make_job(alice)

    def test_an_array_is_accepted_whole_or_not_at_all(self, alice: User) -> None:
        Quota.objects.create(user=alice, queued_jobs=3)
        with pytest.raises(OverQuota, match="0 queued jobs of at most 3: 4 more"):
            make_job(alice, array="0-3")
        assert not Job.objects.exists()
        make_job(alice, array="0-2")

    def test_only_what_is_queued_counts(self, alice: User) -> None:
        Quota.objects.create(user=alice, queued_jobs=1)
        for status in Status:
            if status != Status.QUEUED:
                make_job(alice, status=status)
        make_job(alice)

    def test_a_group_has_a_limit_over_all_its_members(
        self, alice: User, bob: User
    ) -> None:
        group = Group.objects.create(name="vision")
        Quota.objects.create(group=group, queued_jobs=2)
        make_job(alice, group="vision")
        make_job(bob, group="vision")
        make_job(bob)
        with pytest.raises(OverQuota, match="The group vision has 2 queued jobs"):
            make_job(alice, group="vision")

    def test_a_group_whose_row_has_no_limit_has_none(self, alice: User) -> None:
        Quota.objects.create(group=Group.objects.create(name="vision"))
        make_job(alice, group="vision")

    def test_the_default_is_no_limit_of_a_group(self, alice: User, bob: User) -> None:
        Quota.objects.create(queued_jobs=1)
        make_job(alice, group="vision")
        make_job(bob, group="vision")

    def test_limits_are_read_by_one_query(
        self, alice: User, django_assert_num_queries: Any
    ) -> None:
        Quota.objects.create(user=alice, gpus=1)
        Quota.objects.create(user=make_user(), gpus=2)
        Quota.objects.create(group=Group.objects.create(name="vision"), gpus=3)
        default = Quota.objects.create(gpus=4)
        with django_assert_num_queries(1):
            users, groups, rest = Quota.objects.limits()
        assert users[alice.email].gpus == 1
        assert len(users) == 2
        assert [(name, quota.gpus) for name, quota in groups.items()] == [("vision", 3)]
        assert rest == default

    def test_without_rows_there_are_no_limits(self, db: None) -> None:
        assert Quota.objects.limits() == ({}, {}, None)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("of", ["user", "group"])
def test_submissions_at_once_do_not_pass_the_limit_together(of: str) -> None:
    group = Group.objects.create(name="vision")
    owners = [make_user(), make_user()] if of == "group" else [make_user()] * 2
    Quota.objects.create(
        **{of: owners[0] if of == "user" else group, "queued_jobs": 10}
    )
    start = threading.Barrier(8)
    outcomes: list[str] = []

    def race(owner: User) -> None:
        start.wait()
        for _ in range(5):
            try:
                make_job(owner, group="vision")
                outcomes.append("queued")
            except OverQuota:
                outcomes.append("refused")
        connection.close()

    threads = [threading.Thread(target=race, args=[o]) for o in owners * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (outcomes.count("queued"), outcomes.count("refused")) == (10, 30)
    assert Job.objects.count() == 10


@pytest.mark.django_db(transaction=True)
def test_an_array_is_announced_once(alice: User) -> None:
    heard: list[object] = []
    job_queued.connect(lambda **_: heard.append(1), weak=False, dispatch_uid="test")
    try:
        lifecycle.submit(by=alice, name="a", image=IMAGE, array="0-99")
    finally:
        job_queued.disconnect(dispatch_uid="test")
    assert heard == [1]
