from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from django.utils import timezone

from jobs.models import Job
from jobs.status import WaitReason
from jobs.waiting import outside_line

NOW = datetime(2026, 12, 1, 8, 0, tzinfo=UTC)
PARENTS = [UUID(int=number) for number in range(1, 6)]


def waits(**fields: object) -> Job:
    return Job(owner_id=1, name="train", image="busybox", **fields)


def test_a_job_that_nothing_keeps_is_in_line() -> None:
    assert outside_line(waits(), [], NOW) is None


@pytest.mark.parametrize("begin_at", [NOW, NOW - timedelta(days=1)])
def test_a_time_that_has_come_keeps_nothing(begin_at: datetime) -> None:
    assert outside_line(waits(begin_at=begin_at), [], NOW) is None


def test_a_time_to_come_is_told_in_utc() -> None:
    tokyo = timezone.get_fixed_timezone(9 * 60)
    job = waits(begin_at=datetime(2026, 12, 2, 9, 30, tzinfo=tokyo))
    told = outside_line(job, [], NOW)
    text = "It was asked to begin at 2026-12-02 00:30:00 UTC."
    assert told == (WaitReason.BEGIN_TIME, text)


def test_who_holds_a_job_says_who_can_release_it() -> None:
    own = outside_line(waits(held_at=NOW, held_by_id=1), [], NOW)
    foreign = outside_line(waits(held_at=NOW, held_by_id=2), [], NOW)
    assert own == (
        WaitReason.HELD,
        "Its owner holds it. Release it to let it start.",
    )
    assert foreign == (
        WaitReason.HELD,
        "An operator holds it, and only an operator can release it.",
    )


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (
            1,
            f"until job {PARENTS[0]} has ended; if that is an array, until all its tasks",
        ),
        (2, f"until 2 jobs have ended: {PARENTS[0]}, {PARENTS[1]}."),
        (5, f"until 5 jobs have ended: {PARENTS[0]}, {PARENTS[1]}, {PARENTS[2]} and 2"),
    ],
)
def test_the_jobs_that_it_waits_for_are_named(count: int, said: str) -> None:
    told = outside_line(waits(), PARENTS[:count], NOW)
    assert told is not None
    assert told[0] == WaitReason.DEPENDENCY
    assert said in told[1]


def test_a_hold_is_told_before_a_time_and_a_time_before_other_jobs() -> None:
    later = NOW + timedelta(hours=1)
    held = waits(held_at=NOW, held_by_id=1, begin_at=later)
    for job, reason in [
        (held, WaitReason.HELD),
        (waits(begin_at=later), WaitReason.BEGIN_TIME),
        (waits(), WaitReason.DEPENDENCY),
    ]:
        told = outside_line(job, PARENTS, NOW)
        assert told is not None
        assert told[0] == reason
