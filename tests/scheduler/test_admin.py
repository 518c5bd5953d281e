from typing import Any

import pytest
from django.apps import apps
from django.contrib import admin
from django.db import connection
from django.db.models import Model
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from jobs.models import AuditRecord, Job, User
from jobs.status import Status
from scheduler.models import GPU, Allocation, GpuSample, Node, NodeImage, PassLease
from tests.factories import make_job

OURS = [*apps.get_app_config("scheduler").get_models()]


def page(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def address(model: type[Model], verb: str, *args: Any) -> str:
    return reverse(
        f"admin:{model._meta.label_lower.replace('.', '_')}_{verb}", args=args
    )


def make_machine(name: str, owner: User) -> GPU:
    """A node with one GPU, held by a running job, and everything seen of it."""
    node = Node.objects.create(name=name, state="up", cpus=8, memory_mb=64000)
    gpu = GPU.objects.create(
        node=node, uuid=f"GPU-{name}", index=0, name="RTX 3090", total_mb=24576
    )
    attempt = make_job(owner, status=Status.RUNNING).attempts.get()
    Allocation.objects.create(attempt=attempt, gpu=gpu, vram_mb=8192, is_exclusive=True)
    NodeImage.objects.create(node=node, image="lab/train:1")
    GpuSample.objects.create(gpu=gpu, attempt=attempt, used_mb=1)
    PassLease.objects.get_or_create(pk=1)
    return gpu


def test_every_model_is_in_the_admin() -> None:
    assert [model for model in OURS if not admin.site.is_registered(model)] == []


@pytest.mark.parametrize("model", OURS, ids=lambda model: model.__name__)
def test_rows_can_be_looked_at_and_neither_made_nor_deleted(
    olga: User, model: type[Model]
) -> None:
    make_machine("gauss", olga)
    olga.is_superuser = True
    olga.save()
    row = model._default_manager.first()
    assert row is not None
    client = page(olga)
    assert client.get(address(model, "changelist")).status_code == 200
    assert client.get(address(model, "change", row.pk)).status_code == 200
    assert client.get(address(model, "add")).status_code == 403
    assert client.post(address(model, "delete", row.pk)).status_code == 403
    if model is not GPU:
        assert client.post(address(model, "change", row.pk)).status_code == 403


@pytest.mark.parametrize("model", OURS, ids=lambda model: model.__name__)
def test_a_list_takes_as_many_queries_for_few_rows_as_for_many(
    olga: User, model: type[Model]
) -> None:
    client = page(olga)

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            client.get(address(model, "changelist"))
        return len(captured)

    make_machine("a", olga)
    make_machine("b", olga)
    queries()
    few = queries()
    for name in "cdef":
        make_machine(name, olga)
    assert queries() == few


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("headroom_mb", "-5", "The headroom is 0 to 24,576 MiB"),
        ("headroom_mb", "24577", "The headroom is 0 to 24,576 MiB"),
        ("headroom_mb", "9" * 30, "errorlist"),
        ("state", "quarantined", "Say why"),
        ("state", "broken", "not one of the available choices"),
    ],
)
def test_what_makes_no_sense_for_a_gpu_is_refused_with_a_reason(
    olga: User, field: str, value: str, text: str
) -> None:
    gpu = make_machine("gauss", olga)
    sent = {"headroom_mb": "0", "state": "enabled", "state_reason": "", field: value}
    answer = page(olga).post(address(GPU, "change", gpu.pk), sent)
    assert answer.status_code == 200
    assert text in answer.content.decode()
    gpu.refresh_from_db()
    assert (gpu.headroom_mb, gpu.state) == (0, "enabled")


def test_an_operator_takes_a_gpu_out_with_a_reason(olga: User) -> None:
    gpu = make_machine("gauss", olga)
    GPU.objects.update(used_mb=77)
    answer = page(olga).post(
        address(GPU, "change", gpu.pk),
        {
            "headroom_mb": "512",
            "state": "draining",
            "state_reason": "fan 2 stalls",
            "total_mb": "1",
            "uuid": "forged",
        },
    )
    assert answer.status_code == 302
    gpu.refresh_from_db()
    assert (gpu.headroom_mb, gpu.state, gpu.state_reason) == (
        512,
        "draining",
        "fan 2 stalls",
    )
    assert (gpu.total_mb, gpu.uuid, gpu.used_mb) == (24576, "GPU-gauss", 77)
    record = AuditRecord.objects.get(action="gpu.changed")
    assert (record.actor, record.target) == (olga.email, "GPU-gauss")
    assert record.details == {
        "headroom_mb": 512,
        "state": "draining",
        "state_reason": "fan 2 stalls",
    }


@pytest.mark.parametrize("name", ["Success", "Failure"])
def test_tasks_can_be_looked_at_and_not_sent_again(olga: User, name: str) -> None:
    model = apps.get_model("django_q", name)
    task = model.objects.create(
        id="t" * 32,
        name="launch",
        func="scheduler.tasks.launch",
        started=timezone.now(),
        stopped=timezone.now(),
        success=name == "Success",
    )
    client = page(olga)
    assert "launch" in client.get(address(model, "changelist")).content.decode()
    assert client.get(address(model, "change", task.pk)).status_code == 200
    form = {"action": "resubmit_task", "_selected_action": [task.pk]}
    client.post(address(model, "changelist"), form)
    assert not apps.get_model("django_q.OrmQ").objects.exists()
    assert client.post(address(model, "delete", task.pk)).status_code == 403


def test_what_a_job_holds_can_be_found_by_its_id(olga: User) -> None:
    make_machine("gauss", olga)
    job = Job.objects.get()
    for model in (Allocation, GpuSample):
        answer = page(olga).get(address(model, "changelist") + f"?q={str(job.pk)[:8]}")
        assert "1 result" in answer.content.decode()


def test_an_operator_drains_a_node_and_ends_it(olga: User) -> None:
    node = make_machine("gauss", olga).node

    def act(action: str) -> str:
        sent = {"action": action, "_selected_action": [node.pk]}
        assert page(olga).post(address(Node, "changelist"), sent).status_code == 302
        node.refresh_from_db()
        return node.state

    assert act("drain") == "draining"
    # Up again with its supervisor's next heartbeat.
    assert act("undrain") == "joining"
    told = AuditRecord.objects.filter(action="node.changed", target="gauss")
    assert [record.details["state"] for record in told] == ["draining", "joining"]


def test_saving_a_gpu_as_it_was_leaves_no_record(olga: User) -> None:
    gpu = make_machine("gauss", olga)
    sent = {"headroom_mb": "0", "state": "enabled", "state_reason": ""}
    assert page(olga).post(address(GPU, "change", gpu.pk), sent).status_code == 302
    assert not AuditRecord.objects.filter(action="gpu.changed").exists()
