"""What owners and groups have and had, as a pass counts it."""

from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.contrib.auth.models import Group
from django.utils import timezone

from jobs import lifecycle
from jobs.models import Job, Quota, UsageRecord, User
from jobs.status import Fault, Reason, Status
from scheduler.models import GPU
from scheduler.placement import Account, Limits
from scheduler.reservation import load_lanes, load_snapshot, release
from tests.factories import make_job
from tests.scheduler.factories import GB, place

pytestmark = pytest.mark.django_db


def used(owner: str = "alice@example.org", days_ago: int = 0, **fields: Any) -> None:
    UsageRecord.objects.create(
        **{
            "owner": owner,
            "job": f"job {UsageRecord.objects.count()}",
            "attempt_number": 1,
            "gpu_seconds": 100.0,
            "vram_mb_seconds": 1000.0,
            "fault": Fault.NOBODY,
            "ended_at": timezone.now() - timedelta(days=days_ago),
            **fields,
        }
    )


def accounts(*waiting: Job) -> tuple[dict[str, Account], dict[str, Account]]:
    now = timezone.now()
    snapshot = load_snapshot(now, load_lanes(now).lanes)
    return dict(snapshot.owners), dict(snapshot.groups)


def account(name: str = "alice@example.org") -> Account:
    return accounts()[0][name]


@pytest.fixture
def waiting(alice: User, gpus: list[GPU]) -> Job:
    return make_job(alice)


class TestFairShare:
    def test_usage_counts_half_after_a_half_life(
        self, waiting: Job, settings: Any
    ) -> None:
        settings.HALF_LIFE_D = 7
        used(days_ago=0)
        used(days_ago=7)
        used(days_ago=14)
        assert account().usage == 1000 + 500 + 250

    def test_use_of_five_half_lives_ago_still_counts(self, waiting: Job) -> None:
        used(days_ago=35)
        assert account().usage == 1000 / 32
        assert account().gpu_seconds == 0

    def test_infra_endings_are_not_charged(self, waiting: Job) -> None:
        used(fault=Fault.INFRA)
        assert account() == Account()

    @pytest.mark.parametrize(
        "fault", [Fault.NOBODY, Fault.USER, Fault.POLICY, Fault.UNKNOWN]
    )
    def test_all_others_are(self, waiting: Job, fault: Fault) -> None:
        used(fault=fault)
        assert account().usage == 1000

    def test_a_job_that_its_owner_deleted_still_counts(
        self, alice: User, gpus: list[GPU]
    ) -> None:
        attempt = place(make_job(alice, min_vram_mb=2 * GB, share=True))
        release(attempt)
        usage = lifecycle.Usage(gpu_seconds=100, vram_mb_seconds=100 * 2 * GB)
        lifecycle.finish(attempt, Reason.UNKNOWN, "", usage=usage, by="test")
        lifecycle.delete(Job.objects.get(), by=alice)
        make_job(alice)
        assert account().usage == 100 * 2 * GB

    def test_what_runs_counts_an_hour_at_once_or_its_limit(self, waiting: Job) -> None:
        place(make_job(waiting.owner, min_vram_mb=2 * GB, share=True, timeout_s=60))
        assert account().usage == 2 * GB * 60
        place(make_job(waiting.owner, min_vram_mb=2 * GB, share=True, timeout_s=9999))
        assert account().usage == 2 * GB * (60 + 3600)

    def test_what_runs_longer_counts_for_as_long(self, waiting: Job) -> None:
        with time_machine.travel(timezone.now() - timedelta(hours=10)):
            attempt = place(make_job(waiting.owner, min_vram_mb=2 * GB, share=True))
        ten_hours = pytest.approx(2 * GB * 36_000, rel=0.01)
        assert account().usage == ten_hours
        # What it used is not forgotten while its files are collected.
        lifecycle.see_exit(attempt, by="test")
        release(attempt)
        assert account().usage == ten_hours
        assert account().gpu_seconds == pytest.approx(36_000, rel=0.01)

    def test_a_group_has_what_its_members_used_for_it(
        self, alice: User, gpus: list[GPU]
    ) -> None:
        make_job(alice, group="vision")
        used(group="vision")
        used("bob@example.org", group="vision")
        used("bob@example.org", group="speech")
        assert accounts()[1]["vision"].usage == 2000

    def test_shares_come_from_the_quota(self, waiting: Job) -> None:
        Quota.objects.create(user=waiting.owner, shares=3)
        assert account().shares == 3


class TestLimits:
    def test_what_runs_is_counted_live(self, waiting: Job) -> None:
        place(make_job(waiting.owner, gpu_count=2, min_vram_mb=40 * GB))
        got = account()
        assert (got.running_jobs, got.gpus, got.vram_mb) == (1, 2, 96 * GB)

    def test_one_whose_exit_was_seen_no_longer_counts(self, waiting: Job) -> None:
        attempt = place(make_job(waiting.owner))
        lifecycle.see_exit(attempt, by="test")
        release(attempt)
        assert account().running_jobs == 0

    def test_gpu_hours_are_those_of_30_days_and_of_what_runs(
        self, waiting: Job
    ) -> None:
        used(days_ago=29)
        used(days_ago=30)
        with time_machine.travel(timezone.now() - timedelta(seconds=50)):
            place(make_job(waiting.owner, gpu_count=2))
        assert account().gpu_seconds == pytest.approx(100 + 2 * 50, abs=20)

    def test_the_users_own_row_replaces_that_for_everybody(
        self, waiting: Job, bob: User
    ) -> None:
        make_job(bob)
        Quota.objects.create(gpus=2)
        Quota.objects.create(user=waiting.owner, running_jobs=9)
        owners, _ = accounts()
        assert owners["alice@example.org"].limits == Limits(running_jobs=9)
        assert owners["bob@example.org"].limits == Limits(gpus=2)

    def test_a_groups_row_is_for_all_its_jobs(
        self, alice: User, gpus: list[GPU]
    ) -> None:
        vision = Group.objects.create(name="vision")
        Quota.objects.create(group=vision, vram_mb=5, gpu_hours=7)
        make_job(alice, group="vision")
        limits = accounts()[1]["vision"].limits
        assert limits == Limits(vram_mb=5, gpu_hours=7)

    def test_without_rows_there_are_no_limits(self, waiting: Job) -> None:
        assert account().limits == Limits()


def test_an_ended_attempt_is_recorded_for_its_group(alice: User) -> None:
    make_job(alice, group="vision", status=Status.SUCCEEDED)
    assert UsageRecord.objects.get().group == "vision"
