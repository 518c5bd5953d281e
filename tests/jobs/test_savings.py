"""What routing saved, worked out by hand: against everything on the largest tier."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from jobs.models import Job, UsageRecord, User
from jobs.savings import savings
from jobs.status import Fault, Status
from tests.asserts import assert_problem
from tests.factories import make_attempt, make_job, make_policy

pytestmark = pytest.mark.django_db


def done(tier: str, gpu_seconds: float, **fields: Any) -> Job:
    job = make_job(model_name="sentiment", tier=tier, status=Status.SUCCEEDED)
    use(job, 1, gpu_seconds)
    Job.objects.filter(pk=job.pk).update(**fields)
    return job


def use(job: Job, number: int, gpu_seconds: float) -> None:
    rows = UsageRecord.objects.filter(job=str(job.pk), attempt_number=number)
    used = {"gpu_seconds": gpu_seconds, "vram_mb_seconds": gpu_seconds * 1000}
    assert rows.update(**used) == 1


@pytest.fixture
def four(db: None) -> None:
    """Three of the small tier at 10 GPU-seconds, one that escalated: 10, then 100."""
    make_policy()
    for _ in range(3):
        done("small", 10)
    job = make_job(model_name="sentiment", tier="large")
    attempt = make_attempt(job, status=Status.SUCCEEDED)
    type(attempt).objects.filter(pk=attempt.pk).update(tier="large")
    use(job, 1, 100)
    Job.objects.filter(pk=job.pk).update(escalations=1)


def test_shares_rates_and_what_it_was_compared_with(four: None) -> None:
    found = savings("sentiment", 30)
    assert (found.jobs, found.escalated, found.escalation_rate) == (4, 1, 0.25)
    shares = {tier.name: (tier.jobs, tier.share) for tier in found.tiers}
    assert shares == {"small": (3, 0.75), "large": (1, 0.25)}
    assert found.gpu_seconds == 130
    # One accepted attempt of the largest took 100: four of them would take 400.
    assert found.largest_gpu_seconds == 400
    assert found.largest_vram_mb_seconds == 400_000
    assert found.wait_p50_s is not None
    assert "Everything on the largest tier: 400 GPU-seconds" in " ".join(
        found.sentences()
    )


def test_infra_faults_and_other_times_are_no_tiers_doing(four: None) -> None:
    rows = UsageRecord.objects.filter(gpu_seconds=10)
    UsageRecord.objects.filter(pk=rows[0].pk).update(fault=Fault.INFRA)
    assert savings("sentiment", 30).gpu_seconds == 120


def test_without_an_attempt_of_the_largest_nothing_is_made_up() -> None:
    make_policy()
    done("small", 10)
    found = savings("sentiment", 30)
    assert found.largest_gpu_seconds is None
    assert "No accepted attempt of the largest tier" in " ".join(found.sentences())


def test_of_nothing_there_is_nothing() -> None:
    found = savings("unknown", 30)
    assert (found.jobs, found.escalation_rate, found.wait_p50_s) == (0, 0.0, None)


def test_what_ended_earlier_does_not_count() -> None:
    make_policy()
    done("small", 10)
    later = timezone.now() + timedelta(days=40)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timezone, "now", lambda: later)
        assert savings("sentiment", 30).jobs == 0


def test_many_jobs_take_no_more_queries(four: None) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            savings("sentiment", 30)
        return len(captured)

    before = queries()
    for _ in range(5):
        done("small", 10)
    assert queries() == before


class TestTheApi:
    URL = "/api/v1/policies/sentiment/savings"

    def test_an_operator_sees_it(self, api: Any, olga: User, four: None) -> None:
        body = api(olga).get(self.URL).json()
        assert (body["policy"], body["days"], body["jobs"]) == ("sentiment", 30, 4)
        assert body["largest_gpu_seconds"] == 400

    def test_nobody_else(self, api: Any, alice: User, four: None) -> None:
        assert_problem(api(alice).get(self.URL), 403, "operators_only")

    @pytest.mark.parametrize("days", ["0", "-1", "367", "x", "", "1e3"])
    def test_the_days_are_a_number(
        self, api: Any, olga: User, four: None, days: str
    ) -> None:
        assert api(olga).get(f"{self.URL}?days={days}").status_code == 400

    def test_an_unknown_policy_and_an_unknown_parameter(
        self, api: Any, olga: User, four: None
    ) -> None:
        assert_problem(api(olga).get(f"{self.URL}?x=1"), 400, "unknown_parameter", "/x")
        unknown = "/api/v1/policies/none/savings"
        assert_problem(api(olga).get(unknown), 404, "not_found")
