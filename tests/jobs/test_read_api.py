import uuid
from datetime import datetime
from typing import Any

import pytest

from jobs.models import User
from tests.asserts import assert_problem
from tests.factories import finish, make_attempt, make_job

pytestmark = pytest.mark.django_db

FIELDS = {
    *["id", "job_id", "name", "owner", "status", "reason", "reason_text"],
    *["wait_reason", "wait_text", "image", "command", "model_name", "params"],
    *[
        "network",
        "risk",
        "policy_version",
        "tier",
        "on_oom",
        "on_memory_oom",
        "escalations",
    ],
    *["gpu_count", "min_vram_mb", "share", "gpu_name", "cpus", "memory_mb", "shm_mb"],
    *[
        "env",
        "secrets",
        "volumes",
        "timeout_s",
        "grace_s",
        "priority",
        "assigned_gpu_indices",
    ],
    *["assigned_gpu_uuids", "exit_code", "created_at", "started_at", "finished_at"],
    *[
        "log_path",
        "cancel_requested",
        "group",
        "visibility",
        "node_name",
        "node_labels",
    ],
    *["array", "array_id", "array_index", "begin_at", "is_held", "held_at"],
    *["depends_on"],
}
# All that hangs on one job, with the method that reaches it.
PARTS = [
    ("get", ""),
    ("delete", ""),
    ("post", "/cancel"),
    ("post", "/hold"),
    ("post", "/release"),
    ("post", "/top"),
    ("get", "/logs"),
    ("get", "/events"),
    ("get", "/attempts"),
    ("get", "/passport"),
    ("get", "/artifact"),
    ("get", "/artifact/download"),
]


@pytest.mark.parametrize("slash", ["", "/"])
def test_a_job_is_shown_with_all_its_fields(api: Any, alice: User, slash: str) -> None:
    job = make_job(alice)
    body = api(alice).get(f"/api/v1/jobs/{job.pk}{slash}").json()
    assert body.keys() == FIELDS
    assert body["id"] == body["job_id"] == str(job.pk)


def test_times_are_utc_and_end_in_z(api: Any, alice: User) -> None:
    job = make_job(alice, status="succeeded")
    body = api(alice).get(f"/api/v1/jobs/{job.pk}").json()
    for name in ("created_at", "started_at", "finished_at"):
        assert body[name].endswith("Z")
        assert datetime.fromisoformat(body[name]) == getattr(job, name)


def test_an_ended_job_says_how(api: Any, alice: User) -> None:
    job = make_job(alice, status="failed")
    body = api(alice).get(f"/api/v1/jobs/{job.pk}").json()
    assert (body["status"], body["reason"]) == ("failed", "nonzero_exit")
    assert (body["exit_code"], body["reason_text"]) == (1, "It ended.")
    assert body["assigned_gpu_uuids"] == ["GPU-0"]


def test_env_is_shown_to_its_owner_and_only_named_to_an_operator(
    api: Any, alice: User, olga: User
) -> None:
    job = make_job(alice, env={"TOKEN": "hunter2"})
    path = f"/api/v1/jobs/{job.pk}"
    assert api(alice).get(path).json()["env"] == {"TOKEN": "hunter2"}
    assert api(olga).get(path).json()["env"] == {"TOKEN": "***"}
    assert b"hunter2" not in api(olga).get("/api/v1/jobs").content


@pytest.mark.parametrize(("method", "part"), PARTS)
def test_anothers_job_reads_like_one_that_does_not_exist(
    api: Any, alice: User, bob: User, method: str, part: str
) -> None:
    there, missing = make_job(alice).pk, uuid.uuid4()
    bodies = []
    for pk in (there, missing):
        path = f"/api/v1/jobs/{pk}{part}"
        body = assert_problem(getattr(api(bob), method)(path), 404, "not_found")
        bodies.append(str(body).replace(str(pk), "ID"))
    assert bodies[0] == bodies[1]
    assert api(alice).get(f"/api/v1/jobs/{there}").json()["status"] == "queued"


@pytest.mark.parametrize(("method", "part"), PARTS)
@pytest.mark.parametrize(
    "pk",
    ["1", "-", "%00", "x" * 5000, "..", "%2e%2e", "%f0%9f%90%8d", "00000000", "{}"],
)
def test_what_is_no_id_is_404(
    api: Any, alice: User, method: str, part: str, pk: str
) -> None:
    answer = getattr(api(alice), method)(f"/api/v1/jobs/{pk}{part}")
    assert_problem(answer, 404, "not_found")


@pytest.mark.parametrize(("method", "part"), PARTS)
def test_each_part_asks_for_a_login(
    api: Any, alice: User, method: str, part: str
) -> None:
    path = f"/api/v1/jobs/{make_job(alice).pk}{part}"
    assert_problem(getattr(api(), method)(path), 401, "not_authenticated")


@pytest.mark.parametrize("method", ["put", "patch", "post"])
def test_a_job_is_not_changed_after_it_was_sent(
    api: Any, alice: User, method: str
) -> None:
    path = f"/api/v1/jobs/{make_job(alice).pk}"
    answer = getattr(api(alice), method)(path, {"image": "other"})
    assert_problem(answer, 405, "method_not_allowed")


def test_an_operator_sees_everybodys_job(api: Any, alice: User, olga: User) -> None:
    assert api(olga).get(f"/api/v1/jobs/{make_job(alice).pk}").status_code == 200


def test_a_requeued_job_waits_again_and_keeps_its_age(api: Any, alice: User) -> None:
    job = make_job(alice)
    finish(make_attempt(job), "node_lost")
    body = api(alice).get(f"/api/v1/jobs/{job.pk}").json()
    assert (body["status"], body["assigned_gpu_indices"]) == ("queued", [])
    assert datetime.fromisoformat(body["created_at"]) == job.created_at


@pytest.mark.parametrize("path", ["/api/", "/api/v1/nothing", "/api/%00"])
def test_an_unknown_path_of_the_api_is_a_problem_too(
    api: Any, db: None, path: str
) -> None:
    assert_problem(api().get(path), 404, "not_found")


def test_a_wrong_host_is_a_problem(api: Any, db: None) -> None:
    answer = api().get("/api/v1/jobs", headers={"Host": "evil.example"})
    assert answer.status_code in (400, 401)
    assert b"<html" not in answer.content
