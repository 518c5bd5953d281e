"""The API against its own schema: whatever is sent, it answers as it says it does.

`CASES=2200 pytest tests/test_contract.py` sends 50,000 requests; the seed is fixed.
"""

import os
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from django.core import signals
from django.db import close_old_connections
from drf_spectacular.generators import SchemaGenerator
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from rest_framework_simplejwt.tokens import RefreshToken
from schemathesis import Case, GenerationMode
from schemathesis.checks import CHECKS, load_all_checks

from gpujobs.wsgi import application
from jobs.models import Job, User
from jobs.status import Status
from tests.factories import make_job

pytestmark = pytest.mark.django_db

EACH = int(os.environ.get("CASES", "135"))
load_all_checks()
# Our rules are stricter than a schema can say: a path of an allowed root, no NUL.
LEFT_OUT: Any = [CHECKS.get_one("positive_data_acceptance")]

described = SchemaGenerator().get_schema(request=None, public=True)
schema: Any = schemathesis.openapi.from_dict(described)
schema.app = application
OPERATIONS = {found.ok().label: found.ok() for found in schema.get_all_operations()}


@pytest.fixture(autouse=True)
def _one_connection() -> Iterator[None]:
    """Requests come from the test's own thread, as with Django's test client."""
    told = (signals.request_started, signals.request_finished)
    for signal in told:
        signal.disconnect(close_old_connections)
    yield
    for signal in told:
        signal.connect(close_old_connections)


@pytest.fixture
def token(alice: User, settings: Any) -> str:
    settings.REGISTRATION = "open"
    return str(RefreshToken.for_user(alice).access_token)


def some_jobs(owner: User) -> list[Job]:
    statuses = (Status.QUEUED, Status.RUNNING, Status.SUCCEEDED, Status.CANCELLED)
    return [make_job(owner, status=status) for status in statuses]


def test_there_is_enough_of_it() -> None:
    assert len(OPERATIONS) * 135 >= 3000


@pytest.mark.parametrize("label", OPERATIONS)
def test_it_answers_as_its_schema_says(label: str, alice: User, token: str) -> None:
    operation = OPERATIONS[label]
    jobs = some_jobs(alice)
    kinds = (operation.as_strategy(generation_mode=mode) for mode in GenerationMode)

    # Nothing is shrunk: the request that failed is told as a call of curl.
    @hypothesis_settings(
        max_examples=EACH,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=st.one_of(*kinds), which=st.integers(0, len(jobs)))
    def send(case: Case, which: int) -> None:
        if which < len(jobs) and "id" in (case.path_parameters or {}):
            case.path_parameters["id"] = str(jobs[which].pk)
        case.call_and_validate(
            headers={"Authorization": f"Bearer {token}"}, excluded_checks=LEFT_OUT
        )

    send()
