import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pytest
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from jobs import lifecycle
from jobs.exceptions import TransitionConflict
from jobs.models import Attempt, AuditRecord, Job, UsageRecord, User
from jobs.signals import job_queued
from jobs.status import Fault, Phase, Reason, Status, WaitReason
from tests.factories import NODE, finish, make_attempt, make_job

pytestmark = pytest.mark.django_db


def end(job: Job, reason: Reason) -> Job:
    """Start the job and let its attempt end for `reason`."""
    finish(make_attempt(job), reason)
    job.refresh_from_db()
    return job


def story(job: Job) -> list[str]:
    return [event.event_type for event in job.events.all()]


def test_a_whole_life_is_told_in_events_and_audit(alice: User) -> None:
    job = end(make_job(alice), Reason.COMPLETED)
    assert story(job) == ["queued", "starting", "running", "exit_seen", "succeeded"]
    told = AuditRecord.objects.filter(target=str(job.pk)).values_list(
        "action", flat=True
    )
    assert list(told) == [f"job.{event}" for event in story(job)]
    assert (job.status, job.exit_code, job.reason) == ("succeeded", 0, "completed")
    assert job.started_at is not None
    assert job.finished_at is not None
    assert job.created_at <= job.started_at <= job.finished_at


@pytest.mark.django_db(transaction=True)
def test_queuing_is_announced_after_the_commit_and_only_then(alice: User) -> None:
    heard: list[object] = []
    job_queued.connect(lambda **_: heard.append(1), weak=False, dispatch_uid="test")
    try:
        with transaction.atomic():
            make_job(alice)
            transaction.set_rollback(True)
        assert heard == []
        make_job(alice)
        assert heard == [1]
    finally:
        job_queued.disconnect(dispatch_uid="test")


class TestStart:
    def test_it_makes_a_numbered_attempt_with_a_log_of_its_own(self) -> None:
        attempt = make_attempt(make_job(), status=Status.STARTING)
        assert attempt.number == 1
        assert attempt.phase == Phase.STARTING
        assert attempt.log_path == f"logs/{attempt.job_id}/1.log"
        assert attempt.job.log_path == f"logs/{attempt.job_id}.log"
        assert attempt.job.assigned_gpu_uuids == ["GPU-0"]

    def test_only_a_queued_job_starts(self) -> None:
        job = make_job(status=Status.RUNNING)
        with pytest.raises(TransitionConflict):
            make_attempt(job)

    def test_a_job_whose_cancel_is_wished_does_not_start(self, alice: User) -> None:
        job = make_job(alice)
        now = timezone.now()
        Job.objects.update(cancel_requested_at=now, cancel_requested_by=alice)
        with pytest.raises(TransitionConflict):
            make_attempt(job)

    def test_what_it_was_given_and_why_is_kept(self) -> None:
        job = make_job(cpus=2)
        with transaction.atomic():
            attempt = lifecycle.start(
                job,
                node=NODE,
                gpu_indices=[1],
                gpu_uuids=["GPU-1"],
                by="scheduler",
                cpus=4.5,
                memory_mb=2048,
                shm_mb=64,
                why="It is first in line.",
            )
        attempt.refresh_from_db()
        given = (attempt.cpus, attempt.memory_mb, attempt.shm_mb)
        assert given == (4.5, 2048, 64)
        payload = job.events.latest("id").payload
        assert payload["why"] == "It is first in line."

    def test_without_a_why_its_story_has_none(self) -> None:
        attempt = make_attempt(make_job(), status=Status.STARTING)
        assert attempt.job.events.latest("id").payload == {
            "node": NODE,
            "gpus": ["GPU-0"],
        }
        assert (attempt.cpus, attempt.memory_mb, attempt.shm_mb) == (None, None, None)

    def test_its_wait_reason_is_over(self) -> None:
        job = make_job()
        lifecycle.explain_waits([job.pk], WaitReason.RESOURCES, "Too few.")
        make_attempt(job)
        job.refresh_from_db()
        assert (job.wait_reason, job.wait_text) == ("", "")


class TestMarkRunning:
    def test_twice_is_a_conflict(self) -> None:
        attempt = make_attempt(make_job())
        with pytest.raises(TransitionConflict):
            lifecycle.mark_running(
                attempt,
                container_id="c",
                image_digest="",
                boot_id="",
                started_at=timezone.now(),
                by=NODE,
            )

    def test_the_job_keeps_the_start_of_its_first_attempt(self) -> None:
        job = make_job()
        end(job, Reason.CONTAINER_GONE)
        first = job.started_at
        make_attempt(job)
        job.refresh_from_db()
        assert job.started_at == first


class TestCancel:
    def test_a_queued_job_is_cancelled_at_once(self, alice: User) -> None:
        job = lifecycle.request_cancel(make_job(alice), by=alice)
        assert (job.status, job.reason) == ("cancelled", "cancelled_by_user")

    def test_an_operators_cancel_is_told_as_such(self, alice: User, olga: User) -> None:
        job = lifecycle.request_cancel(make_job(alice), by=olga)
        assert job.reason == Reason.CANCELLED_BY_OPERATOR

    @pytest.mark.parametrize("status", [Status.STARTING, Status.RUNNING])
    def test_of_a_live_job_it_is_only_a_wish(self, alice: User, status: Status) -> None:
        job = make_job(alice, status=status)
        lifecycle.request_cancel(job, by=alice)
        attempt = job.attempts.get()
        assert job.status == status
        assert job.cancel_requested
        assert attempt.stop_reason == Reason.CANCELLED_BY_USER
        assert attempt.stop_requested_at is not None

    def test_asking_twice_changes_nothing(self, alice: User) -> None:
        job = make_job(alice, status=Status.RUNNING)
        first = lifecycle.request_cancel(job, by=alice).cancel_requested_at
        assert lifecycle.request_cancel(job, by=alice).cancel_requested_at == first
        assert story(job).count("cancel_requested") == 1

    @pytest.mark.parametrize(
        "status", [Status.SUCCEEDED, Status.FAILED, Status.CANCELLED]
    )
    def test_an_ended_job_is_a_conflict(self, alice: User, status: Status) -> None:
        job = make_job(alice, status=status)
        with pytest.raises(TransitionConflict):
            lifecycle.request_cancel(job, by=alice)

    def test_a_time_limit_that_was_first_keeps_its_reason(self, alice: User) -> None:
        job = make_job(alice, status=Status.RUNNING)
        assert lifecycle.request_stop(job.attempts.get(), Reason.TIMED_OUT, by=NODE)
        lifecycle.request_cancel(job, by=alice)
        assert job.attempts.get().stop_reason == Reason.TIMED_OUT
        assert not lifecycle.request_stop(job.attempts.get(), Reason.TIMED_OUT, by=NODE)


class TestFinish:
    @pytest.mark.parametrize("reason", [r for r in Reason if r.fault is Fault.INFRA])
    def test_an_infra_ending_goes_back_to_the_queue(self, reason: Reason) -> None:
        job = end(make_job(), reason)
        assert (job.status, job.exit_code, job.finished_at) == ("queued", None, None)
        assert job.assigned_gpu_uuids == []
        assert story(job)[-1] == "requeued"
        assert job.attempts.get().reason == reason

    @pytest.mark.django_db(transaction=True)
    def test_and_the_scheduler_is_told(self) -> None:
        attempt = make_attempt(make_job())
        heard: list[object] = []
        job_queued.connect(lambda **_: heard.append(1), weak=False, dispatch_uid="test")
        try:
            finish(attempt, Reason.NODE_LOST)
        finally:
            job_queued.disconnect(dispatch_uid="test")
        assert heard == [1]

    def test_it_keeps_its_age(self) -> None:
        job = make_job()
        created_at = job.created_at
        assert end(job, Reason.NODE_LOST).created_at == created_at

    def test_the_fifth_in_a_row_fails_the_job_with_the_story(self) -> None:
        job = make_job()
        for reason in (Reason.NODE_LOST, Reason.GPU_LOST, *[Reason.INTERRUPTED] * 3):
            assert job.status == Status.QUEUED
            end(job, reason)
        assert (job.status, job.reason) == ("failed", "launch_fault")
        story = "node_lost, gpu_lost, interrupted, interrupted, interrupted"
        assert story in job.reason_text

    def test_a_nodes_own_trouble_does_not_count(self) -> None:
        job = make_job()
        for reason in (*[Reason.DISK_FULL] * 6, *[Reason.NODE_LOST] * 4):
            end(job, reason)
        assert job.status == Status.QUEUED
        end(job, Reason.DAEMON_FAULT)
        assert job.status == Status.QUEUED
        end(job, Reason.NODE_LOST)
        assert (job.status, job.reason) == ("failed", "launch_fault")

    def test_unless_a_cancel_wish_stands(self, alice: User) -> None:
        job = make_job(alice)
        attempt = make_attempt(job)
        lifecycle.request_cancel(job, by=alice)
        finish(attempt, Reason.CONTAINER_GONE)
        job.refresh_from_db()
        assert (job.status, job.reason) == ("cancelled", "cancelled_by_user")

    @pytest.mark.parametrize(
        "reason",
        [r for r in Reason if r.fault in (Fault.USER, Fault.POLICY, Fault.UNKNOWN)],
    )
    def test_every_other_ending_is_the_end(self, reason: Reason) -> None:
        job = end(make_job(), reason)
        assert (job.status, job.reason) == (reason.status, reason)

    def test_twice_is_a_conflict(self) -> None:
        attempt = make_attempt(make_job(), status=Status.SUCCEEDED)
        with pytest.raises(TransitionConflict):
            finish(attempt, Reason.COMPLETED)

    def test_a_clock_set_back_does_not_keep_a_job_from_ending(self) -> None:
        job = make_job()
        attempt = make_attempt(job)
        future = timezone.now() + timedelta(hours=1)
        Attempt.objects.update(started_at=future)
        Job.objects.update(started_at=future)
        finish(attempt, Reason.COMPLETED)
        job.refresh_from_db()
        assert job.finished_at == future

    def test_it_ended_when_it_exited_and_not_when_we_saw_it(self) -> None:
        attempt = make_attempt(make_job())
        assert attempt.started_at is not None
        exited_at = attempt.started_at + timedelta(milliseconds=1)
        lifecycle.see_exit(attempt, exited_at=exited_at, by=NODE)
        lifecycle.finish(attempt, Reason.UNKNOWN, "", usage=lifecycle.Usage(), by=NODE)
        attempt.refresh_from_db()
        assert attempt.ended_at == exited_at
        assert Job.objects.get().finished_at == exited_at

    def test_an_exit_before_the_start_is_clamped(self) -> None:
        attempt = make_attempt(make_job())
        assert attempt.started_at is not None
        early = attempt.started_at - timedelta(hours=1)
        lifecycle.see_exit(attempt, exited_at=early, by=NODE)
        lifecycle.finish(attempt, Reason.UNKNOWN, "", usage=lifecycle.Usage(), by=NODE)
        attempt.refresh_from_db()
        assert attempt.ended_at == attempt.started_at

    def test_usage_is_recorded_with_whose_fault_it_was(self, alice: User) -> None:
        attempt = make_attempt(make_job(alice, group="vision"))
        lifecycle.see_exit(attempt, by=NODE)
        usage = lifecycle.Usage(gpu_seconds=12.5, vram_mb_seconds=1000)
        lifecycle.finish(attempt, Reason.NODE_LOST, "", usage=usage, by=NODE)
        record = UsageRecord.objects.get()
        assert (record.owner, record.gpu_seconds, record.fault) == (
            alice.email,
            12.5,
            "infra",
        )
        assert record.group == "vision"


class TestPhases:
    def test_an_exit_is_seen_once(self) -> None:
        attempt = make_attempt(make_job())
        assert lifecycle.see_exit(attempt, by=NODE)
        assert attempt.phase == Phase.COLLECTING
        assert not lifecycle.see_exit(attempt, by=NODE)

    def test_evidence_is_recorded_once(self) -> None:
        attempt = make_attempt(make_job())
        lifecycle.see_exit(attempt, by=NODE)
        for code, kept in ((0, True), (9, False)):
            assert kept == lifecycle.record_evidence(
                attempt, exit_code=code, evidence={}, mean_utilisation={}
            )
        assert (attempt.phase, attempt.exit_code) == (Phase.JUDGING, 0)


def test_a_queued_job_fails_when_its_image_can_not_be_had() -> None:
    job = make_job()
    lifecycle.fail_queued(job, Reason.IMAGE_NOT_FOUND, "No such image.", by=NODE)
    assert (job.status, job.reason_text) == ("failed", "No such image.")


def test_only_a_queued_job_fails_so() -> None:
    job = make_job(status=Status.RUNNING)
    with pytest.raises(TransitionConflict):
        lifecycle.fail_queued(job, Reason.IMAGE_NOT_FOUND, "", by=NODE)


def test_a_wait_is_explained_only_while_it_lasts() -> None:
    job = make_job(status=Status.RUNNING)
    lifecycle.explain_waits([job.pk], WaitReason.RESOURCES, "Too few.")
    job.refresh_from_db()
    assert job.wait_reason == ""


class TestDelete:
    @pytest.mark.django_db(transaction=True)
    def test_all_goes_but_the_audit(self, alice: User, settings: object) -> None:
        job = make_job(alice, status=Status.SUCCEEDED)
        job_id = job.pk
        lifecycle.delete(job, by=alice)
        assert not Job.objects.exists()
        actions = AuditRecord.objects.filter(target=str(job_id)).values_list(
            "action", flat=True
        )
        assert actions.last() == "job.deleted"
        assert UsageRecord.objects.exists()

    def test_a_queued_job_is_cancelled_first(self, alice: User) -> None:
        job = make_job(alice)
        lifecycle.delete(job, by=alice)
        actions = AuditRecord.objects.values_list("action", flat=True)
        assert list(actions)[-2:] == ["job.cancelled", "job.deleted"]

    @pytest.mark.parametrize("status", [Status.STARTING, Status.RUNNING])
    def test_a_live_job_is_a_conflict(self, alice: User, status: Status) -> None:
        job = make_job(alice, status=status)
        with pytest.raises(TransitionConflict, match="cancel it first"):
            lifecycle.delete(job, by=alice)
        assert Job.objects.exists()

    def test_a_live_job_can_not_be_deleted_past_the_lifecycle(
        self, alice: User
    ) -> None:
        job = make_job(alice, status=Status.SUCCEEDED)
        with pytest.raises(IntegrityError), transaction.atomic():
            job.delete()


@pytest.mark.django_db(transaction=True)
def test_a_cancel_and_an_end_at_once_neither_wait_for_each_other_nor_are_lost() -> None:
    """Rows taken in two orders are a deadlock on PostgreSQL; a cancel that fell
    between two looks at the job was once answered and forgotten."""
    owner = make_job().owner
    for _ in range(10):
        job = make_job(owner)
        attempt = make_attempt(job)
        lifecycle.see_exit(attempt, by=NODE)
        together(
            partial(lifecycle.request_cancel, job, by=owner),
            partial(
                lifecycle.finish,
                attempt,
                Reason.NODE_LOST,
                "",
                usage=lifecycle.Usage(),
                by=NODE,
            ),
        )
        job.refresh_from_db()
        assert (job.status, job.reason) == ("cancelled", "cancelled_by_user")


def together(*verbs: Callable[[], object]) -> None:
    """In threads, which begin as near to each other as can be."""
    start = threading.Barrier(len(verbs))
    faults: list[BaseException] = []

    def run(verb: Callable[[], object]) -> None:
        start.wait()
        try:
            verb()
        except Exception as fault:  # noqa: BLE001 - told by the main thread
            faults.append(fault)
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=[verb]) for verb in verbs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
