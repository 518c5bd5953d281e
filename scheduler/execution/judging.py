"""Judge: from what an attempt left to its end, or to what must be waited for first.

Nothing waits inside a task: a validator attempt is started, and its end asks again.
"""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from django.conf import settings
from django.core.exceptions import ValidationError
from django.utils import timezone

from jobs import lifecycle
from jobs.exceptions import TransitionConflict
from jobs.failpoints import failpoint
from jobs.models import Attempt, Evaluation
from jobs.routing import (
    ExecutionCheck,
    ExitCodeCheck,
    Policy,
    Review,
    Risk,
    Validator,
)
from jobs.status import Fault, Kind, Phase, Reason
from scheduler import evaluator
from scheduler.evaluator import Execution, Facts, Verdict
from scheduler.execution.ground import BY, node_runner
from scheduler.models import ImageState, Node, NodeImage
from scheduler.queue import enqueue
from scheduler.reservation import next_try, usage_of

Ended = tuple[Reason, str]


class CanNotJudge(Exception):
    """A validator can not be run; says why."""


# What a validator attempt leaves in its /artifacts, if it has more to say.
VERDICT = "verdict.json"
# Infra endings of one validator's attempts, after which its job is given up.
MOST_TRIES = 5


def judge(attempt: Attempt) -> bool:
    """End the attempt, whose evidence is complete; False if something is waited for."""
    ended = Reason(attempt.evidence["reason"]), str(attempt.evidence["text"])
    if attempt.kind == Kind.VALIDATOR:
        _finish(attempt, ended)
        enqueue("collect", str(attempt.subject_id), node=attempt.node)
        return True
    if attempt.job.policy is None:
        _finish(attempt, ended)
        return True
    if _is_parked(attempt):
        return False
    try:
        judged = _judged(attempt, attempt.job.policy.read(), ended)
    except (CanNotJudge, ValidationError) as error:
        _give_up(attempt, " ".join(getattr(error, "messages", [str(error)])))
        return True
    if judged is not None:
        _finish(attempt, judged)
    return judged is not None


def _is_parked(attempt: Attempt) -> bool:
    waits = Evaluation.objects.filter(attempt=attempt, review_until__isnull=False)
    return waits.exists()


def _give_up(attempt: Attempt, text: str) -> None:
    """Whether its result is good nobody can say, and another attempt would not help."""
    ended = Reason.LAUNCH_FAULT, text
    usage = usage_of(attempt)
    lifecycle.finish(attempt, *ended, usage=usage, ends_as=ended, by=BY)


def _finish(attempt: Attempt, ended: Ended) -> None:
    again, ends_as = next_try(attempt, *ended)
    lifecycle.finish(
        attempt, *ended, usage=usage_of(attempt), again=again, ends_as=ends_as, by=BY
    )
    failpoint("collect.judged")


def _judged(attempt: Attempt, policy: Policy, ended: Ended) -> Ended | None:
    """How it ends by its validators; None while one of them must still run, or a person
    must look at it."""
    if attempt.validations.live().exists():
        return None
    if not _is_judged(policy, ended[0]):
        return ended
    if attempt.job.cancel_requested:
        by = attempt.job.cancel_requested_by
        return lifecycle.cancel_reason(
            attempt.job, by
        ), "Cancelled before it was judged."
    facts = facts_of(attempt, policy.validators)
    verdict = evaluator.evaluate(policy.validators, facts)
    if verdict.pending is not None:
        _run(attempt, verdict.pending)
        return None
    _write(attempt, verdict)
    failpoint("judge.written")
    if rejected := verdict.rejected:
        text = f"Its validator {rejected.validator} rejected it: {rejected.text}"
        return Reason.VALIDATOR_REJECTED, text
    if not _needs_review(policy, attempt):
        return ended
    until = timezone.now() + timedelta(seconds=policy.review_within_s)
    try:
        lifecycle.park(attempt, until, usage=usage_of(attempt), by=BY)
    except TransitionConflict:  # it was cancelled just now: asked again, it ends so
        enqueue("collect", str(attempt.pk), node=attempt.node)
    failpoint("judge.parked")
    return None


def _is_judged(policy: Policy, reason: Reason) -> bool:
    """What a validator can say something of."""
    if reason is Reason.NONZERO_EXIT:
        return any(isinstance(each, ExitCodeCheck) for each in policy.validators)
    return reason is Reason.COMPLETED


def _needs_review(policy: Policy, attempt: Attempt) -> bool:
    if policy.review is Review.HIGH_RISK:
        return attempt.job.risk == Risk.HIGH
    return policy.review is Review.ALWAYS


def _write(attempt: Attempt, verdict: Verdict) -> None:
    outcomes = [
        {
            "validator": each.validator,
            "kind": each.kind,
            "is_accepted": each.is_accepted,
            "text": each.text,
            "evidence": dict(each.evidence),
        }
        for each in verdict.outcomes
    ]
    scores: dict[str, float] = {}
    for each in verdict.outcomes:
        scores |= each.evidence.get("scores") or {}
    Evaluation.objects.update_or_create(
        attempt=attempt,
        defaults={
            "is_accepted": verdict.is_accepted,
            "outcomes": outcomes,
            "scores": scores,
            "gpu_seconds": usage_of(attempt).gpu_seconds,
        },
    )


# --- What the validators are told ----------------------------------------------------


def facts_of(attempt: Attempt, validators: Sequence[Validator]) -> Facts:
    """What is known of its result, as far as these validators ask."""
    rows = {row.path: row for row in attempt.artifacts.all()}
    wanted = evaluator.reads(validators) & rows.keys()
    return Facts(
        exit_code=attempt.exit_code,
        sizes={path: row.size for path, row in rows.items()},
        contents={
            path: _content(rows[path].storage_path)
            for path in wanted
            if rows[path].size <= evaluator.MOST_BYTES
        },
        executions=_executions(attempt),
    )


def _content(storage_path: str) -> bytes:
    return (Path(settings.DATA_ROOT) / storage_path).read_bytes()


def _executions(attempt: Attempt) -> dict[str, Execution]:
    """Of each validator the attempt that came to an end of its own."""
    ended = attempt.validations.exclude(ended_at=None).order_by("number")
    return {
        each.validator: _execution(each)
        for each in ended
        if Reason(each.reason).fault is not Fault.INFRA
    }


def _execution(validation: Attempt) -> Execution:
    has_exited = validation.reason in (Reason.COMPLETED, Reason.NONZERO_EXIT)
    row = validation.artifacts.filter(path=VERDICT).first()
    verdict = None
    if row is not None and row.size <= evaluator.MOST_BYTES:
        verdict = _content(row.storage_path)
    return Execution(
        exit_code=validation.exit_code if has_exited else None,
        verdict=verdict,
        text=str(validation.evidence.get("text", "")),
    )


# --- Validator attempts --------------------------------------------------------------


def _run(attempt: Attempt, check: ExecutionCheck) -> None:
    """Start the validator's container, once its image is here. Raises CanNotJudge."""
    tries = attempt.validations.filter(validator=check.name)
    if tries.count() >= MOST_TRIES:
        last = tries.order_by("-number")[0]
        why = last.evidence.get("text") or last.reason
        raise CanNotJudge(
            f"Its validator {check.name} could not be run {MOST_TRIES} times: {why}"
        )
    if not _may_be_here(check.image):
        return
    try:
        validation = lifecycle.start_validation(attempt, check, by=BY)
    except TransitionConflict:
        return
    failpoint("judge.validating")
    enqueue("launch", str(validation.pk), node=attempt.node)


def _may_be_here(image: str) -> bool:
    """False while the supervisor fetches it. Where that failed the launch will tell."""
    if node_runner().has_image(image):
        return True
    node = Node.objects.get(name=settings.NODE_NAME)
    wanted = {"state": ImageState.WANTED, "updated_at": timezone.now()}
    row, _ = NodeImage.objects.get_or_create(node=node, image=image, defaults=wanted)
    return bool(row.state == ImageState.FAILED)


def is_waiting(attempt: Attempt) -> bool:
    """Whether nothing can be done for it before a validator attempt has ended."""
    if attempt.phase != Phase.JUDGING or attempt.job.policy_id is None:
        return False
    return attempt.validations.live().exists()
