import re
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from jobs import lifecycle, storage
from jobs.models import Attempt, AuditRecord, Job, User
from jobs.status import Reason, Status, WaitReason
from tests.factories import (
    make_artifact,
    make_attempt,
    make_job,
    write_log,
)

SCRIPT = "<script>alert(1)</script>"


def page(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def text_of(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200, answer
    return answer.content.decode()


def names(client: Client, query: str = "") -> list[str]:
    return [job.name for job in client.get(f"/jobs/{query}").context["page"]]


# --- Who sees what -------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/jobs/", "/submit/", "/jobs/{}/"])
def test_nothing_without_login(client: Client, alice: User, path: str) -> None:
    answer = client.get(path.format(make_job(alice).pk))
    assert answer.status_code == 302
    assert answer.headers["Location"].startswith("/login/?next=/")


@pytest.mark.parametrize("path", ["", "cancel/", "delete/"])
@pytest.mark.parametrize("method", ["get", "post"])
def test_a_strangers_job_does_not_exist(
    alice: User, bob: User, path: str, method: str
) -> None:
    job = make_job(alice)
    answer = getattr(page(bob), method)(f"/jobs/{job.pk}/{path}")
    assert answer.status_code == (405 if (method, path) == ("post", "") else 404)
    assert Job.objects.get().status == Status.QUEUED


def test_owners_see_theirs_and_operators_all(
    alice: User, bob: User, olga: User
) -> None:
    make_job(alice, name="hers")
    make_job(bob, name="his")
    assert names(page(alice)) == ["hers"]
    assert names(page(olga)) == ["his", "hers"]
    assert "Owner" not in text_of(page(alice), "/jobs/")
    assert "alice@example.org" in text_of(page(olga), "/jobs/")
    assert names(page(olga), f"?owner={alice.pk}") == ["hers"]
    assert "Admin</a>" in text_of(page(olga), "/jobs/")
    assert "Admin</a>" not in text_of(page(alice), "/jobs/")


def test_values_of_variables_are_their_owners(alice: User, olga: User) -> None:
    job = make_job(alice, env={"HF_TOKEN": "hf_secret"})
    assert "HF_TOKEN=hf_secret" in text_of(page(alice), f"/jobs/{job.pk}/")
    shown = text_of(page(olga), f"/jobs/{job.pk}/")
    assert "HF_TOKEN=***" in shown
    assert "hf_secret" not in shown


# --- The list ------------------------------------------------------------------------


def test_tabs_and_filters(alice: User) -> None:
    make_job(alice, name="waits")
    make_job(alice, name="starts", status=Status.STARTING)
    make_job(alice, name="runs", status=Status.RUNNING, image="lab/other:1")
    make_job(alice, name="failed", status=Status.FAILED)
    client = page(alice)
    assert names(client, "?status=queued") == ["waits"]
    assert names(client, "?status=live") == ["runs", "starts"]
    assert names(client, "?status=ended") == ["failed"]
    assert names(client, "?status=running") == ["runs"]
    assert names(client, "?q=LAB/other") == ["runs"]
    assert names(client, "?q=wait&status=") == ["waits"]
    assert names(client, f"?q={str(Job.objects.get(name='failed').pk)[:8]}") == [
        "failed"
    ]
    counts = [
        tab["count"] for tab in client.get("/jobs/?status=queued").context["tabs"]
    ]
    assert counts == [4, 1, 2, 1]


def test_two_kinds_of_empty(alice: User) -> None:
    assert "No jobs yet" in text_of(page(alice), "/jobs/")
    make_job(alice)
    assert "No job matches" in text_of(page(alice), "/jobs/?q=nothing")


@pytest.mark.parametrize("query", ["?status=sleeping", "?q=" + "x" * 300, "?q=%00"])
def test_a_filter_that_is_not_understood_is_said(alice: User, query: str) -> None:
    make_job(alice)
    assert "not understood" in text_of(page(alice), f"/jobs/{query}")


def test_pages_of_25_keep_the_filter(alice: User) -> None:
    for number in range(26):
        make_job(alice, name=f"train-{number}")
    client = page(alice)
    assert len(names(client, "?q=train")) == 25
    assert 'href="?q=train&amp;page=2"' in text_of(client, "/jobs/?q=train")
    assert names(client, "?q=train&page=2") == ["train-0"]
    assert names(client, "?page=999") == ["train-0"]


def test_the_list_takes_as_many_queries_for_two_jobs_as_for_ten(olga: User) -> None:
    client = page(olga)

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            client.get("/jobs/")
        return len(captured)

    for _ in range(2):
        make_job(status=Status.RUNNING)
    few = queries()
    for status in list(Status) + [Status.RUNNING] * 2:
        make_job(status=status)
    assert queries() == few


def test_a_row_says_what_its_job_does(alice: User) -> None:
    waits = make_job(alice, min_vram_mb=20480, gpu_count=2)
    lifecycle.explain_waits([waits.pk], WaitReason.FOREIGN_USE, "7.6 GB are missing")
    running = make_job(alice, status=Status.RUNNING, timeout_s=7200)
    began = timezone.now() - timedelta(minutes=12)
    Attempt.objects.filter(job=running).update(started_at=began)
    make_job(alice, status=Status.FAILED, reason=Reason.CUDA_OOM)
    text = text_of(page(alice), "/jobs/")
    assert "2 \N{MULTIPLICATION SIGN} 20.0 GB" in text
    assert '<span class="reason attention">foreign_use</span>' in text
    assert "7.6 GB are missing" in text
    assert re.search(r'12m 0\ds <span class="muted">of 2h 00m', text)
    assert 'class="is" width="10.' in text
    assert "gauss GPU 0" in text
    assert '<span class="bad">cuda_oom, exit 1</span>' in text


# --- One job -------------------------------------------------------------------------


def test_a_job_that_came_back_shows_all_its_attempts(alice: User) -> None:
    job = make_job(alice, status=Status.FAILED, reason=Reason.NODE_LOST)
    make_attempt(job)
    text = text_of(page(alice), f"/jobs/{job.pk}/")
    assert text.index("Attempt 2") < text.index("Attempt 1")
    assert "node_lost" in text
    assert "<b>Back in the queue</b>" in text
    assert "running: cancel first" in text


def test_the_results_of_a_job_that_succeeded(alice: User) -> None:
    job = make_job(alice, status=Status.SUCCEEDED)
    make_artifact(job.attempts.get(), "out/a b&c.txt", b"x" * 18400)
    text = text_of(page(alice), f"/jobs/{job.pk}/")
    link = f"/api/v1/jobs/{job.pk}/artifact/download?path=out%2Fa%20b%26c.txt"
    assert link in text
    assert "18.4 kB" in text
    answer = page(alice).get(link)
    assert b"".join(answer.streaming_content) == b"x" * 18400  # type: ignore[attr-defined]


def test_the_log_is_its_last_lines_with_their_numbers(alice: User) -> None:
    job = make_job(alice, status=Status.RUNNING)
    write_log(job, "".join(f"line {n}\n" for n in range(1, 701)).encode())
    text = text_of(page(alice), f"/jobs/{job.pk}/")
    assert "Earlier lines are not shown" in text
    assert "line 200\n" not in text
    assert '<div id="L201">' in text
    assert "<code>line 700</code>" in text


def test_a_huge_log_is_read_in_part(alice: User) -> None:
    job = make_job(alice, status=Status.RUNNING)
    write_log(job, b"first\n" + b"x" * 1_000_000 + b"\nlast\n")
    tail = storage.tail(job, most_lines=500, most_bytes=1000)
    assert tail == storage.Tail(lines=["last"], first=None)
    write_log(job, b"y" * 5000)
    tail = storage.tail(job, most_lines=500, most_bytes=1000)
    assert tail == storage.Tail(lines=["y" * 1000], first=None)
    text = text_of(page(alice), f"/jobs/{job.pk}/")
    assert "y" * 5000 in text


@pytest.mark.parametrize("content", [b"", None])
def test_an_empty_log_and_none(alice: User, content: bytes | None) -> None:
    job = make_job(alice, status=Status.RUNNING)
    if content is not None:
        write_log(job, content)
    said = "No log yet" if content is None else "The log is empty"
    assert said in text_of(page(alice), f"/jobs/{job.pk}/")


def test_hostile_text_is_shown_as_text(alice: User) -> None:
    job = make_job(
        alice,
        name=SCRIPT,
        command=SCRIPT,
        env={"A": SCRIPT},
        status=Status.SUCCEEDED,
    )
    make_artifact(job.attempts.get(), SCRIPT)
    write_log(
        job, f"{SCRIPT}\x1b]0;title\x07\x1b[31mred\x1b[0m\x00\u202egnp\n".encode()
    )
    failed = make_job(alice, name="second")
    lifecycle.fail_queued(failed, Reason.IMAGE_NOT_FOUND, SCRIPT, by=SCRIPT)
    for path in ("/jobs/", f"/jobs/{job.pk}/", f"/jobs/{failed.pk}/"):
        text = text_of(page(alice), path)
        assert "<script>alert" not in text
        assert "&lt;script&gt;alert" in text
        assert not re.search(r"[\x00-\x08\x0b-\x1f\u202e]", text)
        assert " style=" not in text
        assert not re.search(r"<script(?! src=\"/static/)", text)


# --- Cancel and delete ---------------------------------------------------------------


def test_cancel_asks_and_then_does(alice: User) -> None:
    job = make_job(alice)
    client = page(alice)
    assert "Cancel train?" in text_of(client, f"/jobs/{job.pk}/cancel/")
    assert Job.objects.get().status == Status.QUEUED
    answer = client.post(f"/jobs/{job.pk}/cancel/", follow=True)
    assert "Cancelled." in answer.content.decode()
    assert Job.objects.get().reason == Reason.CANCELLED_BY_USER


def test_cancel_of_a_running_job_only_asks(alice: User, olga: User) -> None:
    job = make_job(alice, status=Status.RUNNING)
    answer = page(olga).post(f"/jobs/{job.pk}/cancel/", follow=True)
    assert "asked to stop" in answer.content.decode()
    job.refresh_from_db()
    assert (job.status, job.cancel_requested_by) == (Status.RUNNING, olga)
    assert job.attempts.get().stop_reason == Reason.CANCELLED_BY_OPERATOR


def test_cancel_of_an_ended_job_says_so(alice: User) -> None:
    job = make_job(alice, status=Status.FAILED)
    answer = page(alice).post(f"/jobs/{job.pk}/cancel/", follow=True)
    assert "has already ended" in answer.content.decode()


def test_delete_asks_and_then_does(alice: User) -> None:
    job = make_job(alice, status=Status.FAILED)
    client = page(alice)
    assert "go for good" in text_of(client, f"/jobs/{job.pk}/delete/")
    answer = client.post(f"/jobs/{job.pk}/delete/", follow=True)
    assert "train is deleted." in answer.content.decode()
    assert not Job.objects.exists()
    assert AuditRecord.objects.filter(action="job.deleted", actor=alice.email).exists()


def test_delete_of_a_running_job_is_refused(alice: User) -> None:
    job = make_job(alice, status=Status.RUNNING)
    client = page(alice)
    assert "Delete the job" not in text_of(client, f"/jobs/{job.pk}/delete/")
    answer = client.post(f"/jobs/{job.pk}/delete/", follow=True)
    assert "cancel it first" in answer.content.decode()
    assert Job.objects.exists()
