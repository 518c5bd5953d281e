"""How often a policy lets a job escalate."""

import pytest

from jobs.models import Job
from jobs.status import Reason
from scheduler.reservation import next_try
from scheduler.reservation.escalating import Next
from tests.factories import make_attempt, make_job, make_policy

pytestmark = pytest.mark.django_db


def after_a_rejection(escalations: int) -> Next:
    make_policy(escalate_on=["rejected"], max_escalations=1)
    job = make_job(model_name="sentiment")
    Job.objects.filter(pk=job.pk).update(escalations=escalations)
    attempt = make_attempt(Job.objects.get(pk=job.pk))
    return next_try(attempt, Reason.VALIDATOR_REJECTED, "No good.")


def test_a_larger_tier_follows() -> None:
    decision, ending = after_a_rejection(0)
    assert decision is not None
    assert (decision.tier, ending) == ("large", None)


def test_no_more_often_than_the_policy_says() -> None:
    decision, ending = after_a_rejection(1)
    assert decision is None
    assert ending is not None
    assert ending[0] is Reason.TIERS_EXHAUSTED
    assert ending[1].startswith("Its policy lets it escalate 1 times.")
