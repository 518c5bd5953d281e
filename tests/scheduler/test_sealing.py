"""An attempt's secrets: taken at its launch, masked to its end, then forgotten."""

from typing import Any

import pytest
from django.conf import settings

from jobs.models import Attempt, Job, Secret
from jobs.secrets import seal
from jobs.status import Reason
from scheduler.execution import collect, launch
from scheduler.models import GPU
from scheduler.runner.base import RunnerFault
from tests.factories import make_user
from tests.fakes import FakeRunner
from tests.scheduler.factories import make_reserved

pytestmark = pytest.mark.django_db

VALUE = "hf_0123456789abcdef"


@pytest.fixture
def secret(db: None) -> Secret:
    sealed = seal(VALUE, settings.SECRET_KEY)
    return Secret.objects.create(owner=make_user(), name="HF_TOKEN", sealed=sealed)


@pytest.fixture
def attempt(gpu: GPU, runner: FakeRunner, secret: Secret) -> Attempt:
    return make_reserved(owner=secret.owner, secrets={"TOKEN": "HF_TOKEN"})


def read(attempt: Attempt) -> Attempt:
    return Attempt.objects.select_related("job").get(pk=attempt.pk)


def test_the_container_has_its_value(
    runner: FakeRunner, attempt: Attempt, secret: Secret
) -> None:
    launch(str(attempt.pk))
    assert runner.specs[attempt.container_name].env["TOKEN"] == VALUE
    assert VALUE not in str(read(attempt).sealed)
    secret.refresh_from_db()
    assert secret.last_used_at is not None


def test_one_for_a_variable_that_is_ours_is_refused_by_the_node(
    runner: FakeRunner, attempt: Attempt
) -> None:
    named = {"GPUJOBS_JOB_ID": "HF_TOKEN"}
    Job.objects.filter(pk=attempt.job_id).update(secrets=named)
    launch(str(attempt.pk))
    assert read(attempt).job.reason == "policy_denied"
    assert runner.containers == {}


@pytest.mark.parametrize("change", ["delete", "set anew"])
def test_its_log_is_masked_whatever_became_of_the_secret(
    runner: FakeRunner, attempt: Attempt, secret: Secret, settings: Any, change: str
) -> None:
    launch(str(attempt.pk))
    if change == "delete":
        secret.delete()
    else:
        secret.sealed = seal("another value", settings.SECRET_KEY)
        secret.save()
    runner.output[attempt.container_name] = f"token {VALUE}\n".encode()
    runner.end(attempt.container_name)
    collect(str(attempt.pk))
    log = settings.DATA_ROOT / attempt.log_path
    assert log.read_bytes() == b"token ***\n"


def test_it_is_forgotten_when_the_attempt_ends(
    runner: FakeRunner, attempt: Attempt
) -> None:
    launch(str(attempt.pk))
    runner.end(attempt.container_name)
    collect(str(attempt.pk))
    assert read(attempt).reason == "completed"
    assert read(attempt).sealed == {}


def test_a_job_whose_secret_is_gone_does_not_start(
    runner: FakeRunner, attempt: Attempt, secret: Secret
) -> None:
    secret.delete()
    launch(str(attempt.pk))
    job = read(attempt).job
    assert (job.status, job.reason) == ("failed", "policy_denied")
    assert "You have no secret HF_TOKEN" in job.reason_text
    assert runner.containers == {}


def test_one_that_was_sealed_with_another_key_is_told(
    runner: FakeRunner, attempt: Attempt, secret: Secret
) -> None:
    secret.sealed = seal(VALUE, "another key")
    secret.save()
    launch(str(attempt.pk))
    assert "sealed with another key" in read(attempt).job.reason_text


def test_what_the_daemon_says_of_it_is_masked(
    runner: FakeRunner, attempt: Attempt
) -> None:
    told = RunnerFault(Reason.COMMAND_NOT_FOUND, f"invalid env TOKEN={VALUE}")
    runner.faults["create"] = told
    launch(str(attempt.pk))
    assert read(attempt).job.reason_text.endswith("TOKEN=***")
