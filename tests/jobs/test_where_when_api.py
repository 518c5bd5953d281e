"""What of a spec says where and when, as it is posted."""

import uuid
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.utils import timezone

from jobs import lifecycle
from jobs.models import Job, Quota, User
from tests.asserts import assert_problem
from tests.factories import IMAGE, finish, make_attempt, make_job

pytestmark = pytest.mark.django_db

JOBS = "/api/v1/jobs"
SOME_ID = "0b6f7f7e-3f62-4c53-9d0e-0d6f3f9f8a11"


def post(client: Any, **spec: Any) -> Any:
    return client.post(JOBS, {"image": IMAGE, **spec})


def made(client: Any, **spec: Any) -> dict[str, Any]:
    answer = post(client, **spec)
    assert answer.status_code == 201, answer.content
    body: dict[str, Any] = answer.json()
    return body


def join(user: User, *names: str) -> None:
    for name in names:
        user.groups.add(Group.objects.get_or_create(name=name)[0])


def test_what_is_left_out_means_anywhere_and_now(api: Any, alice: User) -> None:
    wanted: dict[str, Any] = {
        "group": "",
        "node_name": "",
        "node_labels": {},
        "array": "",
        "array_id": None,
        "array_index": None,
        "begin_at": None,
        "is_held": False,
        "held_at": None,
        "depends_on": [],
        "wait_reason": "priority",
    }
    body = made(api(alice))
    assert {key: body[key] for key in wanted} == wanted


def test_what_is_asked_for_is_kept(api: Any, alice: User) -> None:
    join(alice, "vision")
    begin_at = (timezone.now() + timedelta(days=3)).replace(microsecond=0)
    asked = {
        "group": "vision",
        "node_name": "gauss",
        "node_labels": {"zone": "lab", "gpu/kind": "A100"},
        "array": "3-5%2",
    }
    body = made(api(alice), **asked, begin_at=begin_at.isoformat(), hold=True)
    assert {key: body[key] for key in asked} == asked
    assert datetime.fromisoformat(body["begin_at"]) == begin_at
    assert (body["is_held"], body["wait_reason"]) == (True, "held")
    assert (body["array_id"], body["array_index"]) == (body["id"], 3)


@pytest.mark.parametrize(
    ("changes", "code", "what"),
    [
        ({"node_name": None}, "null", "null as node"),
        ({"node_name": 5}, "invalid", "a number as node"),
        ({"node_name": "a\nb"}, "control_character", "a node of two lines"),
        ({"node_name": "x" * 101}, "max_length", "a long node"),
        ({"node_labels": None}, "null", "null as labels"),
        ({"node_labels": "a=b"}, "bad_labels", "a string as labels"),
        ({"node_labels": {"a": 1}}, "bad_label", "a number as label"),
        ({"array": None}, "null", "null as array"),
        ({"array": 5}, "invalid", "a number as array"),
        ({"array": [1, 2]}, "invalid", "a list as array"),
        ({"array": "0 - 5"}, "bad_array", "spaces"),
        ({"array": "-1"}, "bad_array", "a negative index"),
        ({"array": "1,1"}, "doubled_index", "an index twice"),
        ({"array": "0-1000"}, "too_many_tasks", "1,001 tasks"),
        ({"array": "0-1000000"}, "too_many_tasks", "a million tasks"),
        ({"array": "1," * 5000 + "1"}, "max_length", "a long array"),
        ({"begin_at": ""}, "invalid", "an empty time"),
        ({"begin_at": 1764576000}, "invalid", "seconds since 1970"),
        ({"begin_at": True}, "invalid", "a boolean as time"),
        ({"begin_at": ["2026-12-01T08:00:00Z"]}, "invalid", "a list as time"),
        ({"begin_at": "tomorrow"}, "invalid", "a word"),
        ({"begin_at": "2026-12-01"}, "no_time_zone", "a date alone"),
        ({"begin_at": "2026-12-01T08:00:00"}, "no_time_zone", "no time zone"),
        ({"begin_at": "2026-13-01T08:00:00Z"}, "invalid", "a thirteenth month"),
        ({"begin_at": "2999-01-01T00:00:00Z"}, "max_value", "a far time"),
        ({"begin_at": "9999-12-31T23:59:59-14:00"}, "overflow", "beyond the calendar"),
        ({"begin_at": "0001-01-01T00:00:00+14:00"}, "overflow", "before the calendar"),
        ({"begin_at": "0001-01-01T00:00:00Z"}, "min_value", "the year 1"),
        ({"hold": "true"}, "invalid", "a string of a boolean"),
        ({"hold": 1}, "invalid", "a number for a boolean"),
        ({"hold": None}, "null", "null as hold"),
        ({"depends_on": None}, "null", "null for jobs"),
        ({"depends_on": SOME_ID}, "bad_depends_on", "one id alone"),
        ({"depends_on": {}}, "bad_depends_on", "an object"),
        ({"depends_on": ["x"]}, "bad_job_id", "no id"),
        ({"depends_on": [SOME_ID] * 2}, "doubled_parent", "a job twice"),
        ({"depends_on": [SOME_ID]}, "no_such_job", "no job"),
        ({"depends_on": ["x"] * 101}, "too_many_parents", "101 jobs"),
        ({"group": None}, "null", "null as group"),
        ({"group": 5}, "invalid", "a number as group"),
        ({"group": ["vision"]}, "invalid", "a list as group"),
        ({"group": "vision"}, "not_your_group", "a group that is nobody's"),
        ({"group": "x" * 151}, "max_length", "a long group"),
    ],
)
def test_what_is_wrong_is_400_with_its_code_and_field(
    api: Any, alice: User, changes: dict[str, Any], code: str, what: str
) -> None:
    [field] = changes
    assert_problem(post(api(alice), **changes), 400, code, f"/{field}")
    assert not Job.objects.exists(), what


@pytest.mark.parametrize(
    "changes",
    [
        {"node_name": "a\x00"},
        {"node_labels": {"a": "\x00"}},
        {"array": "1\x00"},
        {"begin_at": "2026-12-01T08:00:00Z\x00"},
        {"depends_on": ["\x00"]},
        {"group": "a\x00"},
    ],
)
def test_what_no_database_can_hold_is_refused(
    api: Any, alice: User, changes: dict[str, Any]
) -> None:
    assert_problem(post(api(alice), **changes), 400, "bad_text")


@pytest.mark.parametrize(
    "name",
    [
        *["array_id", "array_index", "held_at", "held_by", "is_held", "topped_at"],
        *["wait_reason", "wait_text"],
    ],
)
def test_what_we_set_can_not_be_sent(api: Any, alice: User, name: str) -> None:
    assert_problem(post(api(alice), **{name: "x"}), 400, "unknown_field", f"/{name}")


def test_more_shared_memory_than_memory_is_refused(api: Any, alice: User) -> None:
    answer = post(api(alice), memory_mb=1024, shm_mb=2048)
    body = assert_problem(answer, 400, "shm_over_memory", "/shm_mb")
    assert "Shared memory counts in memory" in body["detail"]


@pytest.mark.parametrize("begin_at", ["2001-01-01T00:00:00Z", None])
def test_a_time_in_the_past_means_now(
    api: Any, alice: User, begin_at: str | None
) -> None:
    assert made(api(alice), begin_at=begin_at)["wait_reason"] == "priority"


def test_a_time_is_taken_in_any_zone(api: Any, alice: User) -> None:
    day = timezone.now().date() + timedelta(days=9)
    body = made(api(alice), begin_at=f"{day}T08:00:00+09:00")
    assert body["begin_at"] == f"{day - timedelta(days=1)}T23:00:00Z"
    assert body["wait_reason"] == "begin_time"


# --- Groups --------------------------------------------------------------------------


def test_without_a_group_it_is_the_first_of_mine_by_name(api: Any, alice: User) -> None:
    join(alice, "vision", "Audio", "nlp")
    for asked in ({}, {"group": ""}):
        assert made(api(alice), **asked)["group"] == "Audio"
    assert made(api(alice), group="nlp")["group"] == "nlp"


def test_of_a_group_one_must_be_a_member(api: Any, alice: User, bob: User) -> None:
    join(bob, "vision")
    join(alice, "nlp")
    body = assert_problem(
        post(api(alice), group="vision"), 400, "not_your_group", "/group"
    )
    assert "Yours: nlp." in body["detail"]
    assert_problem(post(api(alice), group="NLP"), 400, "not_your_group", "/group")


def test_a_group_whose_name_is_not_ascii_is_taken(api: Any, alice: User) -> None:
    join(alice, "Zürich \N{ROCKET}")
    assert made(api(alice))["group"] == "Zürich \N{ROCKET}"


# --- Arrays --------------------------------------------------------------------------


def test_an_array_is_answered_with_its_first_task(api: Any, alice: User) -> None:
    answer = post(api(alice), array="9,4-6", name="sweep")
    body = answer.json()
    assert answer["Location"].endswith(f"/api/v1/jobs/{body['id']}")
    assert (body["array_index"], body["array_id"]) == (4, body["id"])
    tasks = api(alice).get(f"{JOBS}?array_id={body['id']}&ordering=created_at").json()
    assert [task["array_index"] for task in tasks["results"]] == [4, 5, 6, 9]
    assert {task["name"] for task in tasks["results"]} == {"sweep"}
    assert {task["array"] for task in tasks["results"]} == {"9,4-6"}


# --- Other jobs ----------------------------------------------------------------------


def test_the_jobs_it_waits_for_are_shown_with_their_outcome(
    api: Any, alice: User
) -> None:
    done, open_job = make_job(alice, status="succeeded"), make_job(alice)
    asked = [str(done.pk), {"job_id": str(open_job.pk), "condition": "after_any"}]
    body = made(api(alice), depends_on=asked)
    wanted = [
        {"job_id": str(done.pk), "condition": "after_ok", "outcome": "succeeded"},
        {"job_id": str(open_job.pk), "condition": "after_any", "outcome": ""},
    ]
    assert body["depends_on"] == wanted
    assert body["wait_reason"] == "dependency"
    read = api(alice).get(f"{JOBS}/{body['id']}").json()
    assert read["depends_on"] == wanted


def test_a_strangers_job_and_none_are_refused_alike(
    api: Any, alice: User, bob: User
) -> None:
    for job_id in (str(make_job(bob).pk), str(uuid.uuid4())):
        answer = post(api(alice), depends_on=[job_id])
        body = assert_problem(answer, 400, "no_such_job", "/depends_on")
        told = body["detail"].replace(job_id, "ID")
        assert told == "depends_on: There is no job ID, or it is not yours."


def test_a_parent_that_failed_is_told_with_how_it_ended(api: Any, alice: User) -> None:
    parent = make_job(alice, status="failed")
    answer = post(api(alice), depends_on=[str(parent.pk)])
    body = assert_problem(answer, 400, "parent_failed", "/depends_on")
    assert "it is failed" in body["detail"]


def test_a_dry_run_refuses_such_parents_too(api: Any, alice: User) -> None:
    answer = api(alice).post(
        f"{JOBS}?dry_run=true", {"image": IMAGE, "depends_on": [SOME_ID]}
    )
    assert_problem(answer, 400, "no_such_job", "/depends_on")


def test_a_dry_run_of_everything_queues_nothing(api: Any, alice: User) -> None:
    parent = make_job(alice)
    asked = {"image": IMAGE, "array": "0-9", "hold": True, "gpu_count": 0}
    asked["depends_on"] = [str(parent.pk)]
    assert api(alice).post(f"{JOBS}?dry_run=true", asked).status_code == 200
    assert Job.objects.count() == 1


# --- Too many ------------------------------------------------------------------------


def test_more_than_may_wait_is_422_with_the_numbers(api: Any, alice: User) -> None:
    Quota.objects.create(user=alice, queued_jobs=2)
    make_job(alice)
    body = assert_problem(post(api(alice), array="0-4"), 422, "over_quota")
    assert "1 queued jobs of at most 2: 5 more" in body["detail"]
    assert Job.objects.count() == 1


# --- Idempotency-Key -----------------------------------------------------------------


def submit(client: Any, **spec: Any) -> Any:
    headers = {"Idempotency-Key": "k1"}
    return client.post(JOBS, {"image": IMAGE, **spec}, headers=headers)


def repeated(client: Any, **spec: Any) -> bool:
    first, again = submit(client, **spec), submit(client, **spec)
    assert (first.status_code, again.status_code) == (201, 200), again.content
    return bool(first.json()["id"] == again.json()["id"])


def test_a_repeat_of_all_of_it_is_answered_with_the_first_task(
    api: Any, alice: User
) -> None:
    parents = [str(make_job(alice).pk), str(make_job(alice).pk)]
    begin_at = (timezone.now() + timedelta(hours=1)).isoformat()
    asked = {"array": "0-3%2", "begin_at": begin_at, "hold": True}
    assert repeated(
        api(alice), **asked, depends_on=parents, node_labels={"zone": "lab"}
    )
    assert Job.objects.count() == 2 + 4
    other_order = submit(
        api(alice), **asked, depends_on=parents[::-1], node_labels={"zone": "lab"}
    )
    assert other_order.status_code == 200


def test_a_repeat_is_known_after_the_hold_was_released(api: Any, alice: User) -> None:
    submit(api(alice), hold=True)
    lifecycle.release_hold(Job.objects.get(), by=alice)
    assert submit(api(alice), hold=True).status_code == 200


def test_a_repeat_is_known_after_a_parent_has_failed(api: Any, alice: User) -> None:
    parent = make_job(alice)
    submit(api(alice), depends_on=[str(parent.pk)])
    finish(make_attempt(parent), "cuda_oom")
    lifecycle.resolve_dependencies(by="scheduler")
    body = submit(api(alice), depends_on=[str(parent.pk)]).json()
    assert body["reason"] == "dependency_failed"
    lifecycle.delete(Job.objects.get(pk=parent.pk), by=alice)
    assert submit(api(alice), depends_on=[str(parent.pk)]).status_code == 200


def test_a_repeat_is_known_where_no_more_may_wait(api: Any, alice: User) -> None:
    Quota.objects.create(user=alice, queued_jobs=4)
    assert repeated(api(alice), array="0-3")


@pytest.mark.parametrize(
    "changes",
    [
        {"array": "0-4"},
        {"array": ""},
        {"hold": False},
        {"begin_at": "2001-01-01T00:00:01Z"},
        {"node_name": "noether"},
        {"node_labels": {}},
        {"depends_on": []},
        {"depends_on": [SOME_ID]},
    ],
)
def test_a_repeat_with_another_of_them_is_a_conflict(
    api: Any, alice: User, changes: dict[str, Any]
) -> None:
    asked = {
        "array": "0-3",
        "hold": True,
        "begin_at": "2001-01-01T00:00:00Z",
        "node_name": "gauss",
        "node_labels": {"zone": "lab"},
        "depends_on": [str(make_job(alice).pk)],
    }
    assert submit(api(alice), **asked).status_code == 201
    answer = submit(api(alice), **{**asked, **changes})
    assert_problem(answer, 409, "idempotency_conflict")


def test_another_condition_is_another_spec(api: Any, alice: User) -> None:
    parent = str(make_job(alice).pk)
    submit(api(alice), depends_on=[parent])
    same = [{"job_id": parent, "condition": "after_ok"}]
    other = [{"job_id": parent, "condition": "after_any"}]
    assert submit(api(alice), depends_on=same).status_code == 200
    assert submit(api(alice), depends_on=other).status_code == 409
