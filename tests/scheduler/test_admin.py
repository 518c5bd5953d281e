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

from jobs.models import Job, User
from jobs.status import Status
from scheduler.models import (
    GPU,
    Allocation,
    DecisionRecord,
    GpuSample,
    Lane,
    Node,
    NodeImage,
    PassLease,
    TaskMessage,
    Verification,
)
from scheduler.queue import claim, enqueue, fail
from tests.factories import make_job

NOBODY = "00000000-0000-0000-0000-000000000001"
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
    TaskMessage.objects.create(function="launch", arguments=[str(attempt.pk)])
    Verification.objects.create(node=name)
    Lane.objects.create(key=name, served_at=timezone.now())
    DecisionRecord.objects.create(
        inputs=b"compressed", inputs_hash="5eed" * 16, outcome={"placed": [name] * 99}
    )
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
    if model not in (GPU, Node):
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


def test_a_decision_is_shown_without_its_inputs(olga: User) -> None:
    make_machine("gauss", olga)
    decision = DecisionRecord.objects.get()
    shown = page(olga).get(address(DecisionRecord, "change", decision.pk))
    assert decision.inputs_hash in shown.content.decode()
    assert "placed" in shown.content.decode()
    assert "compressed" not in shown.content.decode()


def test_tasks_can_be_looked_at_and_not_changed(olga: User) -> None:
    enqueue("launch", NOBODY)
    claimed = claim("gauss", by="cluster")
    assert claimed is not None
    fail(claimed.message_id, "Traceback: no such attempt")
    client = page(olga)
    listed = client.get(address(TaskMessage, "changelist")).content.decode()
    assert f"launch({NOBODY})" in listed
    shown = client.get(address(TaskMessage, "change", claimed.message_id))
    assert "no such attempt" in shown.content.decode()
    delete = address(TaskMessage, "delete", claimed.message_id)
    assert client.post(delete).status_code == 403


def test_what_a_job_holds_can_be_found_by_its_id(olga: User) -> None:
    make_machine("gauss", olga)
    job = Job.objects.get()
    for model in (Allocation, GpuSample):
        answer = page(olga).get(address(model, "changelist") + f"?q={str(job.pk)[:8]}")
        assert "1 result" in answer.content.decode()
