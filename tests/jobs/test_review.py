"""A result that waits for a person: parked, looked at, accepted, rejected, forgotten."""

from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from jobs import lifecycle
from jobs.exceptions import OperatorsOnly, TransitionConflict
from jobs.models import Attempt, Evaluation, Job, UsageRecord, User
from jobs.status import Reason, Status
from tests.asserts import assert_problem
from tests.factories import NODE, make_artifact, make_job

pytestmark = pytest.mark.django_db
USAGE = lifecycle.Usage(gpu_seconds=12.0, vram_mb_seconds=34.0)


@pytest.fixture
def parked(alice: User) -> Job:
    job = make_job(alice, model_name="sentiment", status=Status.RUNNING)
    attempt = job.attempts.get()
    lifecycle.see_exit(attempt, by=NODE)
    lifecycle.record_evidence(attempt, exit_code=0, evidence={}, mean_utilisation={})
    Evaluation.objects.create(attempt=attempt, is_accepted=True)
    make_artifact(attempt, "result.json", b"{}")
    until = timezone.now() + timedelta(hours=1)
    lifecycle.park(attempt, until, usage=USAGE, by=NODE)
    job.refresh_from_db()
    return job


def test_it_runs_still_and_says_what_it_waits_for(parked: Job) -> None:
    assert (parked.status, parked.reason) == (Status.RUNNING, "in_review")
    assert "A person must accept its result by" in parked.reason_text
    assert Evaluation.objects.get().is_accepted is None
    assert not Attempt.objects.bound().exists()
    assert Attempt.objects.live().count() == 1


def test_accepted_it_succeeds_and_what_it_used_is_charged(
    parked: Job, olga: User
) -> None:
    job = lifecycle.review(parked, accepts=True, by=olga)
    assert (job.status, job.reason) == (Status.SUCCEEDED, Reason.COMPLETED)
    assert job.reason_text == "olga@example.org accepted its result."
    assert job.attempts.accepted().count() == 1
    record = UsageRecord.objects.get()
    assert (record.gpu_seconds, record.vram_mb_seconds) == (12.0, 34.0)
    evaluation = Evaluation.objects.get()
    assert (evaluation.review_accepts, evaluation.reviewed_by) == (True, olga.email)


def test_rejected_it_fails_with_what_was_written(parked: Job, olga: User) -> None:
    job = lifecycle.review(parked, accepts=False, text="It is wrong.", by=olga)
    assert (job.status, job.reason) == (Status.FAILED, Reason.REVIEW_REJECTED)
    assert job.reason_text == "olga@example.org rejected its result. It is wrong."
    assert not job.attempts.accepted().exists()


def test_twice_is_once(parked: Job, olga: User) -> None:
    lifecycle.review(parked, accepts=True, by=olga)
    with pytest.raises(TransitionConflict, match="waits for a review"):
        lifecycle.review(parked, accepts=False, by=olga)


def test_its_owner_is_no_judge_of_it(parked: Job, alice: User) -> None:
    with pytest.raises(OperatorsOnly):
        lifecycle.review(parked, accepts=True, by=alice)


def test_what_nobody_looks_at_in_time_ends(parked: Job) -> None:
    assert lifecycle.expire_reviews(by=NODE) == 0
    with time_machine.travel(timezone.now() + timedelta(hours=1, seconds=1)):
        assert lifecycle.expire_reviews(by=NODE) == 1
        assert lifecycle.expire_reviews(by=NODE) == 0
    parked.refresh_from_db()
    assert (parked.status, parked.reason) == (Status.FAILED, Reason.REVIEW_EXPIRED)


def test_a_cancel_ends_it_at_once(parked: Job, alice: User) -> None:
    job = lifecycle.request_cancel(parked, by=alice)
    assert (job.status, job.reason) == (Status.CANCELLED, Reason.CANCELLED_BY_USER)
    assert not Attempt.objects.live().exists()


def test_one_that_is_not_judged_is_not_parked(alice: User) -> None:
    attempt = make_job(alice, status=Status.RUNNING).attempts.get()
    with pytest.raises(TransitionConflict):
        lifecycle.park(attempt, timezone.now(), usage=USAGE, by=NODE)


class TestThePage:
    def client(self, user: User) -> Client:
        client = Client()
        client.force_login(user)
        return client

    def test_an_operator_sees_the_files_and_decides(
        self, parked: Job, olga: User
    ) -> None:
        page = self.client(olga)
        address = reverse("job-review", args=[parked.pk])
        assert address in page.get(f"/jobs/{parked.pk}/").content.decode()
        text = page.get(address).content.decode()
        assert "result.json" in text
        answer = page.post(address, {"accepts": "false", "text": "<b>no</b>\0"})
        assert answer.status_code == 302
        shown = page.get(f"/jobs/{parked.pk}/").content.decode()
        assert "&lt;b&gt;no&lt;/b&gt;" in shown
        assert "Attempt 1, tier small" in shown

    @pytest.mark.parametrize("sent", [{}, {"accepts": ""}, {"accepts": "maybe"}])
    def test_what_is_neither_yes_nor_no_decides_nothing(
        self, parked: Job, olga: User, sent: dict[str, str]
    ) -> None:
        address = reverse("job-review", args=[parked.pk])
        assert self.client(olga).post(address, sent).status_code == 200
        parked.refresh_from_db()
        assert parked.reason == "in_review"

    def test_its_owner_has_no_such_page(self, parked: Job, alice: User) -> None:
        address = reverse("job-review", args=[parked.pk])
        assert self.client(alice).get(address).status_code == 403
        assert (
            "Review…"
            not in self.client(alice).get(f"/jobs/{parked.pk}/").content.decode()
        )


class TestTheApi:
    @pytest.mark.parametrize(
        "sent",
        [{}, {"accepts": "yes"}, {"accepts": 1}, {"accepts": None}, {"accepts": []}],
    )
    def test_it_takes_true_or_false(
        self, api: Any, olga: User, parked: Job, sent: dict[str, Any]
    ) -> None:
        answer = api(olga).post(f"/api/v1/jobs/{parked.pk}/review", sent)
        assert answer.status_code == 400

    def test_a_long_text_is_refused(self, api: Any, olga: User, parked: Job) -> None:
        sent = {"accepts": True, "text": "x" * 4001}
        answer = api(olga).post(f"/api/v1/jobs/{parked.pk}/review", sent)
        assert_problem(answer, 400, "max_length", "/text")

    def test_of_a_job_that_is_not_in_review_it_is_a_conflict(
        self, api: Any, olga: User
    ) -> None:
        answer = api(olga).post(
            f"/api/v1/jobs/{make_job().pk}/review", {"accepts": True}
        )
        assert answer.status_code == 409
