"""Images that the queue wants: looked up, pulled in threads, told of."""

import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
import time_machine
from django.utils import timezone

from jobs import lifecycle
from jobs.models import Job
from jobs.status import Reason, Status
from scheduler.models import ImageState, Node, NodeImage
from scheduler.runner.base import RunnerFault
from scheduler.supervisor.images import Images
from tests.factories import make_job
from tests.fakes import FakeRunner

pytestmark = pytest.mark.django_db

NOT_FOUND = RunnerFault(Reason.IMAGE_NOT_FOUND, "manifest unknown")
AUTH = RunnerFault(Reason.IMAGE_AUTH, "denied")
UNREACHABLE = RunnerFault(Reason.REGISTRY_UNREACHABLE, "no route to host")


class SlowRunner(FakeRunner):
    """Its pulls begin, and end when the test lets them."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[str] = []
        self.outcomes: dict[str, BaseException] = {}
        self.gate = threading.Event()

    def pull(self, image: str) -> str:
        self.begun.append(image)
        assert self.gate.wait(30)
        if outcome := self.outcomes.pop(image, None):
            raise outcome
        return super().pull(image)


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
        assert slow.begun == ["lab/train:1"]

    def test_what_nobody_in_the_queue_wants_is_not_looked_for(
        self, images: Images, slow: SlowRunner
    ) -> None:
        make_job(image="lab/train:1", status=Status.RUNNING)
        make_job(model_name="m", image="")
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
        assert (row.state, row.text) == ("failed", "no route to host")
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
