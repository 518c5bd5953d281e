import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from jobs import lifecycle
from jobs.lifecycle.dependencies import outcome_of
from jobs.models import AuditRecord, Job, JobDependency, User
from jobs.signals import job_queued
from jobs.spec import Parent
from jobs.status import Condition, Reason, Status
from jobs.waiting import IN_LINE
from tests.factories import finish, make_attempt, make_job

pytestmark = pytest.mark.django_db

ANY = Condition.AFTER_ANY


def resolve() -> int:
    return lifecycle.resolve_dependencies(by="scheduler")


def after(owner: User, *parents: Job, condition: Condition | None = None) -> Job:
    wanted = [Parent(job.pk, condition or Condition.AFTER_OK) for job in parents]
    return make_job(owner, name="child", depends_on=wanted)


def end(job: Job, reason: Reason = Reason.COMPLETED) -> Job:
    if reason.status == Status.CANCELLED:
        return lifecycle.request_cancel(job, by=job.owner)
    finish(make_attempt(job), reason)
    return job


def tasks(first: Job) -> list[Job]:
    assert first.array_id is not None
    return list(Job.objects.tasks_of(first.array_id))


def outcome(job: Job) -> str:
    return job.dependencies.get().outcome


def now(job: Job) -> Job:
    return Job.objects.get(pk=job.pk)


def is_ready(job: Job) -> bool:
    return Job.objects.ready(timezone.now()).filter(pk=job.pk).exists()


@pytest.mark.parametrize(
    ("statuses", "said"),
    [
        ([], "deleted"),
        (["succeeded"], "succeeded"),
        (["deleted"], "deleted"),
        (["cancelled", "succeeded"], "cancelled"),
        (["succeeded", "cancelled", "failed"], "failed"),
        (["failed", "queued"], ""),
        (["running"], ""),
        (["starting", "succeeded"], ""),
    ],
)
def test_an_array_ended_with_the_worst_of_its_tasks(
    statuses: list[str], said: str
) -> None:
    assert outcome_of(statuses) == said


class TestReady:
    def test_it_is_those_in_line_the_head_first(self, alice: User) -> None:
        late = make_job(alice, priority=10)
        soon = make_job(alice, priority=40)
        make_job(alice, status=Status.RUNNING)
        make_job(alice, hold=True)
        make_job(alice, begin_at=timezone.now() + timedelta(hours=1))
        after(alice, late)
        assert list(Job.objects.ready(timezone.now())) == [soon, late]

    def test_a_job_is_ready_at_its_time(self, alice: User) -> None:
        begin_at = timezone.now() + timedelta(hours=1)
        job = make_job(alice, begin_at=begin_at)
        second = timedelta(seconds=1)
        assert list(Job.objects.ready(begin_at - second)) == []
        assert list(Job.objects.ready(begin_at)) == [job]

    @pytest.mark.parametrize(
        ("condition", "outcome", "ready"),
        [
            ("after_ok", "", False),
            ("after_ok", "succeeded", True),
            ("after_ok", "failed", False),
            ("after_ok", "cancelled", False),
            ("after_ok", "deleted", False),
            ("after_any", "", False),
            ("after_any", "succeeded", True),
            ("after_any", "failed", True),
            ("after_any", "deleted", True),
        ],
    )
    def test_what_stands_in_the_way(
        self, alice: User, condition: str, outcome: str, ready: bool
    ) -> None:
        """Between the outcome and the end that follows from it, nothing may start."""
        job = make_job(alice)
        JobDependency.objects.create(
            job=job, parent_id=uuid.uuid4(), condition=condition, outcome=outcome
        )
        JobDependency.objects.create(
            job=job, parent_id=uuid.uuid4(), condition=ANY, outcome="succeeded"
        )
        assert is_ready(job) is ready


class TestResolve:
    @pytest.mark.parametrize("condition", list(Condition))
    def test_success_lets_it_start(self, alice: User, condition: Condition) -> None:
        parent = make_job(alice)
        child = after(alice, parent, condition=condition)
        end(parent)
        assert not is_ready(child)
        assert resolve() == 1
        assert is_ready(child)
        assert outcome(child) == "succeeded"
        child = now(child)
        assert (child.wait_reason, child.wait_text) == IN_LINE

    @pytest.mark.parametrize(
        ("reason", "said"),
        [(Reason.CUDA_OOM, "failed"), (Reason.CANCELLED_BY_USER, "cancelled")],
    )
    def test_a_failure_ends_it_and_says_whose(
        self, alice: User, reason: Reason, said: str
    ) -> None:
        parent = make_job(alice, name="prepare")
        child = after(alice, parent)
        end(parent, reason)
        assert resolve() == 1
        child = now(child)
        assert (child.status, child.reason) == ("failed", "dependency_failed")
        assert f"after prepare ({parent.pk})" in child.reason_text
        assert f"that is {said}" in child.reason_text
        assert child.wait_reason == ""
        event = child.events.latest("id")
        assert (event.event_type, event.actor) == ("failed", "scheduler")
        assert AuditRecord.objects.latest("id").target == str(child.pk)

    def test_after_any_takes_a_failure(self, alice: User) -> None:
        parent = make_job(alice)
        child = after(alice, parent, condition=ANY)
        end(parent, Reason.CUDA_OOM)
        assert resolve() == 1
        assert (is_ready(child), outcome(child)) == (True, "failed")

    def test_a_parent_that_goes_back_to_the_queue_has_not_ended(
        self, alice: User
    ) -> None:
        parent = make_job(alice)
        child = after(alice, parent)
        end(parent, Reason.NODE_LOST)
        assert (resolve(), outcome(child)) == (0, "")

    def test_it_waits_for_all_of_them_and_tells_of_those_left(
        self, alice: User
    ) -> None:
        one, other = make_job(alice), make_job(alice)
        child = after(alice, one, other)
        assert "2 jobs" in child.wait_text
        end(one)
        assert resolve() == 0
        assert now(child).wait_text.startswith(f"It waits until job {other.pk} has")
        end(other)
        assert resolve() == 1
        assert is_ready(child)

    def test_one_failure_of_several_ends_it_at_once(self, alice: User) -> None:
        one, other = make_job(alice), make_job(alice)
        child = after(alice, one, other)
        end(one, Reason.CUDA_OOM)
        assert resolve() == 1
        assert now(child).status == "failed"
        end(other)
        resolve()
        assert [row.outcome for row in child.dependencies.all()] == [
            "failed",
            "succeeded",
        ]

    def test_a_chain_falls_in_one_go(self, alice: User) -> None:
        chain = [make_job(alice)]
        for _ in range(4):
            chain.append(after(alice, chain[-1]))
        last = after(alice, chain[-1], condition=ANY)
        end(chain[0], Reason.CUDA_OOM)
        assert resolve() == 5
        assert {now(job).status for job in chain} == {"failed"}
        assert str(chain[-2].pk) in now(chain[-1]).reason_text
        assert is_ready(last)

    def test_a_held_child_fails_too_and_one_let_go_stays_held(
        self, alice: User
    ) -> None:
        bad, good = make_job(alice), make_job(alice)
        fails = lifecycle.hold(after(alice, bad), by=alice)
        stays = lifecycle.hold(after(alice, good), by=alice)
        end(bad, Reason.CUDA_OOM)
        end(good)
        assert resolve() == 1
        assert now(fails).status == "failed"
        assert (now(stays).wait_reason, is_ready(stays)) == ("held", False)

    def test_a_child_cancelled_meanwhile_keeps_its_end(self, alice: User) -> None:
        parent = make_job(alice)
        child = lifecycle.request_cancel(after(alice, parent), by=alice)
        end(parent, Reason.CUDA_OOM)
        assert (resolve(), now(child).reason) == (0, "cancelled_by_user")
        assert outcome(child) == "failed"

    def test_a_child_that_moves_on_under_our_hands_is_left(
        self, alice: User, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        parent = make_job(alice)
        child = after(alice, parent)
        end(parent, Reason.CUDA_OOM)
        fail_queued = lifecycle.dependencies.fail_queued

        def late(job: Job, *args: Any, **kwargs: Any) -> None:
            lifecycle.request_cancel(now(job), by=alice)
            fail_queued(job, *args, **kwargs)

        monkeypatch.setattr("jobs.lifecycle.dependencies.fail_queued", late)
        assert resolve() == 0
        assert now(child).status == "cancelled"

    def test_what_was_cut_short_is_taken_up(self, alice: User) -> None:
        """Killed after the outcome was written, and before what follows from it."""
        bad, good = make_job(alice), make_job(alice)
        fails, starts = after(alice, bad), after(alice, good)
        JobDependency.objects.filter(parent_id=bad.pk).update(outcome="failed")
        JobDependency.objects.filter(parent_id=good.pk).update(outcome="succeeded")
        assert resolve() == 2
        assert now(fails).reason == "dependency_failed"
        assert now(starts).wait_reason == "priority"

    @pytest.mark.django_db(transaction=True)
    def test_of_very_many_the_rest_is_left_to_another_pass(
        self, alice: User, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("jobs.lifecycle.dependencies.MOST_ENDED", 3)
        parent = make_job(alice)
        make_job(alice, array="0-4", depends_on=[Parent(parent.pk)])
        end(parent, Reason.CUDA_OOM)
        heard: list[object] = []
        job_queued.connect(lambda **_: heard.append(1), weak=False, dispatch_uid="t")
        try:
            assert (resolve(), len(heard)) == (3, 1)
            assert not Job.objects.ready(timezone.now()).exists()
            assert (resolve(), len(heard)) == (2, 1)
        finally:
            job_queued.disconnect(dispatch_uid="t")
        assert not Job.objects.queued().exists()

    def test_twice_is_as_once(self, alice: User) -> None:
        parent = make_job(alice)
        child = after(alice, parent)
        end(parent, Reason.CUDA_OOM)
        assert (resolve(), resolve()) == (1, 0)
        assert child.events.filter(event_type="failed").count() == 1

    def test_a_time_that_came_gives_way_to_what_else_keeps_it(
        self, alice: User
    ) -> None:
        later = timezone.now() + timedelta(hours=1)
        parent = make_job(alice)
        both = make_job(alice, begin_at=later, depends_on=[Parent(parent.pk)])
        alone = make_job(alice, begin_at=later)
        assert resolve() == 0
        Job.objects.update(begin_at=timezone.now() - timedelta(seconds=1))
        assert resolve() == 1
        assert (now(both).wait_reason, now(alone).wait_reason) == (
            "dependency",
            "priority",
        )

    def test_what_the_scheduler_told_is_left_alone(self, alice: User) -> None:
        job = make_job(alice)
        lifecycle.explain_waits([job.pk], "resources", "No GPU is free.")  # type: ignore[arg-type]
        resolve()
        assert now(job).wait_text == "No GPU is free."

    @pytest.mark.parametrize("count", [1, 12])
    def test_with_nothing_to_do_it_asks_a_few_queries(
        self, alice: User, django_assert_max_num_queries: Any, count: int
    ) -> None:
        parents = [make_job(alice) for _ in range(count)]
        make_job(alice, array="0-2")
        for parent in parents:
            after(alice, parent)
            after(alice, *parents)
        with django_assert_max_num_queries(6):
            assert resolve() == 0

    def test_without_dependencies_it_asks_even_fewer(
        self, alice: User, django_assert_num_queries: Any
    ) -> None:
        make_job(alice)
        with django_assert_num_queries(4):
            assert resolve() == 0


class TestArrays:
    def test_all_tasks_must_have_ended(self, alice: User) -> None:
        first = make_job(alice, array="0-2")
        child = after(alice, first)
        for task in tasks(first)[:2]:
            end(task)
        assert (resolve(), outcome(child)) == (0, "")
        end(tasks(first)[2])
        assert resolve() == 1
        assert outcome(child) == "succeeded"

    @pytest.mark.parametrize(
        ("reasons", "said"),
        [
            ([Reason.COMPLETED, Reason.CUDA_OOM], "failed"),
            ([Reason.CANCELLED_BY_USER, Reason.COMPLETED], "cancelled"),
            ([Reason.CANCELLED_BY_USER, Reason.CUDA_OOM], "failed"),
        ],
    )
    def test_one_that_did_not_succeed_spoils_it(
        self, alice: User, reasons: list[Reason], said: str
    ) -> None:
        first = make_job(alice, array="0-1")
        child = after(alice, first)
        for task, reason in zip(tasks(first), reasons, strict=True):
            end(task, reason)
        assert resolve() == 1
        assert (outcome(child), now(child).reason) == (said, "dependency_failed")

    def test_every_task_of_a_child_array_waits_and_ends(self, alice: User) -> None:
        parent = make_job(alice)
        first = make_job(alice, array="0-4", depends_on=[Parent(parent.pk)])
        end(parent, Reason.CUDA_OOM)
        assert resolve() == 5
        assert {task.reason for task in tasks(first)} == {"dependency_failed"}

    def test_a_single_task_that_is_not_the_first_can_be_waited_for(
        self, alice: User
    ) -> None:
        first = make_job(alice, array="0-1")
        other = tasks(first)[1]
        child = after(alice, other)
        end(other)
        assert resolve() == 1
        assert is_ready(child)


class TestDeletedParents:
    def delete(self, job: Job) -> None:
        lifecycle.delete(now(job), by=job.owner)

    @pytest.mark.parametrize(
        ("reason", "said"),
        [
            (Reason.COMPLETED, "succeeded"),
            (Reason.CUDA_OOM, "failed"),
            (Reason.CANCELLED_BY_USER, "cancelled"),
        ],
    )
    def test_how_it_ended_is_remembered(
        self, alice: User, reason: Reason, said: str
    ) -> None:
        parent = make_job(alice)
        child = after(alice, parent, condition=ANY)
        parent_id = parent.pk
        end(parent, reason)
        self.delete(parent)
        assert not is_ready(child)
        assert resolve() == 1
        assert (outcome(child), is_ready(child)) == (said, True)
        assert child.dependencies.get().parent_id == parent_id

    def test_a_failure_still_ends_what_waits(self, alice: User) -> None:
        parent = make_job(alice)
        child = after(alice, parent)
        end(parent, Reason.CUDA_OOM)
        self.delete(parent)
        assert resolve() == 1
        assert now(child).reason == "dependency_failed"
        assert "after a job (" in now(child).reason_text

    def test_a_queued_parent_is_cancelled_and_what_waits_ends(
        self, alice: User
    ) -> None:
        parent = make_job(alice)
        child = after(alice, parent)
        self.delete(parent)
        assert resolve() == 1
        assert outcome(child) == "cancelled"

    def test_an_outcome_that_is_known_stays(self, alice: User) -> None:
        parent = make_job(alice)
        child = after(alice, parent)
        end(parent)
        resolve()
        self.delete(parent)
        assert (resolve(), outcome(child)) == (0, "succeeded")

    def test_a_failed_task_that_is_deleted_still_spoils_its_array(
        self, alice: User
    ) -> None:
        first = make_job(alice, array="0-2")
        child = after(alice, first)
        failed, good, last = tasks(first)
        end(failed, Reason.CUDA_OOM)
        self.delete(failed)
        assert resolve() == 0
        end(good)
        self.delete(good)
        assert resolve() == 0
        end(last)
        assert resolve() == 1
        assert (outcome(child), now(child).status) == ("failed", "failed")

    def test_of_an_array_that_is_deleted_whole_the_worst_is_remembered(
        self, alice: User
    ) -> None:
        first = make_job(alice, array="0-2")
        child = after(alice, first, condition=ANY)
        all_of_it = tasks(first)
        for task, reason in zip(
            all_of_it,
            (Reason.COMPLETED, Reason.CUDA_OOM, Reason.CANCELLED_BY_USER),
            strict=True,
        ):
            end(task, reason)
        for task in all_of_it:
            self.delete(task)
        assert resolve() == 1
        assert outcome(child) == "failed"

    def test_two_that_wait_since_before_and_after_a_deletion_differ(
        self, alice: User
    ) -> None:
        first = make_job(alice, array="0-1")
        early = after(alice, first, condition=ANY)
        failed, good = tasks(first)
        array_id = failed.pk
        end(failed, Reason.CUDA_OOM)
        self.delete(failed)
        late = make_job(alice, depends_on=[Parent(array_id, ANY)])
        end(good)
        assert resolve() == 2
        assert (outcome(early), outcome(late)) == ("failed", "succeeded")

    def test_one_that_went_unseen_counts_as_deleted(self, alice: User) -> None:
        """Deleted by another transaction while ours submitted the child."""
        child = make_job(alice)
        JobDependency.objects.create(
            job=child, parent_id=uuid.uuid4(), condition=Condition.AFTER_OK
        )
        assert resolve() == 1
        assert (outcome(child), now(child).status) == ("deleted", "failed")

    def test_a_deleted_child_takes_its_rows_along(self, alice: User) -> None:
        child = after(alice, make_job(alice))
        self.delete(child)
        assert not JobDependency.objects.exists()

    @pytest.mark.django_db(transaction=True)
    def test_the_scheduler_is_told_where_something_waits(self, alice: User) -> None:
        lonely, parent = make_job(alice), make_job(alice)
        after(alice, parent)
        for job in (lonely, parent):
            lifecycle.request_cancel(job, by=alice)
        heard: list[object] = []
        job_queued.connect(lambda **_: heard.append(1), weak=False, dispatch_uid="t")
        try:
            self.delete(lonely)
            assert heard == []
            self.delete(parent)
        finally:
            job_queued.disconnect(dispatch_uid="t")
        assert heard == [1]
