from typing import Any

import pytest
from rest_framework.test import force_authenticate

from jobs import lifecycle
from jobs.api.views import JobViewSet
from jobs.models import Artifact, AuditRecord, Job, JobEvent, User
from tests.asserts import assert_problem
from tests.factories import make_artifact, make_job, write_log

pytestmark = pytest.mark.django_db


def path(job: Job) -> str:
    return f"/api/v1/jobs/{job.pk}"


@pytest.mark.parametrize("status", ["queued", "succeeded", "failed", "cancelled"])
def test_a_job_that_does_not_run_goes_with_its_story(
    api: Any, alice: User, status: str
) -> None:
    job = make_job(alice, status=status)
    answer = api(alice).delete(path(job))
    assert (answer.status_code, answer.content) == (204, b"")
    assert not Job.objects.exists()
    assert not JobEvent.objects.exists()


def test_its_artifacts_and_files_go_too(
    api: Any, alice: User, settings: Any, django_capture_on_commit_callbacks: Any
) -> None:
    job = make_job(alice, status="succeeded")
    make_artifact(job.attempts.get())
    write_log(job, b"hello")
    with django_capture_on_commit_callbacks(execute=True):
        api(alice).delete(path(job))
    assert not Artifact.objects.exists()
    assert [p for p in settings.DATA_ROOT.rglob("*") if not p.is_dir()] == []


def test_the_audit_stays_and_tells_of_the_deletion(api: Any, alice: User) -> None:
    job = make_job(alice)
    api(alice).delete(path(job))
    actions = AuditRecord.objects.filter(target=job.pk).values_list("action", flat=True)
    assert list(actions) == ["job.queued", "job.cancelled", "job.deleted"]


@pytest.mark.parametrize("status", ["starting", "running"])
def test_a_live_job_is_a_conflict_that_says_to_cancel_it(
    api: Any, alice: User, status: str
) -> None:
    job = make_job(alice, status=status)
    body = assert_problem(api(alice).delete(path(job)), 409, "conflict")
    assert (body["job_status"], body["allowed_actions"]) == (status, ["cancel"])
    assert "cancel it first" in body["detail"]
    assert Job.objects.filter(pk=job.pk).exists()


def test_deleting_twice_is_404_the_second_time(api: Any, alice: User) -> None:
    job = make_job(alice)
    assert api(alice).delete(path(job)).status_code == 204
    assert_problem(api(alice).delete(path(job)), 404, "not_found")


def test_a_job_deleted_meanwhile_is_404(alice: User, rf: Any) -> None:
    """Another request deletes it between our look and our deletion."""
    job = make_job(alice)

    class Late(JobViewSet):
        def get_object(self) -> Job:
            found = super().get_object()
            lifecycle.delete(Job.objects.get(pk=found.pk), by=alice)
            return found

    request = rf.delete(path(job))
    force_authenticate(request, alice)
    answer = Late.as_view({"delete": "destroy"})(request, pk=str(job.pk))
    assert answer.status_code == 404


def test_a_stranger_deletes_nothing(api: Any, alice: User, bob: User) -> None:
    job = make_job(alice)
    assert_problem(api(bob).delete(path(job)), 404, "not_found")
    assert_problem(api().delete(path(job)), 401, "not_authenticated")
    assert Job.objects.filter(pk=job.pk).exists()


def test_an_operator_may_delete(api: Any, alice: User, olga: User) -> None:
    job = make_job(alice)
    assert api(olga).delete(path(job)).status_code == 204
    record = AuditRecord.objects.get(action="job.deleted")
    assert (record.actor, record.target) == (olga.email, str(job.pk))


def test_the_key_of_a_deleted_job_can_be_used_again(api: Any, alice: User) -> None:
    job = make_job(alice, idempotency_key="k1")
    api(alice).delete(path(job))
    make_job(alice, idempotency_key="k1")
