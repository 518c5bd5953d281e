"""The cluster page: each GPU with its bar, who is on it, the line, and its health."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from jobs.models import Attempt, User
from jobs.status import Status
from scheduler import clusterpage
from scheduler.bars import parts
from scheduler.models import GPU, GpuSample, Node
from tests.factories import make_job, make_user
from tests.scheduler.factories import GB, hold, make_gpu, make_node


def page(user: User) -> str:
    client = Client()
    client.force_login(user)
    answer = client.get("/")
    assert answer.status_code == 200
    return re.sub(r"\s+", " ", answer.content.decode())


@pytest.fixture
def gpu(db: None) -> GPU:
    return make_gpu(
        make_node(), sampled_at=timezone.now(), utilisation=81, temperature=67
    )


def running(owner: User, gpu: GPU, vram_mb: int, **fields: Any) -> Attempt:
    attempt = make_job(owner, status=Status.RUNNING, **fields).attempts.get()
    hold(attempt, gpu, vram_mb)
    return attempt


class TestBars:
    @pytest.mark.parametrize(
        ("given", "expected"),
        [
            ((0, 0, 0), [0, 0, 0]),
            ((10, 30, 20), [10, 20, 20]),
            ((30, 30, 0), [30, 0, 0]),
            ((40, 30, 0), [40, 0, 0]),
            ((50, 90, 30), [50, 40, 10]),
            ((200, 300, 50), [100, 0, 0]),
        ],
        ids=[
            "nothing",
            "measured, promised and foreign",
            "all that was promised is used",
            "more than was promised",
            "what is foreign is cut last",
            "more than there is",
        ],
    )
    def test_what_is_where(
        self, given: tuple[int, int, int], expected: list[int]
    ) -> None:
        measured, need, foreign = given
        found = parts(100, measured_mb=measured, need_mb=need, foreign_mb=foreign)
        assert [part.mb for part in found] == expected
        assert sum(part.width for part in found) <= 100

    def test_a_gpu_of_which_nothing_is_usable(self) -> None:
        assert parts(0, measured_mb=0, need_mb=0, foreign_mb=0)[0].width == 0


def test_a_gpu_shows_what_it_is_and_what_is_on_it(alice: User, gpu: GPU) -> None:
    attempt = running(alice, gpu, 10 * GB, name="whisper", timeout_s=3600)
    attempt.allocations.update(measured_mb=6 * GB)
    text = page(alice)
    assert "1 of 1 GPU busy" in text
    assert "RTX 3090" in text
    assert gpu.uuid[:12] in text
    assert "81 <small>%</small>" in text
    label = "VRAM of 24.0 GB usable: ours 6.0 GB, promised 4.0 GB, foreign 0"
    assert label in text
    assert f'<a href="/jobs/{attempt.job_id}/">whisper</a>' in text
    assert "until <time" in text


def test_of_somebody_elses_job_only_that_there_is_one(
    alice: User, bob: User, olga: User, gpu: GPU
) -> None:
    attempt = running(bob, gpu, GB, name="secret-project")
    make_job(bob, name="secret-too")
    text = page(alice)
    assert "another person's job" in text
    for private in ("secret-project", "secret-too", "bob@example.org"):
        assert private not in text
    assert str(attempt.job_id) not in text
    assert "secret-project" in page(olga)


def test_who_uses_it_outside(alice: User, gpu: GPU) -> None:
    process = {"pid": 41, "user": "tobias", "process": "python3", "used_mb": 2048}
    GPU.objects.update(
        foreign_mb=2048, foreign_processes=[{**process, "container": ""}]
    )
    text = page(alice)
    assert "1 with foreign use" in text
    assert "tobias, pid 41, outside GPU Jobs" in text
    assert "foreign 2.0 GB" in text


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"state": "draining", "state_reason": "fan <b>"}, "fan &lt;b&gt;"),
        ({"state": "quarantined", "state_reason": "XID 79"}, "XID 79"),
        ({"is_present": False}, "lost"),
    ],
)
def test_one_that_is_out_of_service_says_why(
    alice: User, gpu: GPU, change: dict[str, Any], told: str
) -> None:
    GPU.objects.update(**change)
    text = page(alice)
    assert told in text
    assert "1 out of service" in text
    assert "panel gpu off" in text


def test_what_was_not_looked_at_of_late_is_told_as_old(alice: User, gpu: GPU) -> None:
    long_ago = timezone.now() - timedelta(minutes=5)
    GPU.objects.update(sampled_at=long_ago)
    Node.objects.update(heartbeat_at=long_ago)
    text = page(alice)
    assert "gpu stale" in text
    assert "These figures are of" in text
    assert "not heard of" in text


def test_the_last_hour_is_a_line(gpu: GPU) -> None:
    now = timezone.now()
    for minutes, utilisation in ((0, 100), (1, 50), (30, 0), (90, 70)):
        at = now - timedelta(minutes=minutes)
        GpuSample.objects.create(gpu=gpu, at=at, utilisation=utilisation)
    (host,) = clusterpage.hosts(make_user(), now)
    assert host.cards[0].spark == "29,30.0 58,16.0 59,2.0"


def test_the_line_and_what_ended(alice: User, gpu: GPU) -> None:
    make_job(alice, name="waits", min_vram_mb=GB)
    make_job(alice, name="broke", status=Status.FAILED)
    text = page(alice)
    assert "1 queued" in text
    assert "waits" in text
    assert '<span class="reason ">priority</span>' in text
    assert '<code class="muted">nonzero_exit</code>' in text


def test_with_nothing_at_all_it_says_what_to_do_next(alice: User) -> None:
    text = page(alice)
    assert "No node has joined yet." in text
    assert "Nothing waits." in text


def test_it_takes_as_many_queries_for_many_gpus_as_for_one(
    alice: User, gpu: GPU
) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            page(alice)
        return len(captured)

    running(alice, gpu, GB)
    queries()
    few = queries()
    for number in range(5):
        running(alice, make_gpu(make_node(f"n{number}")), GB)
        make_job(alice)
    assert queries() <= few + 1


def test_a_stranger_is_led_to_the_login(db: None) -> None:
    assert Client().get("/").headers["Location"] == "/login/?next=/"
