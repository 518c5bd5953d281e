"""Whoever touches a job and its attempts takes the job's row first: in another order a
cancel and an exit that is seen wait for each other, until the database ends one."""

from collections.abc import Callable

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from jobs import lifecycle
from jobs.lifecycle import Usage
from jobs.models import Attempt
from jobs.status import Reason, Status
from tests.factories import make_job

pytestmark = pytest.mark.django_db

VERBS: dict[str, Callable[[Attempt], object]] = {
    "see_exit": lambda a: lifecycle.see_exit(a, by="test"),
    "request_stop": lambda a: lifecycle.request_stop(a, Reason.TIMED_OUT, by="test"),
    "request_cancel": lambda a: lifecycle.request_cancel(a.job, by=a.job.owner),
    "finish": lambda a: lifecycle.finish(
        a, Reason.NODE_LOST, "gone", usage=Usage(), by="test"
    ),
    "mark_running": lambda a: lifecycle.mark_running(
        a,
        container_id="c",
        image_digest="",
        boot_id="",
        started_at=timezone.now(),
        by="test",
    ),
}


@pytest.mark.parametrize("verb", VERBS)
def test_the_job_is_locked_before_the_attempt(verb: str) -> None:
    status = Status.STARTING if verb == "mark_running" else Status.RUNNING
    attempt = make_job(status=status).attempts.select_related("job__owner").get()
    with CaptureQueriesContext(
        connection,
    ) as queries:
        VERBS[verb](attempt)
    told = [query["sql"] for query in queries if "SAVEPOINT" not in query["sql"]]
    assert told[0].startswith("SELECT")
    assert 'FROM "jobs_job"' in told[0]
    if connection.features.has_select_for_update:
        assert told[0].endswith("FOR UPDATE")
