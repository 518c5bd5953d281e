"""What owners and groups have and had: from usage records and live attempts, never
from counters that could drift, nor from rows that a user can delete."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db.models import Sum
from django.db.models.functions import TruncDay

from jobs.models import Quota, UsageRecord
from jobs.status import Fault
from scheduler.placement import Account, Limits

WINDOW = timedelta(days=30)
# After so many half-lives a thousandth is left.
FORGOTTEN_AFTER = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """What one live attempt has and had, and for whom."""

    owner: str
    group: str
    is_running: bool  # its exit was not seen yet
    gpus: int
    vram_mb: int
    gpu_seconds: float
    usage: float


@dataclass(slots=True)
class _Sum:
    usage: float = 0.0
    gpu_seconds: float = 0.0
    live: list[Live] = field(default_factory=list)


def load_accounts(
    now: datetime, live: Iterable[Live], owners: Iterable[str], groups: Iterable[str]
) -> tuple[dict[str, Account], dict[str, Account]]:
    """The accounts of those who wait or run, by owner and by group."""
    by_owner: dict[str, _Sum] = {}
    by_group: dict[str, _Sum] = {}
    _add_usage(now, by_owner, by_group)
    for one in live:
        by_owner.setdefault(one.owner, _Sum()).live.append(one)
        by_group.setdefault(one.group, _Sum()).live.append(one)
    users, teams, everyone = Quota.objects.limits()
    empty = _Sum()
    return (
        {
            name: _account(by_owner.get(name, empty), users.get(name, everyone))
            for name in sorted(set(owners))
        },
        {
            name: _account(by_group.get(name, empty), teams.get(name))
            for name in sorted(set(groups) - {""})
        },
    )


def _add_usage(
    now: datetime, by_owner: dict[str, _Sum], by_group: dict[str, _Sum]
) -> None:
    half_life_d = settings.HALF_LIFE_D
    window = max(WINDOW, timedelta(days=half_life_d * FORGOTTEN_AFTER))
    # What ended for a cause of ours is nobody's to pay for.
    rows = UsageRecord.objects.filter(ended_at__gt=now - window)
    days = (
        rows.exclude(fault=Fault.INFRA)
        .order_by()
        .values_list("owner", "group", TruncDay("ended_at", tzinfo=UTC))
        .annotate(Sum("vram_mb_seconds"), Sum("gpu_seconds"))
    )
    today = now.astimezone(UTC).date()
    for owner, group, day, vram_mb_seconds, gpu_seconds in days:
        age_d = (today - day.date()).days
        for total in (
            by_owner.setdefault(owner, _Sum()),
            by_group.setdefault(group, _Sum()),
        ):
            total.usage += vram_mb_seconds * 0.5 ** (age_d / half_life_d)
            if age_d < WINDOW.days:
                total.gpu_seconds += gpu_seconds


def _account(total: _Sum, quota: Quota | None) -> Account:
    running = [one for one in total.live if one.is_running]
    account = Account(
        usage=total.usage + sum(one.usage for one in total.live),
        running_jobs=len(running),
        gpus=sum(one.gpus for one in running),
        vram_mb=sum(one.vram_mb for one in running),
        gpu_seconds=total.gpu_seconds + sum(one.gpu_seconds for one in total.live),
    )
    if quota is None:
        return account
    limits = Limits(
        running_jobs=quota.running_jobs,
        gpus=quota.gpus,
        vram_mb=quota.vram_mb,
        gpu_hours=quota.gpu_hours,
    )
    return replace(account, shares=quota.shares, limits=limits)
