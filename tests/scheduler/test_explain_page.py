"""Why a job waits, on its page."""

import re
from typing import Any

import pytest
from django.test import Client

from jobs.models import Job, User
from jobs.status import Status
from scheduler.models import GPU
from scheduler.templatetags.scheduler import explain
from tests.factories import make_job
from tests.scheduler.factories import GB, hold, make_gpu, make_live_attempt, make_node

pytestmark = pytest.mark.django_db


def page(user: User, job: Job) -> str:
    client = Client()
    client.force_login(user)
    text = client.get(f"/jobs/{job.pk}/").content.decode()
    return re.sub(r"\s+", " ", text)


def rows(job: Job) -> list[Any]:
    return explain(job)["rows"]


def test_the_reason_the_place_and_the_time_are_there(alice: User, gpu: GPU) -> None:
    held = make_job(status=Status.RUNNING).attempts.get()
    hold(held, gpu, 20 * GB)
    text = page(alice, make_job(alice, min_vram_mb=10 * GB, share=True))
    assert '<span class="reason ">resources</span>' in text
    assert "gauss GPU 0: 4,096 MiB are free." in text
    assert "<b>1st of 1</b>" in text
    assert re.search(r"<b>by <time datetime=", text)
    assert "At the latest, by the limits of what runs" in text
    assert "With min_vram_mb 4,096 it would start now." in text


def test_each_gpu_has_its_row_with_the_numbers_and_the_rule(
    alice: User, gpu: GPU
) -> None:
    GPU.objects.update(foreign_mb=9000, reserved_mb=576)
    make_gpu(make_node("euler"), state="draining", state_reason="new fans")
    text = page(alice, make_job(alice))
    assert "<b>gauss GPU 0</b>" in text
    assert '<td data-label="Foreign" class="num hit">9,000</td>' in text
    assert '<span class="reason attention">foreign_use</span> 9,000 MiB' in text
    assert '<tr class="off">' in text
    assert "it is draining: new fans" in text


def test_nothing_is_made_up_where_no_time_is_known(alice: User, gpu: GPU) -> None:
    GPU.objects.update(foreign_mb=9000)
    text = page(alice, make_job(alice))
    assert "<b>unknown</b>Nothing guarantees a time" in text
    assert "<b>none</b>No single change" in text


def test_one_that_is_about_to_start_is_told_so(alice: User, gpu: GPU) -> None:
    text = page(alice, make_job(alice))
    assert "It starts on gauss with the next pass." in text
    assert "<b>now</b>" in text


def test_one_out_of_line_has_no_place(alice: User, gpu: GPU) -> None:
    text = page(alice, make_job(alice, hold=True))
    assert "Its owner holds it. Release it to let it start." in text
    assert "Place in line" not in text
    assert "Every GPU" not in text


def test_one_that_runs_is_not_asked_why_it_waits(alice: User, gpu: GPU) -> None:
    assert "Why it waits" not in page(alice, make_job(alice, status=Status.RUNNING))


def test_a_bar_is_what_is_used_then_promised_then_foreign(
    alice: User, gpu: GPU
) -> None:
    GPU.objects.update(foreign_mb=6 * GB, total_mb=24 * GB)
    held = hold(make_live_attempt(make_job()), gpu, 12 * GB)
    held.measured_mb = 6 * GB
    held.save()
    (row,) = rows(make_job(alice, min_vram_mb=12 * GB, share=True))
    parts = [(part.kind, part.start, part.width) for part in row.parts]
    assert parts == [("ours", 0.0, 25.0), ("promised", 25.0, 25.0), ("foreign", 50, 25)]
    assert row.ask == 50.0


def test_a_bar_never_runs_over(alice: User, gpu: GPU) -> None:
    GPU.objects.update(foreign_mb=90 * GB)
    held = hold(make_live_attempt(make_job()), gpu, 12 * GB)
    held.measured_mb = 80 * GB
    held.save()
    (row,) = rows(make_job(alice))
    assert sum(part.width for part in row.parts) <= 100
    assert row.ask is None
