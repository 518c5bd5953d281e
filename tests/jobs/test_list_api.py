from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from rest_framework.generics import ListAPIView
from rest_framework.test import force_authenticate

from jobs import lifecycle
from jobs.api.filters import JobFilter
from jobs.api.serializers import JobSerializer
from jobs.models import Job, User
from jobs.spec import Parent
from jobs.status import WaitReason
from tests.asserts import assert_problem
from tests.factories import make_job

pytestmark = pytest.mark.django_db

JOBS = "/api/v1/jobs"


def names(answer: Any) -> list[str]:
    assert answer.status_code == 200, answer.content
    return [job["name"] for job in answer.json()["results"]]


def aged(job: Job, days: int) -> Job:
    job.created_at = timezone.now() - timedelta(days=days)
    job.save(update_fields=["created_at"])
    return job


def test_the_newest_job_comes_first(api: Any, alice: User) -> None:
    aged(make_job(alice, name="old"), 2)
    make_job(alice, name="new")
    body = api(alice).get(JOBS).json()
    assert [job["name"] for job in body["results"]] == ["new", "old"]
    assert (body["count"], body["next"], body["previous"]) == (2, None, None)


def test_others_jobs_are_not_listed_but_for_an_operator(
    api: Any, alice: User, bob: User, olga: User
) -> None:
    make_job(alice, name="hers")
    assert names(api(bob).get(JOBS)) == []
    assert names(api(olga).get(JOBS)) == ["hers"]


def test_without_a_login_there_is_no_list(api: Any, db: None) -> None:
    assert_problem(api().get(JOBS), 401, "not_authenticated")


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", {"a1", "b2", "c%"}),
        ("status=queued", {"a1", "c%"}),
        ("status=queued&status=cancelled", {"a1", "b2", "c%"}),
        ("status=running", set()),
        ("name=A", {"a1"}),
        ("name=%25", {"c%"}),
        ("name=_", set()),
        ("name=", {"a1", "b2", "c%"}),
        ("image=cuda", {"b2"}),
        ("image=CUDA", {"b2"}),
        ("model_name=gpt", {"c%"}),
        ("model_name=gp", set()),
        ("name=b&status=queued", set()),
    ],
)
def test_jobs_are_filtered(api: Any, alice: User, query: str, found: set[str]) -> None:
    make_job(alice, name="a1", image="busybox")
    make_job(alice, name="b2", image="nvidia/cuda:12", status="cancelled")
    make_job(alice, name="c%", model_name="gpt", image="python:3")
    assert set(names(api(alice).get(f"{JOBS}?{query}"))) == found


def test_jobs_are_filtered_by_group_array_and_wait(
    api: Any, alice: User, bob: User
) -> None:
    task = make_job(alice, name="task", array="3,7")
    make_job(alice, name="vision", group="vision")
    lifecycle.explain_waits(
        [make_job(alice, name="big").pk], WaitReason.RESOURCES, "No."
    )
    make_job(alice, name="held", hold=True)
    client = api(alice)
    assert names(client.get(f"{JOBS}?array_id={task.pk}")) == ["task", "task"]
    assert names(api(bob).get(f"{JOBS}?array_id={task.pk}")) == []
    assert names(client.get(f"{JOBS}?group=vision")) == ["vision"]
    assert names(client.get(f"{JOBS}?group=visio")) == []
    assert names(client.get(f"{JOBS}?wait_reason=held")) == ["held"]
    both = f"{JOBS}?wait_reason=held&wait_reason=resources&ordering=name"
    assert names(client.get(both)) == ["big", "held"]


def test_jobs_are_filtered_by_the_time_they_came(api: Any, alice: User) -> None:
    job = aged(make_job(alice), 0)
    for shift, later in [(-1, True), (0, True), (1, False)]:
        moment = (job.created_at + timedelta(seconds=shift)).isoformat()
        client = api(alice)
        assert bool(names(client.get(JOBS, {"created_after": moment}))) is later
        assert bool(names(client.get(JOBS, {"created_before": moment}))) is not later


@pytest.mark.parametrize(
    ("ordering", "first"),
    [
        ("name", "a"),
        ("-name", "b"),
        ("priority", "b"),
        ("-priority", "a"),
        ("created_at", "a"),
        ("-created_at", "b"),
        ("status,name", "b"),
        ("started_at,finished_at,name", "a"),
    ],
)
def test_the_order_can_be_asked_for(
    api: Any, alice: User, ordering: str, first: str
) -> None:
    make_job(alice, name="a", priority=50)
    make_job(alice, name="b", priority=10)
    make_job(alice, name="b", priority=20, status="cancelled")
    found = names(api(alice).get(JOBS, {"ordering": ordering}))
    if ordering.startswith("started_at"):  # where NULL sorts is the database's choice
        found = [name for name in found if name == "a"]
    assert found[0] == first


def test_a_time_of_a_zone_that_postgresql_does_not_know_is_taken(
    api: Any, alice: User
) -> None:
    make_job(alice, name="a")
    query = {"created_before": "2380-02-04T20:37:19+21:02"}
    assert names(api(alice).get(JOBS, query)) == ["a"]


def test_jobs_that_tie_are_on_one_page_each(api: Any, alice: User) -> None:
    for _ in range(7):
        make_job(alice)
    seen = []
    for page in range(1, 5):
        query = {"ordering": "name", "limit": 2, "page": page}
        seen += [job["id"] for job in api(alice).get(JOBS, query).json()["results"]]
    assert len(seen) == len(set(seen)) == 7


def test_pages_link_to_one_another(api: Any, alice: User) -> None:
    for number in range(3):
        make_job(alice, name=str(number))
    first = api(alice).get(JOBS, {"limit": 2, "ordering": "name"}).json()
    assert first["count"] == 3
    second = api(alice).get(first["next"]).json()
    assert [job["name"] for job in second["results"]] == ["2"]
    assert api(alice).get(second["previous"]).json()["results"] == first["results"]


def test_a_page_has_50_unless_told_otherwise(api: Any, alice: User) -> None:
    Job.objects.bulk_create(
        Job(owner=alice, name=str(n), image="busybox") for n in range(201)
    )
    assert len(names(api(alice).get(JOBS))) == 50
    assert len(names(api(alice).get(JOBS + "?limit=200"))) == 200


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("page=0", 404, "not_found"),
        ("page=-1", 404, "not_found"),
        ("page=" + "9" * 30, 404, "not_found"),
        ("page=" + "9" * 5000, 404, "not_found"),
        ("page=x", 404, "not_found"),
        ("page=%00", 404, "not_found"),
        ("page=2", 404, "not_found"),
        ("limit=0", 400, "bad_limit"),
        ("limit=-1", 400, "bad_limit"),
        ("limit=201", 400, "bad_limit"),
        ("limit=" + "9" * 5000, 400, "bad_limit"),
        ("limit=1_0", 400, "bad_limit"),
        ("limit=%D9%A1", 400, "bad_limit"),
        ("limit=x", 400, "bad_limit"),
        ("limit=", 400, "bad_limit"),
        ("created_before=2380-02-04T20:37:19%2B24:00", 400, "invalid"),
        ("array_id=", 400, "empty_parameter"),
        ("visibility=", 400, "empty_parameter"),
        ("ordering=", 400, "empty_parameter"),
        ("page=", 400, "bad_page"),
        ("created_after=", 400, "empty_parameter"),
        ("limit=%00", 400, "bad_limit"),
        ("status=lost", 400, "invalid_choice"),
        ("status=", 400, "invalid_choice"),
        ("status=queued,running", 400, "invalid_choice"),
        ("ordering=owner__password", 400, "invalid_choice"),
        ("ordering=-id;drop", 400, "invalid_choice"),
        ("ordering=--name", 400, "invalid_choice"),
        ("name=%00", 400, "null_characters_not_allowed"),
        ("name=" + "x" * 101, 400, "max_length"),
        ("image=" + "x" * 60_000, 400, "max_length"),
        ("model_name=%00", 400, "null_characters_not_allowed"),
        ("created_after=yesterday", 400, "invalid"),
        ("created_after=0001-01-01T00:00:00%2B14:00", 400, "min_value"),
        ("created_before=9999-12-31T23:59:59-14:00", 400, "max_value"),
        ("created_after=%00", 400, "invalid"),
        ("array_id=x", 400, "invalid"),
        ("array_id=%00", 400, "invalid"),
        ("array_id=" + "9" * 5000, 400, "invalid"),
        ("group=%00", 400, "null_characters_not_allowed"),
        ("group=" + "x" * 151, 400, "max_length"),
        ("wait_reason=boredom", 400, "invalid_choice"),
        ("wait_reason=", 400, "invalid_choice"),
        ("array_index=1", 400, "unknown_parameter"),
        ("stauts=queued", 400, "unknown_parameter"),
        ("owner=1", 400, "unknown_parameter"),
        ("status__in=queued", 400, "unknown_parameter"),
        ("%00=1", 400, "unknown_parameter"),
        ("format=xml", 404, "not_found"),
    ],
)
def test_a_query_that_can_not_be_answered_says_so(
    api: Any, alice: User, query: str, status: int, code: str
) -> None:
    make_job(alice)
    assert_problem(api(alice).get(f"{JOBS}?{query}"), status, code)


def test_a_view_without_filters_is_left_alone(alice: User, rf: Any) -> None:
    class Plain(ListAPIView[Job]):
        queryset = Job.objects.all()
        serializer_class = JobSerializer

    class Unpaged(Plain):
        pagination_class = None
        filterset_class = JobFilter

    make_job(alice)
    for view, query, status in [
        (Plain, "mine=1", 200),
        (Unpaged, "status=queued", 200),
        (Unpaged, "page=1", 400),
    ]:
        request = rf.get("/api/v1/x?" + query)
        force_authenticate(request, alice)
        assert view.as_view()(request).status_code == status


def test_a_thousand_parameters_are_refused(api: Any, alice: User) -> None:
    answer = api(alice).get(JOBS + "?" + "status=queued&" * 1001)
    assert_problem(answer, 400, "bad_request")


def test_the_list_takes_three_queries_however_long_it_is(
    api: Any, olga: User, django_assert_num_queries: Any
) -> None:
    client = api(olga)
    for count in (1, 5):
        for _ in range(count):
            first = make_job()
            make_job(first.owner, depends_on=[Parent(first.pk)])
        # The count, jobs with their owners, and what they depend on.
        with django_assert_num_queries(3):
            client.get(JOBS)


def test_a_browser_gets_a_page(api: Any, alice: User) -> None:
    make_job(alice, name="<script>alert(1)</script>")
    answer = api(alice).get(JOBS, headers={"Accept": "text/html"})
    assert answer["Content-Type"].startswith("text/html")
    assert b"<script>alert" not in answer.content
    refused = api(alice).get(JOBS + "?x=1", headers={"Accept": "text/html"})
    assert (refused.status_code, refused["Content-Type"][:9]) == (400, "text/html")


def test_a_form_that_is_not_offered_is_406(api: Any, alice: User) -> None:
    answer = api(alice).get(JOBS, headers={"Accept": "application/xml"})
    assert_problem(answer, 406, "not_acceptable")


def test_options_tell_what_can_be_sent(api: Any, alice: User) -> None:
    answer = api(alice).options(JOBS)
    assert answer.status_code == 200
    assert answer.json()["actions"]["POST"]["gpu_count"]["max_value"] == 64


def test_there_are_no_policies_yet(api: Any, alice: User) -> None:
    answer = api(alice).get("/api/v1/policies/")
    assert answer.json() == {"count": 0, "next": None, "previous": None, "results": []}
    assert_problem(
        api(alice).get("/api/v1/policies?x=1"), 400, "unknown_parameter", "/x"
    )
