"""The pages in a real browser: what a person does, and what a hostile job can not."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.utils import timezone
from playwright.sync_api import Browser, Page, Route, sync_playwright

from jobs import lifecycle
from jobs.models import Evaluation, Job, User
from jobs.status import Reason, Status
from tests.factories import IMAGE, PASSWORD, make_artifact, make_job, write_log
from tests.scheduler.factories import GB, make_gpu, make_node

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
HOSTILE = "<script>alert(1)</script><img src=https://evil.example/x onerror=alert(2)>"

pytestmark = [
    pytest.mark.browser,
    pytest.mark.django_db(transaction=True),
    # The live server finds static files where they lie: nothing was collected.
    pytest.mark.filterwarnings("ignore:No directory at"),
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"needs Chromium at {CHROMIUM}"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=str(CHROMIUM), args=ARGUMENTS
        )
        yield chromium
        chromium.close()


class Visit:
    """A browser's page, and all that went wrong or elsewhere on it."""

    def __init__(self, page: Page, root: str) -> None:
        self.page, self.root = page, root
        self.faults: list[str] = []
        page.on("dialog", lambda dialog: self._fault("dialog", dialog.message))
        page.on("pageerror", lambda error: self._fault("error", str(error)))
        page.on("console", lambda said: self._fault(said.type, said.text))
        page.route("**/*", self._only_here)

    def _fault(self, kind: str, text: str) -> None:
        self.faults.append(f"{self.page.url}: {kind} {text}")

    def _only_here(self, route: Route) -> None:
        if urlsplit(route.request.url).netloc == urlsplit(self.root).netloc:
            route.continue_()
        else:
            self._fault("request", route.request.url)
            route.abort()

    def go(self, path: str) -> None:
        self.page.goto(self.root + path)

    def log_in(self, user: User) -> None:
        self.go("/")
        self.page.get_by_label("E-mail address").fill(user.email)
        self.page.get_by_label("Password").fill(PASSWORD)
        self.page.get_by_role("button", name="Log in").click()

    def text(self) -> str:
        return self.page.inner_text("body")


@pytest.fixture
def visit(browser: Browser, live_server: Any) -> Iterator[Visit]:
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    visit = Visit(context.new_page(), live_server.url)
    yield visit
    context.close()
    assert visit.faults == []


def test_log_in_submit_watch_and_cancel(visit: Visit, alice: User) -> None:
    make_gpu(make_node(), foreign_mb=20 * GB)
    visit.log_in(alice)
    visit.go("/jobs/")
    assert "No jobs yet" in visit.text()
    page = visit.page
    page.get_by_role("main").get_by_role("link", name="Submit a job").first.click()
    page.get_by_label("Image", exact=True).fill(IMAGE)
    page.get_by_label("Command").fill("python train.py\npython eval.py")
    page.get_by_label("VRAM for each GPU").fill("20 GB")
    page.get_by_text("Name, priority and grace").click()
    page.get_by_label("Name", exact=True).fill("first-try")
    page.get_by_role("button", name="Submit job").click()
    page.get_by_role("heading", name="first-try", level=1).wait_for()
    job = Job.objects.get()
    assert job.command == "python train.py\npython eval.py"
    assert page.title() == "queued: first-try \N{MIDDLE DOT} GPU Jobs"

    page.get_by_role("link", name="Reload").click()
    assert "20,480 MiB are used by processes outside GPU Jobs." in visit.text()
    assert "With min_vram_mb 4,096" not in visit.text()  # it wants the GPU for itself
    page.get_by_role("button", name=f"Copy id {job.pk}").click()
    page.get_by_text("Copied.").wait_for(state="attached")
    assert page.evaluate("navigator.clipboard.readText()") == str(job.pk)

    page.get_by_role("link", name="Cancel").click()
    page.get_by_role("button", name="Cancel the job").click()
    page.get_by_text("cancelled_by_user").first.wait_for()
    job.refresh_from_db()
    assert job.status == Status.CANCELLED

    page.get_by_role("button", name="Log out").click()
    page.get_by_role("button", name="Log in").wait_for()


@pytest.mark.parametrize("who", ["alice", "olga"])
def test_what_a_job_says_is_never_done(
    visit: Visit, alice: User, olga: User, who: str
) -> None:
    olga.is_superuser = True
    olga.save()
    ended = make_job(
        alice,
        name=HOSTILE,
        command=HOSTILE,
        env={"A": HOSTILE},
        status=Status.SUCCEEDED,
    )
    make_artifact(ended.attempts.get(), HOSTILE)
    write_log(ended, f"{HOSTILE}\n\x1b]8;;https://evil.example\x07link\n".encode())
    refused = make_job(alice, name="second")
    lifecycle.fail_queued(refused, Reason.IMAGE_NOT_FOUND, HOSTILE, by="scheduler")

    visit.log_in({"alice": alice, "olga": olga}[who])
    for path in ("/jobs/", f"/jobs/{ended.pk}/", f"/jobs/{refused.pk}/"):
        visit.go(path)
        assert HOSTILE in visit.text()
    for path in (f"/jobs/{ended.pk}/delete/", f"/api/v1/jobs/{ended.pk}/logs"):
        visit.go(path)
        assert "<script>alert(1)" in visit.text()
    if who == "olga":
        for path in ("jobs/job/", f"jobs/job/{ended.pk}/change/", "jobs/jobevent/"):
            visit.go(f"/admin/{path}")
            assert "<script>alert(1)" in visit.text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_is_wider_than_a_phone(visit: Visit, alice: User, scheme: Any) -> None:
    job = make_job(alice, name="n" * 100, command="c" * 300, status=Status.RUNNING)
    write_log(job, b"l" * 1000)
    visit.page.set_viewport_size({"width": 390, "height": 844})
    visit.page.emulate_media(color_scheme=scheme)
    visit.log_in(alice)
    for path in ("/jobs/", f"/jobs/{job.pk}/", "/submit/", f"/jobs/{job.pk}/cancel/"):
        visit.go(path)
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= 390, path


def test_the_pages_work_without_scripts(
    browser: Browser, live_server: Any, alice: User
) -> None:
    context = browser.new_context(java_script_enabled=False)
    visit = Visit(context.new_page(), live_server.url)
    visit.log_in(alice)
    visit.go("/submit/")
    visit.page.get_by_label("Image", exact=True).fill(IMAGE)
    visit.page.get_by_role("button", name="Submit job").click()
    visit.page.get_by_role("heading", name="pytorch", level=1).wait_for()
    assert visit.page.locator("button.copy:visible").count() == 0
    context.close()
    assert visit.faults == []


def test_the_cluster_page_is_live_and_can_be_paused(visit: Visit, alice: User) -> None:
    """What runs shows by itself; the focus stays where it was, and a pause holds."""
    gpu = make_gpu(make_node())
    visit.log_in(alice)
    page = visit.page
    assert urlsplit(page.url).path == "/"
    page.get_by_text("Nothing waits.").wait_for()
    page.get_by_role("link", name="Submit a job").focus()
    make_job(alice, name=HOSTILE, min_vram_mb=GB)
    page.get_by_role("link", name="<script>").wait_for()
    page.get_by_role("link", name="All 1 queued").focus()
    make_job(alice, name="second", min_vram_mb=GB)
    page.get_by_text("second").wait_for()
    focused = page.evaluate("document.activeElement.getAttribute('href')")
    assert focused == "/jobs/?status=queued"

    page.get_by_role("button", name="Pause").click()
    assert (
        page.get_by_role("button", name="Pause").get_attribute("aria-pressed") == "true"
    )
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.wait_for_timeout(4000)  # longer than the page waits from look to look
    assert asked == []
    page.get_by_role("button", name="Pause").click()
    make_job(alice, name="third", min_vram_mb=GB)
    page.get_by_text("third").wait_for()
    assert gpu.uuid[:12] in visit.text()
    assert visit.faults == []


def test_an_operator_accepts_a_result_that_waits_for_a_person(
    visit: Visit, alice: User, olga: User
) -> None:
    job = make_job(alice, model_name="sentiment", status=Status.RUNNING)
    attempt = job.attempts.get()
    lifecycle.see_exit(attempt, by="gauss")
    lifecycle.record_evidence(attempt, exit_code=0, evidence={}, mean_utilisation={})
    Evaluation.objects.create(attempt=attempt, outcomes=[])
    make_artifact(attempt, "result.json", b"{}")
    until = timezone.now() + timedelta(hours=1)
    lifecycle.park(attempt, until, usage=lifecycle.Usage(), by="gauss")
    visit.log_in(olga)
    visit.go(f"/jobs/{job.pk}/")
    visit.page.get_by_role("link", name="Review…").click()
    assert "result.json" in visit.text()
    visit.page.get_by_label("What you found").fill("Fine <b>indeed</b>.")
    visit.page.get_by_role("button", name="Accept it").click()
    assert "Accepted." in visit.text()
    assert "Fine <b>indeed</b>." in visit.text()
    job.refresh_from_db()
    assert job.status == Status.SUCCEEDED
    assert visit.faults == []
