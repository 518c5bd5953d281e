"""An evaluation suite through one version of a policy: real jobs, and their scores."""

import hashlib
import time
from collections.abc import Callable
from typing import Any

from django.utils import timezone

from jobs import audit, lifecycle
from jobs.models import Attempt, Evaluation, Job, RoutingPolicy, SuiteRun, User
from jobs.routing.suite import Case, Result, Suite, scores
from jobs.status import TERMINAL, Status
from scheduler import evaluator, reservation
from scheduler.execution import facts_of

# An account that nobody logs in to: its quota is the suite's.
EVALUATION = "evaluation@gpujobs.invalid"
LOOK_EVERY_S = 0.5


def account() -> User:
    """Whose jobs a suite's are, where no other account is named."""
    found = User.objects.filter(email=EVALUATION).first()
    if found is None:
        found = User.objects.create_user(EVALUATION, password=None, name="Evaluation")
        audit.record("user.added", target=found, by=audit.console())
    return found


def run(
    suite: Suite,
    written: str,
    policy: RoutingPolicy,
    *,
    owner: User,
    by: str,
    tell: Callable[[str], None],
) -> SuiteRun:
    """Submit every case, wait until all have ended, and store what they came to.

    Raises Unroutable and ValidationError for a case that the policy does not take, and
    then none of them is submitted.
    """
    routed = [(case, _spec(case, policy, owner)) for case in suite.cases]
    made = SuiteRun.objects.create(
        policy=policy,
        suite=suite.name,
        suite_digest=hashlib.sha256(written.encode()).hexdigest(),
        by=by,
    )
    audit.record("suite.begun", target=policy, by=by, suite=suite.name)
    jobs = [(case, lifecycle.submit(by=owner, **spec)) for case, spec in routed]
    _wait([job for _, job in jobs], tell)
    found = [_judged(case, job) for case, job in jobs]
    made.scores = scores(result for result, _ in found)
    made.cases = [told for _, told in found]
    made.finished_at = timezone.now()
    made.save(update_fields=["scores", "cases", "finished_at"])
    audit.record("suite.finished", target=policy, by=by, scores=made.scores)
    return made


def _spec(case: Case, policy: RoutingPolicy, owner: User) -> dict[str, Any]:
    asked = {
        "name": f"{policy.name}-{policy.version}: {case.name}"[:100],
        "model_name": policy.name,
        "params": dict(case.params),
        "risk": case.risk,
        # What people wait for comes first.
        "priority": 0,
    }
    return reservation.routed(asked, policy, by=owner)


def _wait(jobs: list[Job], tell: Callable[[str], None]) -> None:
    ids, left = [job.pk for job in jobs], -1
    while True:
        open_jobs = Job.objects.filter(pk__in=ids).exclude(status__in=TERMINAL)
        if (now_left := open_jobs.count()) != left:
            left = now_left
            tell(f"{len(ids) - left} of {len(ids)} cases have ended.")
        if not left:
            return
        time.sleep(LOOK_EVERY_S)


def _judged(case: Case, job: Job) -> tuple[Result, dict[str, Any]]:
    job.refresh_from_db()
    wrong = _wrong(case, job)
    evaluation = Evaluation.objects.filter(attempt__job=job, is_accepted=True).last()
    given = evaluation.scores if evaluation else {}
    result = Result(
        rubric=case.rubric, weight=case.weight, passed=not wrong, scores=given
    )
    told = {
        "case": case.name,
        "job": str(job.pk),
        "rubric": case.rubric,
        "weight": case.weight,
        "passed": not wrong,
        "why_not": wrong,
        "tier": job.tier,
        "scores": given,
    }
    return result, told


def _wrong(case: Case, job: Job) -> str:
    """Why the case is not passed; empty if it is."""
    if case.fails:
        return "" if job.reason == case.fails else f"It ended with {job.reason}."
    if job.status != Status.SUCCEEDED:
        return f"It {job.status}: {job.reason_text}"
    if case.tier_at_most and _is_larger(job, case.tier_at_most):
        return f"It took the tier {job.tier}, larger than {case.tier_at_most}."
    attempt = job.attempts.accepted().get()
    return _unexpected(case, attempt)


def _is_larger(job: Job, tier: str) -> bool:
    assert job.policy is not None
    names = [each.name for each in job.policy.read().tiers]
    return tier in names and names.index(job.tier) > names.index(tier)


def _unexpected(case: Case, attempt: Attempt) -> str:
    verdict = evaluator.evaluate(case.expect, facts_of(attempt, case.expect))
    rejected = verdict.rejected
    return f"{rejected.validator}: {rejected.text}" if rejected else ""
