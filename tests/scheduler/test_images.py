"""Images that the queue wants: looked up, pulled in threads, told of."""

import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.utils import timezone

from jobs import lifecycle
from jobs.models import Job, JobDependency, User
from jobs.status import Condition, Reason, Status
from scheduler.models import ImageState, Node, NodeImage
from scheduler.runner.base import Progress, RateLimited, RunnerFault
from scheduler.supervisor import images as supervisor_images
from scheduler.supervisor.images import Images
from tests.factories import make_job
from tests.fakes import FakeRunner

pytestmark = pytest.mark.django_db

NOT_FOUND = RunnerFault(Reason.IMAGE_NOT_FOUND, "manifest unknown")
AUTH = RunnerFault(Reason.IMAGE_AUTH, "denied")
UNREACHABLE = RunnerFault(Reason.REGISTRY_UNREACHABLE, "no route to host")
LIMITED = RateLimited(Reason.REGISTRY_UNREACHABLE, "rate limit: docker login")
FULL = RunnerFault(Reason.DISK_FULL, "The disk is full: make room.")


class SlowRunner(FakeRunner):
    """Its pulls begin, and end when the test lets them."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[str] = []
        self.outcomes: dict[str, BaseException] = {}
        self.gate = threading.Event()
        # Told before the gate.
        self.first: tuple[int, int] = (0, 0)

    def pull(self, image: str, progress: Progress) -> str:
        progress(*self.first)
        self.begun.append(image)
        assert self.gate.wait(30)
        if outcome := self.outcomes.pop(image, None):
            raise outcome
        return super().pull(image, progress)


@pytest.fixture
def slow(db: None) -> Iterator[SlowRunner]:
    runner = SlowRunner()
    yield runner
    runner.gate.set()


class Wakes:
    """Counts pulls that ended; a test waits for them, not for time."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1

    def wait_for(self, count: int) -> None:
        deadline = time.monotonic() + 10
        while self.count < count:
            assert time.monotonic() < deadline
            time.sleep(0.005)


@pytest.fixture
def wakes() -> Wakes:
    return Wakes()


@pytest.fixture
def images(slow: SlowRunner, wakes: Wakes) -> Images:
    return Images(Node.objects.create(name="gauss"), slow, wakes)


def state(image: str) -> str:
    return NodeImage.objects.get(image=image).state


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


class TestPresence:
    def test_one_that_is_there_is_present_at_once(
        self, images: Images, slow: SlowRunner
    ) -> None:
        make_job(image="lab/train:1")
        slow.images.add("lab/train:1")
        assert images.turn() is True
        assert state("lab/train:1") == ImageState.PRESENT
        assert images.turn() is False
        assert slow.begun == []

    def test_one_that_is_not_is_pulled_in_a_thread_and_then_present(
        self, images: Images, slow: SlowRunner, wakes: Wakes
    ) -> None:
        make_job(image="lab/train:1")
        assert images.turn() is False
        assert state("lab/train:1") == ImageState.PULLING
        assert images.turn() is False
        slow.gate.set()
        wakes.wait_for(1)
        assert images.turn() is True
        row = NodeImage.objects.get()
        assert (row.state, row.digest) == ("present", "sha256:lab/train:1")
        assert (row.bytes_done, row.bytes_total) == (480_000_000, 480_000_000)
        assert slow.begun == ["lab/train:1"]

    def test_what_nobody_in_the_queue_wants_is_not_looked_for(
        self, images: Images, slow: SlowRunner
    ) -> None:
        make_job(image="lab/train:1", status=Status.RUNNING)
        assert images.turn() is False
        assert NodeImage.objects.count() == 0

    def test_at_most_two_are_pulled_at_once(
        self, images: Images, slow: SlowRunner, wakes: Wakes
    ) -> None:
        for number in range(4):
            make_job(image=f"lab/train:{number}")
        images.turn()
        images.turn()
        until(lambda: len(slow.begun) == 2)
        slow.gate.set()
        wakes.wait_for(2)
        images.turn()
        wakes.wait_for(4)
        images.turn()
        assert set(NodeImage.objects.values_list("state", flat=True)) == {"present"}

    def test_one_that_vanished_is_pulled_again_when_a_launch_missed_it(
        self, images: Images, slow: SlowRunner
    ) -> None:
        make_job(image="lab/train:1")
        slow.images.add("lab/train:1")
        images.turn()
        slow.images.clear()
        NodeImage.objects.update(state=ImageState.WANTED)
        images.turn()
        assert state("lab/train:1") == ImageState.PULLING

    def test_a_supervisor_that_died_during_a_pull_pulls_again(
        self, images: Images, slow: SlowRunner, wakes: Wakes
    ) -> None:
        make_job(image="lab/train:1")
        images.turn()
        another = Images(Node.objects.get(), slow, wakes)
        another.turn()
        until(lambda: len(slow.begun) == 2)


class TestWhichAreWanted:
    """A pull takes disk and time: only for a job that this node could run soon."""

    def wanted(self, images: Images, slow: SlowRunner) -> list[str]:
        """What it begins to pull."""
        images.turn()
        rows = NodeImage.objects.order_by("image")
        return list(rows.values_list("image", flat=True))

    def test_not_for_one_that_is_held(
        self, images: Images, slow: SlowRunner, olga: User
    ) -> None:
        job = make_job(image="lab/train:1")
        Job.objects.update(held_at=timezone.now(), held_by=olga)
        assert self.wanted(images, slow) == []
        Job.objects.filter(pk=job.pk).update(held_at=None, held_by=None)
        assert self.wanted(images, slow) == ["lab/train:1"]

    @pytest.mark.parametrize(("minutes", "is_wanted"), [(9, True), (11, False)])
    def test_not_long_before_one_may_begin(
        self, images: Images, slow: SlowRunner, minutes: int, is_wanted: bool
    ) -> None:
        begin_at = timezone.now() + timedelta(minutes=minutes)
        make_job(image="lab/train:1", begin_at=begin_at)
        assert bool(self.wanted(images, slow)) is is_wanted

    def test_not_for_one_that_waits_for_another(
        self, images: Images, slow: SlowRunner
    ) -> None:
        first, second = make_job(image="lab/a:1"), make_job(image="lab/b:1")
        JobDependency.objects.create(
            job=second, parent_id=first.pk, condition=Condition.AFTER_OK
        )
        assert self.wanted(images, slow) == ["lab/a:1"]

    @pytest.mark.parametrize(
        ("spec", "is_wanted"),
        [
            ({"node_name": "gauss"}, True),
            ({"node_name": "euler"}, False),
            ({"node_labels": {"gpu": "a100"}}, True),
            ({"node_labels": {"gpu": "a100", "zone": "b"}}, False),
            ({"node_labels": {"gpu": "v100"}}, False),
        ],
    )
    def test_not_for_one_that_can_only_run_elsewhere(
        self,
        images: Images,
        slow: SlowRunner,
        spec: dict[str, Any],
        is_wanted: bool,
    ) -> None:
        # Written by an operator after the supervisor had started.
        Node.objects.update(labels={"gpu": "a100", "zone": "a"})
        make_job(image="lab/train:1", **spec)
        assert bool(self.wanted(images, slow)) is is_wanted

    def test_one_that_can_only_run_elsewhere_hides_no_other(
        self, images: Images, slow: SlowRunner
    ) -> None:
        make_job(image="lab/train:1", node_labels={"gpu": "v100"}, priority=90)
        make_job(image="lab/train:1")
        assert self.wanted(images, slow) == ["lab/train:1"]

    def test_the_first_in_line_is_served_first(
        self, images: Images, slow: SlowRunner
    ) -> None:
        for number in range(5):
            make_job(image=f"lab/low:{number}", priority=10)
        make_job(image="lab/high:1", priority=90)
        make_job(image="lab/low:0", priority=80)
        images.turn()
        until(lambda: len(slow.begun) == 2)
        assert set(slow.begun) == {"lab/high:1", "lab/low:0"}

    def test_a_refusal_ends_no_job_that_can_only_run_elsewhere(
        self, images: Images, slow: SlowRunner, wakes: Wakes
    ) -> None:
        slow.gate.set()
        slow.outcomes["lab/typo:1"] = NOT_FOUND
        here = make_job(image="lab/typo:1")
        there = make_job(image="lab/typo:1", node_name="euler")
        images.turn()
        wakes.wait_for(1)
        images.turn()
        here.refresh_from_db()
        there.refresh_from_db()
        assert (here.status, there.status) == ("failed", "queued")


class TestProgress:
    @pytest.fixture
    def clock(self, monkeypatch: pytest.MonkeyPatch) -> list[float]:
        now = [1000.0]
        monkeypatch.setattr(supervisor_images, "monotonic", lambda: now[0])
        return now

    def row(self) -> tuple[str, int, int]:
        row = NodeImage.objects.get()
        return row.text, row.bytes_done, row.bytes_total

    def test_it_is_written_at_most_once_a_second(
        self, images: Images, slow: SlowRunner, clock: list[float]
    ) -> None:
        slow.first = (120_000_000, 480_000_000)
        make_job(image="lab/train:1")
        images.turn()
        assert self.row() == ("pulling", 0, 0)
        until(lambda: bool(slow.begun))
        clock[0] += 0.9
        images.turn()
        assert self.row() == ("pulling", 0, 0)
        clock[0] += 0.2
        images.turn()
        said = "pulling: 120 of 480 MB"
        assert self.row() == (said, 120_000_000, 480_000_000)

    def test_what_did_not_change_is_not_written_again(
        self, images: Images, slow: SlowRunner, clock: list[float]
    ) -> None:
        slow.first = (120_000_000, 480_000_000)
        make_job(image="lab/train:1")
        images.turn()
        until(lambda: bool(slow.begun))
        clock[0] += 2
        images.turn()
        NodeImage.objects.update(text="marked")
        clock[0] += 2
        images.turn()
        assert self.row()[0] == "marked"

    def test_a_second_pull_does_not_begin_with_the_bytes_of_the_first(
        self, images: Images, slow: SlowRunner, wakes: Wakes, clock: list[float]
    ) -> None:
        slow.first = (120_000_000, 480_000_000)
        slow.outcomes["lab/train:1"] = UNREACHABLE
        slow.gate.set()
        make_job(image="lab/train:1")
        images.turn()
        wakes.wait_for(1)
        clock[0] += 2
        images.turn()
        slow.gate.clear()
        slow.first = (0, 0)
        with time_machine.travel(timezone.now() + timedelta(seconds=65)):
            images.turn()
            until(lambda: len(slow.begun) == 2)
            clock[0] += 2
            images.turn()
        assert self.row() == ("pulling", 0, 0)


class TestRefusals:
    @pytest.mark.parametrize("fault", [NOT_FOUND, AUTH], ids=["not found", "denied"])
    def test_one_that_can_not_be_had_fails_the_queued_jobs_that_want_it(
        self, images: Images, slow: SlowRunner, wakes: Wakes, fault: RunnerFault
    ) -> None:
        wanting = [make_job(image="lab/typo:1") for _ in range(2)]
        other = make_job(image="lab/train:1")
        slow.outcomes["lab/typo:1"] = fault
        images.turn()
        slow.gate.set()
        wakes.wait_for(2)
        images.turn()
        for job in wanting:
            job.refresh_from_db()
            assert (job.status, job.reason) == ("failed", fault.reason)
            assert job.reason_text == f"Image lab/typo:1 can not be had: {fault}"
        other.refresh_from_db()
        assert other.status == Status.QUEUED

    def test_a_later_submission_tries_again(
        self, images: Images, slow: SlowRunner, wakes: Wakes
    ) -> None:
        slow.gate.set()
        slow.outcomes["lab/typo:1"] = NOT_FOUND
        make_job(image="lab/typo:1")
        images.turn()
        wakes.wait_for(1)
        images.turn()
        job = make_job(image="lab/typo:1")
        images.turn()
        wakes.wait_for(2)
        images.turn()
        job.refresh_from_db()
        assert (job.status, state("lab/typo:1")) == ("queued", "present")

    def test_a_job_that_was_cancelled_meanwhile_disturbs_nothing(
        self,
        images: Images,
        slow: SlowRunner,
        wakes: Wakes,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        jobs = [make_job(image="lab/typo:1") for _ in range(2)]
        slow.outcomes["lab/typo:1"] = NOT_FOUND
        images.turn()
        slow.gate.set()
        wakes.wait_for(1)
        fail_queued = lifecycle.fail_queued

        def after_a_cancel(job: Job, *args: object, **kwargs: object) -> None:
            if job.pk == jobs[0].pk:
                lifecycle.request_cancel(Job.objects.get(pk=job.pk), by=job.owner)
            fail_queued(job, *args, **kwargs)  # type: ignore[arg-type]

        monkeypatch.setattr(lifecycle, "fail_queued", after_a_cancel)
        images.turn()
        for job, status in zip(jobs, ("cancelled", "failed"), strict=True):
            job.refresh_from_db()
            assert job.status == status

    def test_an_unreachable_registry_keeps_them_waiting_and_is_tried_after_a_minute(
        self, images: Images, slow: SlowRunner, wakes: Wakes
    ) -> None:
        slow.gate.set()
        slow.outcomes["lab/train:1"] = UNREACHABLE
        job = make_job(image="lab/train:1")
        images.turn()
        wakes.wait_for(1)
        images.turn()
        row = NodeImage.objects.get()
        assert row.state == ImageState.FAILED
        assert row.text == (
            "the pull failed and is tried again in 1 min: no route to host"
        )
        job.refresh_from_db()
        assert job.status == Status.QUEUED
        with time_machine.travel(timezone.now() + timedelta(seconds=55)):
            images.turn()
        assert len(slow.begun) == 1
        with time_machine.travel(timezone.now() + timedelta(seconds=65)):
            images.turn()
            wakes.wait_for(2)
            images.turn()
        assert state("lab/train:1") == ImageState.PRESENT

    def test_a_rate_limit_is_given_ten_minutes(
        self, images: Images, slow: SlowRunner, wakes: Wakes
    ) -> None:
        slow.gate.set()
        slow.outcomes["lab/train:1"] = LIMITED
        make_job(image="lab/train:1")
        images.turn()
        wakes.wait_for(1)
        images.turn()
        text = NodeImage.objects.get().text
        assert text.endswith("is tried again in 10 min: rate limit: docker login")
        with time_machine.travel(timezone.now() + timedelta(minutes=9)):
            images.turn()
        assert len(slow.begun) == 1
        slow.outcomes["lab/train:1"] = UNREACHABLE
        with time_machine.travel(timezone.now() + timedelta(minutes=11)):
            images.turn()
            wakes.wait_for(2)
            images.turn()
        assert "tried again in 1 min" in NodeImage.objects.get().text

    def test_a_full_disk_is_reported_until_a_pull_succeeds(
        self, images: Images, slow: SlowRunner, wakes: Wakes
    ) -> None:
        slow.gate.set()
        slow.outcomes["lab/train:1"] = FULL
        job = make_job(image="lab/train:1")
        assert images.report == ""
        images.turn()
        wakes.wait_for(1)
        images.turn()
        said = "Image lab/train:1 can not be pulled: The disk is full: make room."
        assert images.report == said
        job.refresh_from_db()
        assert job.status == Status.QUEUED
        with time_machine.travel(timezone.now() + timedelta(seconds=65)):
            images.turn()
            wakes.wait_for(2)
            images.turn()
        assert images.report == ""

    def test_a_full_disk_is_over_when_the_image_came_by_another_way(
        self, images: Images, slow: SlowRunner, wakes: Wakes
    ) -> None:
        slow.gate.set()
        slow.outcomes["lab/train:1"] = FULL
        make_job(image="lab/train:1")
        images.turn()
        wakes.wait_for(1)
        images.turn()
        slow.images.add("lab/train:1")
        with time_machine.travel(timezone.now() + timedelta(seconds=65)):
            images.turn()
        assert images.report == ""
        row = NodeImage.objects.get()
        assert (row.state, row.text) == ("present", "")
        assert row.bytes_done == row.bytes_total

    def test_a_full_disk_that_nobody_waits_for_is_not_reported(
        self, images: Images, slow: SlowRunner, wakes: Wakes
    ) -> None:
        slow.gate.set()
        slow.outcomes["lab/train:1"] = FULL
        job = make_job(image="lab/train:1")
        images.turn()
        wakes.wait_for(1)
        images.turn()
        lifecycle.request_cancel(job, by=job.owner)
        images.turn()
        assert images.report == ""

    def test_one_that_the_daemon_can_not_stand_takes_no_other_job_down(
        self, images: Images, slow: SlowRunner
    ) -> None:
        make_job(image="lab/odd:1")
        slow.faults["has_image"] = RunnerFault(Reason.DAEMON_FAULT, "invalid reference")
        images.turn()
        assert state("lab/odd:1") == ImageState.FAILED
        slow.images.add("lab/train:1")
        make_job(image="lab/train:1")
        images.turn()
        assert state("lab/train:1") == ImageState.PRESENT

    @pytest.mark.filterwarnings(
        "ignore::pytest.PytestUnhandledThreadExceptionWarning",
    )
    def test_a_pull_that_breaks_off_in_a_way_nobody_foresaw_frees_its_place(
        self, images: Images, slow: SlowRunner, wakes: Wakes
    ) -> None:
        slow.gate.set()
        for number in range(2):
            slow.outcomes[f"lab/train:{number}"] = ValueError("half a line of JSON")
            make_job(image=f"lab/train:{number}")
        images.turn()
        wakes.wait_for(2)
        images.turn()
        assert state("lab/train:0") == ImageState.FAILED
        make_job(image="lab/other:1")
        images.turn()
        wakes.wait_for(3)
        images.turn()
        assert state("lab/other:1") == ImageState.PRESENT
