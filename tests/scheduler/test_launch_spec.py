from typing import Any

import pytest

from jobs.models import Job
from scheduler.execution import launch_spec
from tests.factories import make_attempt, make_job

pytestmark = pytest.mark.django_db


def test_only_a_task_of_an_array_is_told_its_index() -> None:
    first = make_job(array="3,5")
    second = Job.objects.get(array_index=5)
    indices = [launch_spec(make_attempt(job)).env for job in (first, second)]
    assert [env["GPUJOBS_ARRAY_INDEX"] for env in indices] == ["3", "5"]
    alone = launch_spec(make_attempt(make_job()))
    assert "GPUJOBS_ARRAY_INDEX" not in alone.env


def test_index_0_is_an_index_too() -> None:
    env = launch_spec(make_attempt(make_job(array="0-1"))).env
    assert env["GPUJOBS_ARRAY_INDEX"] == "0"


@pytest.mark.parametrize(
    ("given", "limits"),
    [
        ({}, (2.0, 1024, 64)),
        ({"cpus": 8.0, "memory_mb": 4096, "shm_mb": 512}, (8.0, 4096, 512)),
        ({"memory_mb": 4096}, (2.0, 4096, 64)),
    ],
)
def test_it_gets_what_it_was_given_else_what_it_asked_for(
    given: dict[str, Any], limits: tuple[float, int, int]
) -> None:
    attempt = make_attempt(make_job(cpus=2.0, memory_mb=1024, shm_mb=64))
    for name, value in given.items():
        setattr(attempt, name, value)
    spec = launch_spec(attempt)
    assert (spec.cpus, spec.memory_mb, spec.shm_mb) == limits
