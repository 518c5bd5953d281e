"""The site's policy: a superuser narrows what the hosts allow, for API and node alike."""

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from jobs.models import AuditRecord, Job, SitePolicy, User
from scheduler.execution import launch
from tests.asserts import assert_problem
from tests.factories import IMAGE, make_user
from tests.fakes import FakeRunner
from tests.scheduler.conftest import gpu, runner
from tests.scheduler.factories import make_reserved

__all__ = ["gpu", "runner"]

pytestmark = pytest.mark.django_db

ADD = "admin:jobs_sitepolicy_add"
CHANGE = "admin:jobs_sitepolicy_change"


@pytest.fixture
def root(db: None) -> Client:
    client = Client()
    client.force_login(make_user("root@x.org", is_staff=True, is_superuser=True))
    return client


def submit(api: Any, user: User, **fields: Any) -> Any:
    body = {"image": IMAGE, "gpu_count": 0, **fields}
    return api(user).post("/api/v1/jobs", body)


class TestBothRings:
    def test_the_api_refuses_what_the_site_does_not_allow(
        self, api: Any, alice: User
    ) -> None:
        SitePolicy.objects.create(text="timeout_s = 60")
        assert_problem(submit(api, alice, timeout_s=61), 400, "over_the_limit")
        assert submit(api, alice, timeout_s=60).status_code == 201

    def test_so_does_the_node(self, runner: FakeRunner, gpu: Any) -> None:
        attempt = make_reserved(timeout_s=61)
        SitePolicy.objects.create(text="timeout_s = 60")
        launch(str(attempt.pk))
        job = Job.objects.get()
        assert (job.status, job.reason) == ("failed", "policy_denied")
        assert "timeout_s of 61 is too much" in job.reason_text
        assert runner.containers == {}

    def test_a_row_can_not_allow_what_the_host_does_not(
        self, api: Any, alice: User, declare: Any
    ) -> None:
        """Nor can whoever writes rows past the admin."""
        declare(read_only=["/srv/ro"])
        SitePolicy.objects.create(text='read_only = ["/home"]\nallow_root = true')
        for source in ("/home", "/srv/ro"):
            answer = submit(api, alice, volumes=[f"{source}:/data"])
            assert_problem(answer, 400, "mount_not_allowed")

    def test_one_that_was_broken_past_the_admin_stops_everything_and_says_so(
        self, api: Any, alice: User, runner: FakeRunner, gpu: Any
    ) -> None:
        attempt = make_reserved()
        SitePolicy.objects.create(text="nonsense = 1")
        assert_problem(submit(api, alice), 400, "policy_unreadable")
        launch(str(attempt.pk))
        job = Job.objects.get()
        assert (job.status, runner.containers) == ("queued", {})


class TestAdmin:
    def test_a_superuser_writes_it_and_the_record_has_before_and_after(
        self, root: Client
    ) -> None:
        assert root.post(reverse(ADD), {"text": "cpus = 4"}).status_code == 302
        row = SitePolicy.objects.get()
        changed = root.post(reverse(CHANGE, args=[row.pk]), {"text": "cpus = 2"})
        assert changed.status_code == 302
        [first, second] = AuditRecord.objects.filter(action__startswith="sitepolicy.")
        assert first.details == {"before": {}, "after": {"text": "cpus = 4"}}
        told = {"before": {"text": "cpus = 4"}, "after": {"text": "cpus = 2"}}
        assert second.details == told

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("image = []", "there is no image"),
            ("cpus = -1", "0 or more"),
            ("cpus", "this is no TOML"),
            ('writable = ["/etc"]', "own files"),
            ("x" * 20_001, "at most 20000 characters"),
        ],
    )
    def test_what_can_not_be_is_refused_with_the_reason(
        self, root: Client, text: str, told: str
    ) -> None:
        answer = root.post(reverse(ADD), {"text": text})
        assert told in answer.content.decode()
        assert not SitePolicy.objects.exists()

    def test_there_is_one(self, root: Client) -> None:
        SitePolicy.objects.create(text="")
        assert root.get(reverse(ADD)).status_code == 403

    def test_an_operator_reads_it_and_does_not_write_it(self, olga: User) -> None:
        row = SitePolicy.objects.create(text="cpus = 4")
        client = Client()
        client.force_login(olga)
        address = reverse(CHANGE, args=[row.pk])
        assert "cpus = 4" in client.get(address).content.decode()
        assert client.post(address, {"text": ""}).status_code == 403
        assert client.get(reverse(ADD)).status_code == 403
