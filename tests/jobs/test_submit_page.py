from typing import Any

import pytest
from django.template.response import TemplateResponse
from django.test import Client, RequestFactory

from jobs.models import AuditRecord, Job, User
from jobs.views import SubmitView
from tests.factories import IMAGE

FORM = {
    "image": IMAGE,
    "command": "python train.py",
    "gpu_count": "1",
    "min_vram_mb": "8G",
    "timeout_s": "2h",
    "grace_s": "10s",
    "priority": "50",
    "idempotency_key": "0b6f7f7e",
}


@pytest.fixture
def page(client: Client, alice: User) -> Client:
    client.force_login(alice)
    return client


def test_a_submitted_job_is_queued_for_who_sent_it(page: Client, alice: User) -> None:
    answer = page.post("/submit/", FORM)
    job = Job.objects.get()
    assert answer.headers["Location"] == f"/jobs/{job.pk}/"
    assert (job.owner, job.status, job.name) == (alice, "queued", "pytorch")
    assert (job.command, job.min_vram_mb) == ("python train.py", 8192)
    assert job.timeout_s == 7200
    assert [event.event_type for event in job.events.all()] == ["queued"]
    record = AuditRecord.objects.get(action="job.queued")
    assert (record.actor, record.address) == (alice.email, "127.0.0.1")


def test_sending_twice_makes_one_job(page: Client) -> None:
    first, second = page.post("/submit/", FORM), page.post("/submit/", FORM)
    assert first.headers["Location"] == second.headers["Location"]
    assert Job.objects.count() == 1


def test_an_edited_form_makes_another_job(page: Client) -> None:
    page.post("/submit/", FORM)
    page.post("/submit/", {**FORM, "command": "python eval.py"})
    assert Job.objects.count() == 2


def test_a_key_is_a_persons_own(page: Client, client: Client, bob: User) -> None:
    page.post("/submit/", FORM)
    client.force_login(bob)
    client.post("/submit/", FORM)
    assert Job.objects.count() == 2


def test_each_fresh_form_has_a_fresh_key(page: Client) -> None:
    forms = [page.get("/submit/").context["form"] for _ in range(2)]
    keys = {form["idempotency_key"].value() for form in forms}
    assert len(keys) == 2


def test_a_bad_form_comes_back_with_what_was_typed(page: Client) -> None:
    answer = page.post("/submit/", {**FORM, "image": "Bad Image", "timeout_s": "soon"})
    text = answer.content.decode()
    assert not Job.objects.exists()
    assert 'value="Bad Image"' in text
    assert 'value="0b6f7f7e"' in text
    assert '<a href="#id_image">Image</a>: Write the image as' in text
    assert text.count('aria-invalid="true"') == 2
    assert 'aria-describedby="id_image_helptext id_image_error"' in text


def test_what_could_never_fit_is_refused_with_the_reason(
    alice: User, rf: RequestFactory
) -> None:
    class Strict(SubmitView):
        def admit(self, spec: dict[str, Any]) -> str:
            return f"No GPU here has {spec['min_vram_mb']:,} MiB."

    request = rf.post("/submit/", FORM)
    request.user = alice
    answer = Strict.as_view()(request)
    assert isinstance(answer, TemplateResponse)
    assert answer.status_code == 422
    assert "No GPU here has 8,192 MiB." in answer.rendered_content
    assert not Job.objects.exists()


def test_no_form_without_login_or_token(client: Client, alice: User) -> None:
    assert client.get("/submit/").headers["Location"] == "/login/?next=/submit/"
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(alice)
    answer = strict.post("/submit/", FORM)
    assert answer.status_code == 403
    assert "too old to be sent" in answer.content.decode()
    assert not Job.objects.exists()
