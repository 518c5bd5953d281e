"""The fold "Where and when" of the form, and the page that takes it."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import Group
from django.test import Client
from django.utils import timezone

from jobs.forms import SubmitForm
from jobs.models import Job, Quota, User
from jobs.spec import Parent
from jobs.status import Condition
from tests.factories import IMAGE, make_job

pytestmark = pytest.mark.django_db

PLAIN = {
    "image": IMAGE,
    "gpu_count": "1",
    "timeout_s": "1h",
    "grace_s": "10s",
    "priority": "50",
}
ONE = "0b6f7f7e-3f62-4c53-9d0e-0d6f3f9f8a11"
OTHER = "1b6f7f7e-3f62-4c53-9d0e-0d6f3f9f8a11"


def filled(user: User, **values: Any) -> SubmitForm:
    form = SubmitForm({**PLAIN, **values}, user=user)
    form.is_valid()
    return form


@pytest.fixture
def page(client: Client, alice: User) -> Client:
    client.force_login(alice)
    return client


def test_what_is_left_out_means_anywhere_and_now(alice: User) -> None:
    data = filled(alice).cleaned_data
    asked = data["spec"]
    assert (asked["node_name"], asked["node_labels"], asked["array"]) == ("", {}, "")
    assert (asked["begin_at"], asked["group"]) == (None, "")
    assert data["terms"] == {"depends_on": [], "hold": False}


def test_it_is_read_as_people_write_it(alice: User) -> None:
    day = timezone.now().date() + timedelta(days=9)
    data = filled(
        alice,
        node_name=" gauss ",
        node_labels="zone=lab\r\n\r\ngpu/kind=A100\r\n",
        array=" 0-3%2 ",
        begin_at=f"{day}T08:30",
        depends_on=f" {ONE} \r\nafter_any:{OTHER}\r\n",
        hold="on",
    ).cleaned_data
    asked = data["spec"]
    assert (asked["node_name"], asked["array"]) == ("gauss", "0-3%2")
    assert asked["node_labels"] == {"zone": "lab", "gpu/kind": "A100"}
    assert asked["begin_at"] == datetime(
        day.year, day.month, day.day, 8, 30, tzinfo=UTC
    )
    assert data["terms"] == {
        "depends_on": [
            Parent(UUID(ONE), Condition.AFTER_OK),
            Parent(UUID(OTHER), Condition.AFTER_ANY),
        ],
        "hold": True,
    }


def test_a_time_is_in_the_persons_zone(page: Client, alice: User) -> None:
    User.objects.update(time_zone="Asia/Tokyo")
    day = timezone.now().date() + timedelta(days=9)
    page.post("/submit/", {**PLAIN, "begin_at": f"{day}T08:00"})
    begin_at = Job.objects.get().begin_at
    assert begin_at is not None
    assert begin_at.isoformat() == f"{day - timedelta(days=1)}T23:00:00+00:00"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("node_name", "two\nlines"),
        ("node_name", "nul\x00"),
        ("node_name", "x" * 101),
        ("node_labels", "zone"),
        ("node_labels", "zone="),
        ("node_labels", "=lab"),
        ("node_labels", "zone=the lab"),
        ("node_labels", "zone=l\u00e4b"),
        ("node_labels", "\n".join(f"a{n}=1" for n in range(21))),
        ("array", "0 - 3"),
        ("array", "1,1"),
        ("array", "0-1000"),
        ("array", "-1"),
        ("array", "\u0661"),
        ("array", "1\x00"),
        ("array", "1," * 5000),
        ("begin_at", "soon"),
        ("begin_at", "2999-01-01T00:00"),
        ("begin_at", "0001-01-01T00:00"),
        ("begin_at", "9999-12-31T23:59"),
        ("begin_at", "2026-13-01T00:00"),
        ("depends_on", "x"),
        ("depends_on", f"after:{ONE}"),
        ("depends_on", f":{ONE}:"),
        ("depends_on", f"{ONE}\n{ONE}"),
        ("depends_on", "x\n" * 101),
        ("depends_on", "\x00"),
    ],
)
def test_the_rules_are_those_of_the_api(alice: User, field: str, value: str) -> None:
    assert list(filled(alice, **{field: value}).errors) == [field]


def test_more_shared_memory_than_memory_is_refused(alice: User) -> None:
    form = filled(alice, memory_mb="1G", shm_mb="2G")
    assert list(form.errors) == ["shm_mb"]
    assert "Shared memory counts in memory" in str(form.errors)


class TestGroup:
    def test_who_is_in_none_is_not_asked(self, alice: User) -> None:
        assert "group" not in SubmitForm(user=alice).fields
        assert filled(alice, group="vision").cleaned_data["spec"]["group"] == ""

    def test_the_first_by_name_is_chosen(self, alice: User) -> None:
        for name in ("vision", "Audio"):
            alice.groups.add(Group.objects.create(name=name))
        assert filled(alice).cleaned_data["spec"]["group"] == "Audio"
        assert filled(alice, group="vision").cleaned_data["spec"]["group"] == "vision"
        html = str(SubmitForm(user=alice)["group"])
        assert html.index("Audio") < html.index("vision")

    def test_of_one_that_is_not_mine_no_job_is_made(self, alice: User) -> None:
        Group.objects.create(name="secret")
        alice.groups.add(Group.objects.create(name="vision"))
        assert list(filled(alice, group="secret").errors) == ["group"]

    def test_the_fold_stays_shut_for_the_group_alone(self, alice: User) -> None:
        alice.groups.add(Group.objects.create(name="vision"))
        for sent in ({}, {"group": "vision"}):
            assert not any(fold.is_open for fold in filled(alice, **sent).folds())


def test_the_key_holds_for_the_same_of_it_only(alice: User) -> None:
    def once(**values: Any) -> str | None:
        return filled(alice, idempotency_key="k", **values).once

    day = timezone.now().date()
    assert once(hold="on", depends_on=ONE) == once(hold="on", depends_on=ONE)
    keys = {
        *[once(), once(hold="on"), once(depends_on=ONE), once(array="1")],
        *[once(depends_on=f"after_any:{ONE}"), once(begin_at=f"{day}T08:00")],
    }
    assert len(keys) == 6


# --- The page ------------------------------------------------------------------------


def test_the_form_offers_it_in_a_fold(page: Client) -> None:
    text = page.get("/submit/").content.decode()
    assert "Where and when" in text
    assert 'type="datetime-local"' in text


def test_an_array_that_waits_is_queued_held(page: Client, alice: User) -> None:
    parent = make_job(alice)
    form = {**PLAIN, "array": "0-2", "hold": "on", "depends_on": str(parent.pk)}
    answer = page.post("/submit/", form)
    first = Job.objects.get(array_index=0)
    assert answer.headers["Location"] == f"/jobs/{first.pk}/"
    assert Job.objects.filter(array_id=first.pk, held_by=alice).count() == 3
    assert first.dependencies.get().parent_id == parent.pk


def test_a_job_that_can_not_be_waited_for_is_told_at_its_field(
    page: Client, bob: User
) -> None:
    foreign = make_job(bob)
    answer = page.post("/submit/", {**PLAIN, "depends_on": str(foreign.pk)})
    text = answer.content.decode()
    assert f"There is no job {foreign.pk}, or it is not yours." in text
    assert '<a href="#id_depends_on">After other jobs</a>' in text
    assert Job.objects.count() == 1


def test_more_than_may_wait_is_422_with_the_numbers(page: Client, alice: User) -> None:
    Quota.objects.create(user=alice, queued_jobs=2)
    answer = page.post("/submit/", {**PLAIN, "array": "0-2"})
    assert answer.status_code == 422
    assert "0 queued jobs of at most 2: 3 more" in answer.content.decode()
    assert not Job.objects.exists()


def test_the_last_place_sent_twice_makes_one_job(page: Client, alice: User) -> None:
    Quota.objects.create(user=alice, queued_jobs=1)
    form = {**PLAIN, "idempotency_key": "0b6f7f7e"}
    first, second = page.post("/submit/", form), page.post("/submit/", form)
    assert first.headers["Location"] == second.headers["Location"]
