"""What routing saved: against a site where everything runs on the largest tier."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from statistics import median
from typing import Any

from django.utils import timezone

from jobs.models import Attempt, Job, UsageRecord
from jobs.status import TERMINAL, Fault, Kind, Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class TierShare:
    """What came of one tier. `jobs` are those whose accepted result is of it."""

    name: str
    jobs: int
    share: float
    gpu_seconds: float
    vram_mb_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Savings:
    """Of the jobs of a policy that ended in the last days.

    `largest_gpu_seconds` is what they would have used had each run once on the largest
    tier: the median of what an accepted attempt of it used, times the jobs. None where
    no such attempt is there to judge by.
    """

    policy: str
    days: int
    jobs: int
    escalated: int
    tiers: tuple[TierShare, ...]
    gpu_seconds: float
    vram_mb_seconds: float
    largest_gpu_seconds: float | None
    largest_vram_mb_seconds: float | None
    wait_p50_s: float | None
    wait_p95_s: float | None

    @property
    def escalation_rate(self) -> float:
        return self.escalated / self.jobs if self.jobs else 0.0

    def sentences(self) -> Iterator[str]:
        yield f"Used: {self.gpu_seconds:,.0f} GPU-seconds."
        if self.largest_gpu_seconds is None:
            yield "No accepted attempt of the largest tier is there to compare with."
        else:
            yield (
                f"Everything on the largest tier: {self.largest_gpu_seconds:,.0f} "
                f"GPU-seconds, by the median of its accepted attempts."
            )
        if self.wait_p50_s is not None:
            yield f"Wait: p50 {self.wait_p50_s:,.0f} s, p95 {self.wait_p95_s:,.0f} s."


def savings(policy: str, days: int) -> Savings:
    """`policy` is a name: all its versions count."""
    since = timezone.now() - timedelta(days=days)
    rows = Job.objects.filter(
        policy__name=policy, status__in=TERMINAL, finished_at__gte=since
    )
    jobs = {str(job.pk): job for job in rows.select_related("policy")}
    used = _usage(jobs)
    accepted = _tiers(jobs, reason=Reason.COMPLETED)
    largest = _largest(list(jobs.values()), used, accepted)
    waits = sorted(
        (job.started_at - job.created_at).total_seconds()
        for job in jobs.values()
        if job.started_at
    )
    return Savings(
        policy=policy,
        days=days,
        jobs=len(jobs),
        escalated=sum(job.escalations > 0 for job in jobs.values()),
        tiers=_shares(jobs, used, accepted),
        gpu_seconds=sum(u.gpu_seconds for u in used.values()),
        vram_mb_seconds=sum(u.vram_mb_seconds for u in used.values()),
        largest_gpu_seconds=largest[0],
        largest_vram_mb_seconds=largest[1],
        wait_p50_s=_percentile(waits, 0.5),
        wait_p95_s=_percentile(waits, 0.95),
    )


# An attempt by its job and number.
_Key = tuple[str, int]


def _usage(jobs: dict[str, Job]) -> dict[_Key, UsageRecord]:
    """What infra faults cost is no tier's doing."""
    rows = UsageRecord.objects.filter(job__in=list(jobs))
    charged = rows.exclude(fault=Fault.INFRA)
    return {(row.job, row.attempt_number): row for row in charged}


def _tiers(jobs: Iterable[str], **of: Any) -> dict[_Key, str]:
    """By attempt its tier, of those that have `of`."""
    rows = Attempt.objects.filter(job__in=list(jobs), kind=Kind.JOB, **of)
    found = rows.values_list("job_id", "number", "tier")
    return {(str(job), number): tier for job, number, tier in found}


def _shares(
    jobs: dict[str, Job], used: dict[_Key, UsageRecord], accepted: dict[_Key, str]
) -> tuple[TierShare, ...]:
    by_tier: dict[str, list[UsageRecord]] = defaultdict(list)
    tier_of = _tiers(jobs)
    for key, record in used.items():
        if key in tier_of:
            by_tier[tier_of[key]].append(record)
    names = sorted(set(tier_of.values()))
    return tuple(
        TierShare(
            name=name,
            jobs=sum(tier == name for tier in accepted.values()),
            share=sum(tier == name for tier in accepted.values()) / (len(jobs) or 1),
            gpu_seconds=sum(r.gpu_seconds for r in by_tier[name]),
            vram_mb_seconds=sum(r.vram_mb_seconds for r in by_tier[name]),
        )
        for name in names
    )


def _largest(
    jobs: Sequence[Job], used: dict[_Key, UsageRecord], accepted: dict[_Key, str]
) -> tuple[float | None, float | None]:
    largest = {
        tier.name
        for policy in {job.policy for job in jobs if job.policy}
        for tier in policy.tiers.order_by("-position")[:1]
    }
    records = [used[k] for k, tier in accepted.items() if tier in largest and k in used]
    if not records:
        return None, None
    return (
        median(record.gpu_seconds for record in records) * len(jobs),
        median(record.vram_mb_seconds for record in records) * len(jobs),
    )


def _percentile(ordered: list[float], share: float) -> float | None:
    """The nearest rank."""
    if not ordered:
        return None
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
