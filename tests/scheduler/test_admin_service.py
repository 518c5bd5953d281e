"""Operators take nodes and GPUs out of service, and bring them back."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db.models import Model
from django.test import Client, TestCase
from django.urls import reverse
from django.utils import timezone

from jobs.models import AuditRecord, User
from scheduler.models import GPU, Node, NodeImage, NodeState, PassLease
from tests.scheduler.factories import make_gpu, make_node

NOON = datetime(2030, 7, 1, 12, tzinfo=UTC)


@pytest.fixture
def gpu(olga: User) -> GPU:
    """24,576 MiB, of a node with one image."""
    return make_gpu(make_node())


@pytest.fixture
def client(olga: User) -> Client:
    client = Client()
    client.force_login(olga)
    return client


def address(model: type[Model], verb: str, *args: Any) -> str:
    return reverse(
        f"admin:{model._meta.label_lower.replace('.', '_')}_{verb}", args=args
    )


def wakes() -> int:
    return sum(PassLease.objects.values_list("wakes", flat=True))


def send(client: Client, row: GPU | Node, **fields: str) -> str:
    """Save the row's form as a browser sends it; what was said if it was refused."""
    sent = {
        "state": "enabled" if isinstance(row, GPU) else "up",
        "state_reason": "",
        "state_until_0": "",
        "state_until_1": "",
        **({"headroom_mb": "0"} if isinstance(row, GPU) else {"labels": ""}),
        **fields,
    }
    with TestCase.captureOnCommitCallbacks(execute=True):
        answer = client.post(address(type(row), "change", row.pk), sent)
    row.refresh_from_db()
    return answer.content.decode() if answer.status_code == 200 else ""


def records(action: str) -> list[AuditRecord]:
    return list(AuditRecord.objects.filter(action=action).order_by("id"))


OUT = {"state": "draining", "state_reason": "fan 2 stalls"}


class TestGpu:
    @pytest.mark.parametrize(
        ("fields", "text"),
        [
            ({"headroom_mb": "-5"}, "The headroom is 0 to 24,576 MiB"),
            ({"headroom_mb": "24577"}, "The headroom is 0 to 24,576 MiB"),
            ({"headroom_mb": "9" * 30}, "errorlist"),
            ({"state": "quarantined"}, "Say why"),
            ({"state": "broken"}, "not one of the available choices"),
            ({**OUT, "state_until_0": "2001-01-01", "state_until_1": "00:00"}, "come"),
            ({**OUT, "state_until_0": "soon", "state_until_1": ""}, "errorlist"),
            ({**OUT, "state_reason": "x" * 256}, "errorlist"),
        ],
    )
    def test_what_makes_no_sense_is_refused_with_a_reason(
        self, client: Client, gpu: GPU, fields: dict[str, str], text: str
    ) -> None:
        assert text in send(client, gpu, **fields)
        assert (gpu.headroom_mb, gpu.state, gpu.state_by) == (0, "enabled", "")
        assert records("gpu.changed") == []

    def test_it_is_taken_out_with_a_reason_and_by_whom(
        self, client: Client, gpu: GPU, olga: User
    ) -> None:
        GPU.objects.update(used_mb=77)
        uuid, before = gpu.uuid, wakes()
        forged = {"total_mb": "1", "uuid": "forged", "state_by": "bob"}
        assert not send(client, gpu, headroom_mb="512", **OUT, **forged)
        assert (gpu.state, gpu.state_reason, gpu.state_by) == (
            "draining",
            "fan 2 stalls",
            olga.email,
        )
        assert (gpu.headroom_mb, gpu.state_until) == (512, None)
        assert (gpu.total_mb, gpu.uuid, gpu.used_mb) == (24576, uuid, 77)
        (record,) = records("gpu.changed")
        assert (record.actor, record.target) == (olga.email, uuid)
        assert record.details == {
            "before": {"headroom_mb": 0, "state": "enabled", "state_reason": ""},
            "after": {"headroom_mb": 512, **OUT},
        }
        assert wakes() == before + 1

    def test_until_is_read_and_shown_in_the_operators_time_zone(
        self, client: Client, gpu: GPU, olga: User
    ) -> None:
        User.objects.filter(pk=olga.pk).update(time_zone="Europe/Berlin")
        until = {"state_until_0": "2030-07-01", "state_until_1": "14:00:00"}
        assert not send(client, gpu, **OUT, **until)
        assert gpu.state_until == NOON
        (record,) = records("gpu.changed")
        assert record.details["after"]["state_until"] == "2030-07-01T12:00:00+00:00"
        shown = client.get(address(GPU, "change", gpu.pk)).content.decode()
        assert "14:00:00" in shown
        assert "Europe/Berlin" in shown

    def test_in_service_again_it_has_no_reason_left(
        self, client: Client, gpu: GPU
    ) -> None:
        send(client, gpu, **OUT, state_until_0="2030-07-01", state_until_1="12:00")
        assert not send(client, gpu, state_reason="fan 2 stalls")
        assert (gpu.state, gpu.state_reason, gpu.state_by) == ("enabled", "", "")
        assert gpu.state_until is None

    def test_saved_as_it_was_it_leaves_no_record_and_wakes_nobody(
        self, client: Client, gpu: GPU
    ) -> None:
        before = wakes()
        assert not send(client, gpu)
        assert records("gpu.changed") == []
        assert wakes() == before

    def test_another_change_leaves_its_reason_to_whom_it_was(
        self, client: Client, gpu: GPU
    ) -> None:
        until = NOON + timedelta(microseconds=123)
        GPU.objects.update(**OUT, state_by="supervisor on gauss", state_until=until)
        shown = {"state_until_0": "2030-07-01", "state_until_1": "12:00:00"}
        assert not send(client, gpu, headroom_mb="512", **OUT, **shown)
        assert (gpu.state_by, gpu.state_until) == ("supervisor on gauss", until)
        assert records("gpu.changed")[0].details["after"] == {"headroom_mb": 512}

    def test_a_time_that_has_passed_meanwhile_does_not_keep_others_from_a_change(
        self, client: Client, gpu: GPU
    ) -> None:
        GPU.objects.update(**OUT, state_until=datetime(2001, 1, 1, tzinfo=UTC))
        shown = {"state_until_0": "2001-01-01", "state_until_1": "00:00:00"}
        assert not send(client, gpu, headroom_mb="512", **OUT, **shown)
        assert gpu.headroom_mb == 512

    def test_foreign_processes_are_shown_and_their_names_are_text(
        self, client: Client, gpu: GPU
    ) -> None:
        seen = {"pid": 7, "user": "bob", "process": "<b>x", "used_mb": 3000}
        lost = {"pid": 8, "user": "", "process": "", "used_mb": None}
        GPU.objects.update(
            foreign_processes=[
                {**seen, "container": "notebook"},
                {**lost, "container": ""},
            ]
        )
        shown = client.get(address(GPU, "change", gpu.pk)).content.decode()
        assert "3,000 MiB: &lt;b&gt;x (pid 7) of bob in container notebook" in shown
        assert "unknown size: unknown process (pid 8) of unknown user" in shown


class TestNode:
    @pytest.mark.parametrize("state", ["draining", "quarantined"])
    def test_it_is_taken_out_and_brought_back(
        self, client: Client, gpu: GPU, olga: User, state: str
    ) -> None:
        node, before = gpu.node, wakes()
        assert not send(client, node, **{**OUT, "state": state})
        assert (node.state, node.state_reason) == (state, "fan 2 stalls")
        assert node.state_by == olga.email
        assert not send(client, node)
        # Up again with its supervisor's next heartbeat.
        assert (node.state, node.state_reason) == (NodeState.JOINING, "")
        assert node.state_by == ""
        told = [record.details["after"]["state"] for record in records("node.changed")]
        assert told == [state, "joining"]
        assert wakes() == before + 2

    @pytest.mark.parametrize("state", ["joining", "up", "down"])
    def test_in_service_its_state_is_the_supervisors(
        self, client: Client, gpu: GPU, state: str
    ) -> None:
        Node.objects.update(state=state)
        shown = client.get(address(Node, "change", gpu.node_id)).content.decode()
        assert 'value="up" selected' in shown
        assert not send(client, gpu.node)
        assert gpu.node.state == state
        assert records("node.changed") == []

    @pytest.mark.parametrize("state", ["joining", "down"])
    def test_only_an_operators_states_can_be_chosen(
        self, client: Client, gpu: GPU, state: str
    ) -> None:
        assert "not one of the available choices" in send(client, gpu.node, state=state)

    def test_it_needs_a_reason(self, client: Client, gpu: GPU) -> None:
        assert "Say why" in send(client, gpu.node, state="draining")

    def test_labels_are_read_line_by_line_and_shown_so(
        self, client: Client, gpu: GPU
    ) -> None:
        before = wakes()
        lines = "zone=rack-2/left\r\n\r\n gpu = a100 \r\n"
        assert not send(client, gpu.node, labels=lines)
        labels = {"zone": "rack-2/left", "gpu": "a100"}
        assert gpu.node.labels == labels
        assert records("node.changed")[0].details["after"] == {"labels": labels}
        assert wakes() == before + 1
        shown = client.get(address(Node, "change", gpu.node_id)).content.decode()
        assert "gpu=a100\nzone=rack-2/left</textarea>" in shown
        assert not send(client, gpu.node, labels="gpu=a100\r\nzone=rack-2/left")
        assert len(records("node.changed")) == 1

    @pytest.mark.parametrize(
        ("labels", "text"),
        [
            ("gpu", "is no label"),
            ("=a100", "is no label"),
            ("gpu=", "is no label"),
            ("gpu=a 100", "is no label"),
            ("gpu=a=100", "is no label"),
            ("größe=1", "is no label"),
            ("gpu=" + "x" * 64, "is no label"),
            ("gpu=a\ngpu=b", "gpu is there twice"),
            ("\n".join(f"k{n}=v" for n in range(21)), "at most 20 labels"),
        ],
    )
    def test_labels_that_are_none_are_refused(
        self, client: Client, gpu: GPU, labels: str, text: str
    ) -> None:
        assert text in send(client, gpu.node, labels=labels)
        assert gpu.node.labels == {}

    def test_twenty_of_full_length_are_taken(self, client: Client, gpu: GPU) -> None:
        labels = {f"{n:02d}{'k' * 61}": "v" * 63 for n in range(20)}
        lines = "\n".join(f"{key}={value}" for key, value in labels.items())
        assert not send(client, gpu.node, labels=lines)
        assert gpu.node.labels == labels

    def test_what_came_or_went_below_while_the_page_was_open_is_no_matter(
        self, client: Client, gpu: GPU
    ) -> None:
        gone = NodeImage.objects.get()
        tables = {
            "images-TOTAL_FORMS": "1",
            "images-INITIAL_FORMS": "1",
            "images-0-id": str(gone.pk),
        }
        gone.delete()
        assert not send(client, gpu.node, labels="gpu=a100", **tables)
        assert gpu.node.labels == {"gpu": "a100"}
        assert not NodeImage.objects.exists()

    def test_it_takes_no_name_of_another(self, client: Client, gpu: GPU) -> None:
        assert not send(client, gpu.node, name="euler", cpus="1", labels="a=b")
        assert (gpu.node.name, gpu.node.cpus) == ("gauss", 8)

    def test_the_admins_own_history_has_it_too(self, client: Client, gpu: GPU) -> None:
        send(client, gpu.node, labels="gpu=a100")
        assert LogEntry.objects.filter(object_id=gpu.node_id).exists()


class TestActions:
    def act(self, client: Client, node: Node, action: str) -> str:
        sent = {"action": action, "_selected_action": [node.pk]}
        with TestCase.captureOnCommitCallbacks(execute=True):
            answer = client.post(address(Node, "changelist"), sent)
        assert answer.status_code == 302
        node.refresh_from_db()
        return node.state

    def test_an_operator_drains_a_node_and_ends_it(
        self, client: Client, gpu: GPU, olga: User
    ) -> None:
        node, before = gpu.node, wakes()
        assert self.act(client, node, "drain") == "draining"
        assert node.state_reason == f"drained by {olga.email}"
        assert node.state_by == olga.email
        assert self.act(client, node, "undrain") == "joining"
        assert (node.state_reason, node.state_by) == ("", "")
        told = records("node.changed")
        assert [record.details["after"]["state"] for record in told] == [
            "draining",
            "joining",
        ]
        assert {record.target for record in told} == {"gauss"}
        assert wakes() == before + 2

    @pytest.mark.parametrize("state", ["draining", "quarantined"])
    def test_draining_leaves_one_that_is_out_already_as_it_is(
        self, client: Client, gpu: GPU, state: str
    ) -> None:
        Node.objects.update(state=state, state_reason="fan 2 stalls")
        assert self.act(client, gpu.node, "drain") == state
        assert gpu.node.state_reason == "fan 2 stalls"
        assert records("node.changed") == []

    def test_ending_the_draining_ends_no_quarantine(
        self, client: Client, gpu: GPU
    ) -> None:
        Node.objects.update(state="quarantined")
        assert self.act(client, gpu.node, "undrain") == "quarantined"

    def test_a_name_of_any_length_fits(
        self, client: Client, gpu: GPU, olga: User
    ) -> None:
        olga.email = f"{'o' * 240}@example.org"
        olga.save()
        assert self.act(client, gpu.node, "drain") == "draining"
        assert len(gpu.node.state_reason) == 255


def test_a_user_may_not_even_look(alice: User, gpu: GPU) -> None:
    client = Client()
    client.force_login(alice)
    for row in (gpu, gpu.node):
        answer = client.post(address(type(row), "change", row.pk), OUT)
        assert answer.status_code in (302, 403)
        row.refresh_from_db()
    assert (gpu.state, gpu.node.state) == ("enabled", "up")


def test_a_time_is_still_to_come_by_the_second(client: Client, gpu: GPU) -> None:
    soon = timezone.now() + timedelta(minutes=1)
    until = {
        "state_until_0": f"{soon:%Y-%m-%d}",
        "state_until_1": f"{soon:%H:%M:%S}",
    }
    assert not send(client, gpu, **OUT, **until)
    assert gpu.state_until == soon.replace(microsecond=0)
