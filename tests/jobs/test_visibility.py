"""Who sees a job: its owner, its group if the job says so, operators."""

import uuid
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import IntegrityError, transaction
from django.test import Client

from jobs.models import Job, User
from jobs.status import Status
from tests.asserts import assert_problem
from tests.factories import IMAGE, make_artifact, make_job, write_log

JOBS = "/api/v1/jobs"
READS = ["", "/logs", "/events", "/attempts", "/artifact", "/artifact/download"]
CHANGES = ["cancel", "hold", "release", "top"]
PAGES = ["", "cancel/", "delete/"]


@pytest.fixture
def vision(alice: User, bob: User) -> Group:
    """Alice and Bob are in one group, and each in one more."""
    group = Group.objects.create(name="vision")
    alice.groups.add(group, Group.objects.create(name="speech"))
    bob.groups.add(group, Group.objects.create(name="robots"))
    return group


def page(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def shared(owner: User, **spec: Any) -> Job:
    return make_job(owner, **{"group": "vision", "visibility": "group", **spec})


def ended(owner: User, **spec: Any) -> Job:
    job = make_job(owner, status=Status.SUCCEEDED, **spec)
    write_log(job, b"hello")
    make_artifact(job.attempts.get())
    return job


@pytest.mark.parametrize("path", READS)
def test_a_teammate_reads_all_of_it(
    api: Any, alice: User, bob: User, vision: Group, path: str
) -> None:
    job = ended(alice, group="vision", visibility="group")
    answer = api(bob).get(f"{JOBS}/{job.pk}{path}")
    assert answer.status_code == 200
    answer.close()


def test_a_teammate_sees_no_value_of_the_environment(
    api: Any, alice: User, bob: User, vision: Group
) -> None:
    job = shared(alice, env={"TOKEN": "hf_secret"})
    answer = api(bob).get(f"{JOBS}/{job.pk}").json()
    assert answer["env"] == {"TOKEN": "***"}
    assert "hf_secret" not in page(bob).get(f"/jobs/{job.pk}/").content.decode()


@pytest.mark.parametrize("verb", CHANGES)
def test_a_teammate_changes_nothing(
    api: Any, alice: User, bob: User, vision: Group, verb: str
) -> None:
    job = shared(alice)
    before = Job.objects.values().get()
    body = assert_problem(api(bob).post(f"{JOBS}/{job.pk}/{verb}"), 403, "not_yours")
    assert alice.email in body["detail"]
    assert_problem(api(bob).delete(f"{JOBS}/{job.pk}"), 403, "not_yours")
    for name in (*CHANGES, "delete"):
        assert page(bob).post(f"/jobs/{job.pk}/{name}/").status_code == 403
    assert Job.objects.values().get() == before


def test_a_teammates_page_offers_no_change(
    alice: User, bob: User, vision: Group
) -> None:
    job = shared(alice)
    text = page(bob).get(f"/jobs/{job.pk}/").content.decode()
    assert "whose members may look at it" in text
    for words in ("Cancel…", "Delete…", ">Hold<"):
        assert words not in text
        assert words in page(alice).get(f"/jobs/{job.pk}/").content.decode()
    assert alice.email in page(bob).get("/jobs/").content.decode()
    assert page(bob).get(f"/jobs/{job.pk}/cancel/").status_code == 403


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"visibility": "owner"}, "it is the owner's alone"),
        ({"group": "speech"}, "it is of the owner's other group"),
    ],
)
def test_what_is_not_shown_to_the_group_does_not_exist(
    api: Any, alice: User, bob: User, vision: Group, spec: dict[str, str], why: str
) -> None:
    job = shared(alice, **spec)
    assert api(bob).get(f"{JOBS}/{job.pk}").status_code == 404, why
    assert api(bob).get(JOBS).json()["count"] == 0, why


def test_who_leaves_the_group_sees_it_no_more(
    api: Any, alice: User, bob: User, vision: Group
) -> None:
    job = shared(alice)
    assert api(bob).get(JOBS).json()["count"] == 1
    bob.groups.remove(vision)
    assert api(bob).get(f"{JOBS}/{job.pk}").status_code == 404
    assert api(bob).get(JOBS).json()["count"] == 0
    assert api(alice).get(f"{JOBS}/{job.pk}").status_code == 200


@pytest.mark.parametrize("path", [*READS, "/explain"])
def test_a_strangers_404_is_that_of_nothing(
    api: Any, alice: User, bob: User, path: str
) -> None:
    job, never = ended(alice), uuid.uuid4()
    answers = [api(bob).get(f"{JOBS}/{pk}{path}") for pk in (job.pk, never)]
    bodies = [
        str(assert_problem(answer, 404, "not_found")).replace(str(pk), "ID")
        for answer, pk in zip(answers, (job.pk, never), strict=True)
    ]
    assert bodies[0] == bodies[1]
    kept = [
        {k: v for k, v in a.headers.items() if k != "Content-Length"} for a in answers
    ]
    assert kept[0] == kept[1]


@pytest.mark.parametrize("verb", [*CHANGES, "delete"])
def test_so_it_is_for_changes(api: Any, alice: User, bob: User, verb: str) -> None:
    job, never = make_job(alice), uuid.uuid4()

    def change(pk: uuid.UUID) -> str:
        client = api(bob)
        path = f"{JOBS}/{pk}"
        answer = (
            client.delete(path) if verb == "delete" else client.post(f"{path}/{verb}")
        )
        return str(assert_problem(answer, 404, "not_found")).replace(str(pk), "ID")

    assert change(job.pk) == change(never)


@pytest.mark.parametrize("path", PAGES)
def test_so_it_is_for_pages(alice: User, bob: User, path: str, settings: Any) -> None:
    settings.DEBUG = False  # whose page of a 404 tells of the address
    job, never = make_job(alice), uuid.uuid4()
    answers = [page(bob).get(f"/jobs/{pk}/{path}") for pk in (job.pk, never)]
    assert [answer.status_code for answer in answers] == [404, 404]

    def text(answer: Any) -> list[str]:
        lines = answer.content.decode().splitlines()
        return [line for line in lines if "csrfmiddlewaretoken" not in line]

    assert text(answers[0]) == text(answers[1])


# --- Saying so -----------------------------------------------------------------------


def submit(client: Any, **spec: Any) -> Any:
    return client.post(JOBS, {"image": IMAGE, "gpu_count": 0, **spec})


def test_a_job_is_its_owners_unless_it_says_otherwise(
    api: Any, alice: User, vision: Group
) -> None:
    assert submit(api(alice)).json()["visibility"] == "owner"
    answer = submit(api(alice), visibility="group", group="vision")
    assert (answer.json()["visibility"], answer.json()["group"]) == ("group", "vision")
    found = api(alice).get(f"{JOBS}?visibility=group").json()
    assert [job["id"] for job in found["results"]] == [answer.json()["id"]]


@pytest.mark.parametrize("value", ["", "all", "GROUP", None, 1, ["group"], {"a": 1}])
def test_no_other_visibility(api: Any, alice: User, vision: Group, value: Any) -> None:
    answer = submit(api(alice), visibility=value)
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["pointer"] == "/visibility"


def test_who_is_in_no_group_shows_it_to_none(api: Any, alice: User) -> None:
    answer = submit(api(alice), visibility="group")
    assert_problem(answer, 400, "no_group", "/visibility")
    assert 'name="visibility"' not in page(alice).get("/submit/").content.decode()


def test_the_form_takes_it(alice: User, vision: Group) -> None:
    form = {"image": IMAGE, "gpu_count": "0", "timeout_s": "1h", "grace_s": "10"}
    sent = {**form, "priority": "50", "group": "vision", "visibility": "group"}
    assert page(alice).post("/submit/", sent).status_code == 302
    assert (Job.objects.get().visibility, Job.objects.get().group) == (
        "group",
        "vision",
    )


def test_the_database_knows_no_group_without_a_name(alice: User) -> None:
    job = make_job(alice)
    for values in ({"visibility": "group"}, {"visibility": "all", "group": "vision"}):
        with pytest.raises(IntegrityError), transaction.atomic():
            Job.objects.filter(pk=job.pk).update(**values)
