"""Policies from documents to rows, and the gate through which a version goes live."""

from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from jobs import audit, spec
from jobs.exceptions import GpuJobsError
from jobs.models import ModelTier, RoutingPolicy, SuiteRun
from jobs.models.routing import digest_of
from jobs.routing import ExecutionCheck, Policy, Tier, document_of, gate


class GateRefused(GpuJobsError):
    """The version may not go live; says why."""


def check_tiers(policy: Policy) -> None:
    """The rules of any job for what tiers and validators run. Raises ValidationError."""
    run: list[Tier | ExecutionCheck] = [*policy.tiers, *policy.execution_checks]
    for what in run:
        command = what.command
        try:
            spec.check_image(what.image)
            spec.check_command(list(command) if isinstance(command, tuple) else command)
            spec.check_env(dict(getattr(what, "env", {})))
        except ValidationError as error:
            text = f"{what.name}: {' '.join(error.messages)}"
            raise ValidationError(text, "bad_policy") from error


@transaction.atomic
def store(policy: Policy, *, by: object) -> tuple[RoutingPolicy, bool]:
    """A new version, which is not live yet; the newest one again, and False, where that
    says the same. Raises ValidationError."""
    check_tiers(policy)
    document = document_of(policy)
    digest = digest_of(document)
    versions = RoutingPolicy.objects.select_for_update().filter(name=policy.name)
    newest = versions.order_by("-version").first()
    if newest is not None and newest.digest == digest:
        return newest, False
    tiers = document.pop("tiers")
    row = RoutingPolicy(
        version=newest.version + 1 if newest else 1,
        digest=digest,
        created_by=str(by),
        **document,
    )
    row.full_clean()
    row.save(force_insert=True)
    for position, tier in enumerate(tiers):
        made = ModelTier(policy=row, position=position, **tier)
        made.full_clean()
        made.save(force_insert=True)
    audit.record("policy.stored", target=row, by=by, digest=digest)
    return row, True


def refusals(row: RoutingPolicy) -> list[str]:
    """Why the version may not go live by its own rules; empty if it may."""
    run = _latest(row)
    live = RoutingPolicy.objects.active().filter(name=row.name).exclude(pk=row.pk)
    live_run = next((found for each in live if (found := _latest(each))), None)
    if run and live_run and run.suite_digest != live_run.suite_digest:
        run_of_the_same = _latest(row, live_run.suite_digest)
        if run_of_the_same is None:
            told = f"The live version was judged by the suite {live_run.suite}"
            return [f"{told}: run that through this one too."]
        run = run_of_the_same
    scores = run.scores if run else None
    return list(
        gate.refusals(row.read(), scores, live_run.scores if live_run else None)
    )


def _latest(row: RoutingPolicy, suite_digest: str = "") -> SuiteRun | None:
    runs = row.suite_runs.exclude(finished_at=None)
    if suite_digest:
        runs = runs.filter(suite_digest=suite_digest)
    return runs.order_by("-finished_at").first()


@transaction.atomic
def activate(row: RoutingPolicy, *, by: object, because: str = "") -> None:
    """Let new jobs be routed by this version. Jobs that are there keep theirs.

    Raises GateRefused; an operator's reason in `because` overrides it, and is recorded.
    """
    versions = RoutingPolicy.objects.select_for_update().filter(name=row.name)
    was = [each for each in versions if each.is_active]
    if [each.pk for each in was] == [row.pk]:
        return
    refused = refusals(row)
    if refused and not because.strip():
        raise GateRefused(" ".join(refused))
    versions.filter(is_active=True).update(is_active=False)
    versions.filter(pk=row.pk).update(is_active=True, activated_at=timezone.now())
    row.refresh_from_db()
    told: dict[str, Any] = {"before": [str(each) for each in was]}
    if refused:
        told |= {"overridden": refused, "because": because}
    audit.record("policy.activated", target=row, by=by, **told)


@transaction.atomic
def retire(row: RoutingPolicy, *, by: object) -> None:
    """No new job is routed by it, nor by another version until one is activated."""
    live = RoutingPolicy.objects.filter(pk=row.pk, is_active=True)
    if live.update(is_active=False):
        audit.record("policy.retired", target=row, by=by)
    row.refresh_from_db()
