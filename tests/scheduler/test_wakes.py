"""Whatever changes who is in line, or what is kept for whom, asks for a pass."""

from collections.abc import Callable

import pytest

from jobs import lifecycle
from jobs.models import Job, User
from scheduler.models import PassLease
from tests.factories import make_job

pytestmark = pytest.mark.django_db(transaction=True)

Act = Callable[[Job, User], object]
ACTS: dict[str, Act] = {
    "a hold": lambda job, olga: lifecycle.hold(job, by=olga),
    "a cancel": lambda job, olga: lifecycle.request_cancel(job, by=olga),
    "a move to the top": lambda job, olga: lifecycle.move_to_top(job, by=olga),
    "a delete": lambda job, olga: lifecycle.delete(job, by=olga),
    "a submission": lambda job, olga: make_job(olga),
}


def wakes() -> int:
    return PassLease.objects.values_list("wakes", flat=True).first() or 0


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_it_asks_for_a_pass(alice: User, olga: User, act: Act) -> None:
    job = make_job(alice)
    before = wakes()
    act(job, olga)
    assert wakes() > before


def test_so_does_a_release(alice: User) -> None:
    job = make_job(alice, hold=True)
    before = wakes()
    lifecycle.release_hold(job, by=alice)
    assert wakes() > before


def test_a_release_of_what_is_not_held_asks_for_none(alice: User) -> None:
    job = make_job(alice)
    before = wakes()
    lifecycle.release_hold(job, by=alice)
    assert wakes() == before
