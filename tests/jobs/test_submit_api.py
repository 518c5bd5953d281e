import json
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.test import RequestFactory
from rest_framework.test import force_authenticate

from jobs import lifecycle
from jobs.api.problems import Unplaceable
from jobs.api.views import JobViewSet
from jobs.models import AuditRecord, Job, JobEvent, User
from jobs.signals import job_queued
from tests.asserts import assert_problem
from tests.factories import IMAGE

pytestmark = pytest.mark.django_db

JOBS = "/api/v1/jobs"


@pytest.mark.parametrize("path", [JOBS, JOBS + "/"])
def test_a_job_is_accepted_and_queued(api: Any, alice: User, path: str) -> None:
    answer = api(alice).post(path, {"image": IMAGE, "command": ["python", "t.py"]})
    assert answer.status_code == 201
    job = Job.objects.get()
    body = answer.json()
    assert body["id"] == body["job_id"] == str(job.pk)
    assert answer["Location"].endswith(f"/api/v1/jobs/{job.pk}")
    assert (body["status"], body["owner"]) == ("queued", alice.email)
    assert (job.owner, job.command) == (alice, ["python", "t.py"])


def test_the_acceptance_leaves_an_event_and_an_audit_record(
    api: Any, alice: User
) -> None:
    api(alice).post(JOBS, {"image": IMAGE})
    event, record = JobEvent.objects.get(), AuditRecord.objects.get()
    assert (event.event_type, event.actor) == ("queued", alice.email)
    assert (record.action, record.address) == ("job.queued", "127.0.0.1")


def test_the_acceptance_wakes_the_scheduler_after_the_commit(
    api: Any, alice: User, django_capture_on_commit_callbacks: Any
) -> None:
    heard: list[object] = []

    def hear(**sent: object) -> None:
        heard.append(sent["sender"])

    job_queued.connect(hear)
    try:
        with django_capture_on_commit_callbacks(execute=True):
            api(alice).post(JOBS, {"image": IMAGE})
            assert heard == []
        assert heard == [Job]
    finally:
        job_queued.disconnect(hear)


def test_what_is_left_out_has_a_default(api: Any, alice: User) -> None:
    body = api(alice).post(JOBS, {"image": "ghcr.io/org/tool:v1"}).json()
    wanted: dict[str, Any] = {
        "name": "tool",
        "command": None,
        "gpu_count": 1,
        "min_vram_mb": None,
        "share": False,
        "env": {},
        "volumes": [],
        "timeout_s": 3600,
        "grace_s": 10,
        "priority": 50,
        "exit_code": None,
        "started_at": None,
        "finished_at": None,
        "assigned_gpu_indices": [],
        "cancel_requested": False,
    }
    assert {key: body[key] for key in wanted} == wanted


def test_everything_that_is_asked_for_is_kept(
    api: Any, alice: User, declare: Any
) -> None:
    declare(writable=["/srv"])
    asked = {
        "name": "Étude 1",
        "image": IMAGE,
        "command": "python train.py && ls",
        "gpu_count": 2,
        "min_vram_mb": 20_000,
        "share": True,
        "gpu_name": "A100",
        "cpus": 1.5,
        "memory_mb": 4096,
        "shm_mb": 512,
        "env": {"LR": "0.1"},
        "volumes": [{"source": "/srv/a", "target": "/data", "mode": "rw"}],
        "timeout_s": 60,
        "grace_s": 0,
        "priority": 0,
    }
    body = api(alice).post(JOBS, asked).json()
    assert {key: body[key] for key in asked} == asked


def test_a_volume_in_dockers_way_comes_back_as_an_object(
    api: Any, alice: User, declare: Any
) -> None:
    declare(read_only=["/srv"])
    body = api(alice).post(JOBS, {"image": IMAGE, "volumes": ["/srv/a/:/data"]}).json()
    assert body["volumes"] == [{"source": "/srv/a", "target": "/data", "mode": "ro"}]


@pytest.mark.parametrize(
    ("changes", "code", "field", "what"),
    [
        ({"gpu_count": -1}, "min_value", "gpu_count", "a negative count"),
        ({"gpu_count": 65}, "max_value", "gpu_count", "more GPUs than a host has"),
        ({"gpu_count": 10**18}, "max_value", "gpu_count", "a huge count"),
        ({"gpu_count": 1.5}, "invalid", "gpu_count", "one and a half"),
        ({"gpu_count": 1.0}, "invalid", "gpu_count", "a float that is whole"),
        ({"gpu_count": True}, "invalid", "gpu_count", "a boolean"),
        ({"gpu_count": "1"}, "invalid", "gpu_count", "a string of a number"),
        ({"gpu_count": "all"}, "invalid", "gpu_count", "Docker's word"),
        ({"gpu_count": None}, "null", "gpu_count", "null"),
        ({"gpu_count": [1]}, "invalid", "gpu_count", "a list"),
        ({"min_vram_mb": 0}, "min_value", "min_vram_mb", "no VRAM"),
        ({"min_vram_mb": 10**12}, "max_value", "min_vram_mb", "an exabyte"),
        ({"min_vram_mb": "8g"}, "invalid", "min_vram_mb", "a unit"),
        (
            {"min_vram_mb": 5, "gpu_count": 0},
            "vram_without_gpu",
            "min_vram_mb",
            "VRAM of no GPU",
        ),
        ({"share": "true"}, "invalid", "share", "a string of a boolean"),
        ({"share": 1}, "invalid", "share", "a number for a boolean"),
        ({"share": True}, "share_needs_vram", "min_vram_mb", "a share of nothing"),
        ({"cpus": "2"}, "invalid", "cpus", "a string of a number"),
        ({"cpus": True}, "invalid", "cpus", "a boolean for a float"),
        ({"cpus": -0.5}, "min_value", "cpus", "negative processors"),
        ({"memory_mb": 1}, "min_value", "memory_mb", "less than Docker takes"),
        ({"timeout_s": 0}, "min_value", "timeout_s", "no time"),
        ({"timeout_s": -1}, "min_value", "timeout_s", "negative time"),
        ({"timeout_s": 10**9}, "max_value", "timeout_s", "thirty years"),
        ({"grace_s": 121}, "max_value", "grace_s", "more grace than there is"),
        ({"priority": 101}, "max_value", "priority", "a priority over 100"),
        ({"image": ""}, "required", "image", "an empty image"),
        ({"image": None}, "null", "image", "null as image"),
        ({"image": 5}, "invalid", "image", "a number as image"),
        ({"image": "--privileged"}, "bad_image", "image", "an option as image"),
        ({"image": "a" * 1000}, "max_length", "image", "an image of 1,000 letters"),
        ({"name": ""}, "blank", "name", "an empty name"),
        ({"name": " \t"}, "blank", "name", "a blank name"),
        ({"name": "x" * 101}, "max_length", "name", "a long name"),
        ({"name": "a\nb"}, "control_character", "name", "a name of two lines"),
        ({"name": 5}, "invalid", "name", "a number as name"),
        ({"gpu_name": "a\x07"}, "control_character", "gpu_name", "a bell"),
        ({"command": []}, "empty_command", "command", "an empty command"),
        ({"command": {"a": 1}}, "bad_command", "command", "an object as command"),
        ({"env": None}, "null", "env", "null as env"),
        ({"env": {"CUDA_VISIBLE_DEVICES": "0"}}, "env_reserved", "env", "a GPU's way"),
        ({"env": {"A": 1}}, "bad_env", "env", "a number in env"),
        ({"volumes": ["/etc:/data"]}, "mount_not_allowed", "volumes", "no roots"),
        ({"volumes": "x"}, "bad_volume", "volumes", "a string as volumes"),
        ({"params": {"a": 1}}, "not_for_this_kind", "params", "params for an image"),
        ({"params": [1]}, "not_a_dict", "params", "a list as params"),
        ({"model_name": "m"}, "image_and_model", "model_name", "image and model"),
    ],
)
def test_what_is_wrong_is_400_with_its_code_and_field(
    api: Any, alice: User, changes: dict[str, Any], code: str, field: str, what: str
) -> None:
    answer = api(alice).post(JOBS, {"image": IMAGE, **changes})
    assert_problem(answer, 400, code, f"/{field}")
    assert not Job.objects.exists(), what


@pytest.mark.parametrize(
    "name",
    [
        *["privileged", "cap_add", "devices", "device_cgroup_rules", "pid_mode"],
        *["ipc_mode", "userns_mode", "network_mode", "security_opt", "sysctls"],
        *["runtime", "cgroup_parent", "labels", "group_add", "extra_hosts", "user"],
        *["volumes_from", "tmpfs", "ulimits", "healthcheck", "gpus", "Image", ""],
        *["id", "job_id", "owner", "owner_id", "status", "reason", "exit_code"],
        *["assigned_gpu_uuids", "created_at", "started_at", "finished_at"],
        *["log_path", "cancel_requested", "idempotency_key", "wait_reason", "~a/b"],
    ],
)
def test_an_unknown_or_read_only_field_is_refused(
    api: Any, alice: User, name: str
) -> None:
    answer = api(alice).post(JOBS, {"image": IMAGE, name: "x"})
    escaped = name.replace("~", "~0").replace("/", "~1")
    assert_problem(answer, 400, "unknown_field", f"/{escaped}")


def test_several_mistakes_are_told_at_once(api: Any, alice: User) -> None:
    answer = api(alice).post(JOBS, {"image": "A", "gpu_count": -1, "timeout_s": 0})
    body = assert_problem(answer, 400, "invalid")
    assert {(e["pointer"], e["code"]) for e in body["errors"]} == {
        ("/image", "bad_image"),
        ("/gpu_count", "min_value"),
        ("/timeout_s", "min_value"),
    }


def test_a_priority_above_the_default_needs_the_permission(
    api: Any, alice: User
) -> None:
    asked = {"image": IMAGE, "priority": 51}
    answer = api(alice).post(JOBS, asked)
    assert_problem(answer, 400, "priority_not_allowed", "/priority")
    alice.user_permissions.add(Permission.objects.get(codename="raise_priority"))
    alice = User.objects.get(pk=alice.pk)  # permissions are cached on the user
    assert api(alice).post(JOBS, asked).status_code == 201


def test_a_model_job_of_no_policy_is_422(api: Any, alice: User) -> None:
    answer = api(alice).post(JOBS, {"model_name": "gpt", "params": {"n": 1}})
    body = assert_problem(answer, 422, "unknown_model")
    assert "no policy named gpt" in body["detail"]


def test_a_stranger_must_log_in(api: Any, db: None) -> None:
    answer = api().post(JOBS, {"image": IMAGE})
    assert_problem(answer, 401, "not_authenticated")
    assert answer["WWW-Authenticate"].startswith("Bearer")


def test_a_mistyped_parameter_does_not_queue_a_job(api: Any, alice: User) -> None:
    answer = api(alice).post(JOBS + "?dryrun=true", {"image": IMAGE})
    assert_problem(answer, 400, "unknown_parameter", "/dryrun")
    assert not Job.objects.exists()


@pytest.mark.parametrize("method", ["put", "patch", "delete"])
def test_another_method_is_405(api: Any, alice: User, method: str) -> None:
    answer = getattr(api(alice), method)(JOBS, {"image": IMAGE})
    assert_problem(answer, 405, "method_not_allowed")
    assert "POST" in answer["Allow"]


# --- Idempotency-Key -----------------------------------------------------------------


def submit(client: Any, key: str, **spec: Any) -> Any:
    headers = {"Idempotency-Key": key}
    return client.post(JOBS, {"image": IMAGE, **spec}, headers=headers)


def test_a_repeat_with_the_same_key_is_answered_with_the_first_job(
    api: Any, alice: User
) -> None:
    first = submit(api(alice), "k1", env={"A": "1"}, cpus=2)
    again = submit(api(alice), "k1", env={"A": "1"}, cpus=2.0)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]
    assert Job.objects.count() == 1


def test_a_repeat_with_another_spec_is_a_conflict(api: Any, alice: User) -> None:
    first = submit(api(alice), "k1")
    body = assert_problem(
        submit(api(alice), "k1", gpu_count=2), 409, "idempotency_conflict"
    )
    assert body["job_id"] == first.json()["id"]


def test_a_repeat_is_recognised_after_the_job_has_moved_on(
    api: Any, alice: User
) -> None:
    submit(api(alice), "k1")
    lifecycle.request_cancel(Job.objects.get(), by=alice)
    assert submit(api(alice), "k1").json()["status"] == "cancelled"


def test_keys_of_two_people_have_nothing_to_do_with_each_other(
    api: Any, alice: User, olga: User
) -> None:
    assert submit(api(alice), "k1").status_code == 201
    assert submit(api(olga), "k1").status_code == 201


@pytest.mark.parametrize(
    "key", ["", "k" * 101, "a b", "a\tb", "schl\u00fcssel", "a\x7f"]
)
def test_no_idempotency_key(api: Any, alice: User, key: str) -> None:
    answer = submit(api(alice), key)
    assert_problem(answer, 400, "bad_idempotency_key", "/Idempotency-Key")


def test_a_key_of_100_characters_is_taken(api: Any, alice: User) -> None:
    assert submit(api(alice), "~" * 100).status_code == 201


# --- What a subclass adds ------------------------------------------------------------


def submit_to(viewset: type[JobViewSet], user: User, **headers: str) -> Any:
    body = json.dumps({"image": IMAGE})
    request = RequestFactory().post(JOBS, body, "application/json", headers=headers)
    force_authenticate(request, user)
    return viewset.as_view({"post": "create"})(request).render()


def test_a_subclass_may_refuse_before_anything_is_queued(alice: User) -> None:
    class Full(JobViewSet):
        def admit(self, spec: dict[str, Any]) -> dict[str, Any]:
            raise Unplaceable("No GPU has 90,000 MiB.", gpus=[{"total_mb": 80_000}])

    answer = submit_to(Full, alice)
    body = json.loads(answer.content)
    assert (answer.status_code, body["code"]) == (422, "never_fits")
    assert body["gpus"] == [{"total_mb": 80_000}]
    assert not Job.objects.exists()


def test_the_same_request_twice_at_once_makes_one_job(alice: User) -> None:
    """The other request commits between our look and our insert."""

    class Slow(JobViewSet):
        def admit(self, spec: dict[str, Any]) -> dict[str, Any]:
            lifecycle.submit(by=alice, idempotency_key="k1", **spec)
            return spec

    answer = submit_to(Slow, alice, **{"Idempotency-Key": "k1"})
    assert answer.status_code == 200
    assert json.loads(answer.content)["id"] == str(Job.objects.get().pk)


def test_a_repeat_is_not_asked_for_admission_again(alice: User) -> None:
    class Full(JobViewSet):
        def admit(self, spec: dict[str, Any]) -> dict[str, Any]:
            raise Unplaceable("The hardware shrank.")

    key = {"Idempotency-Key": "k1"}
    assert submit_to(JobViewSet, alice, **key).status_code == 201
    assert submit_to(Full, alice, **key).status_code == 200
