"""Policies in the admin: changed while nobody used them, frozen after, live by the gate."""

from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from jobs import policies
from jobs.models import AuditRecord, RoutingPolicy
from jobs.routing import parse
from tests.factories import document, make_user
from tests.test_every_write_is_told import form_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def root() -> Client:
    client = Client()
    client.force_login(make_user("root@example.org", is_staff=True, is_superuser=True))
    return client


@pytest.fixture
def row() -> RoutingPolicy:
    return policies.store(parse(document()), by="olga")[0]


def address(row: RoutingPolicy) -> str:
    return reverse("admin:jobs_routingpolicy_change", args=[row.pk])


def use(row: RoutingPolicy) -> None:
    RoutingPolicy.objects.filter(pk=row.pk).update(used_at=timezone.now())


def act(root: Client, action: str, row: RoutingPolicy) -> str:
    sent = {"action": action, "_selected_action": row.pk}
    answer = root.post(
        reverse("admin:jobs_routingpolicy_changelist"), sent, follow=True
    )
    return str(answer.content.decode())


def test_a_tier_is_changed_with_its_policy_and_the_digest_with_both(
    root: Client, row: RoutingPolicy
) -> None:
    sent = {**form_of(root, address(row)), "tiers-0-timeout_s": 60}
    assert root.post(address(row), sent).status_code == 302
    changed = RoutingPolicy.objects.get()
    assert changed.read().tiers[0].timeout_s == 60
    assert changed.digest != row.digest
    record = AuditRecord.objects.get(action="routingpolicy.tiers_changed")
    assert (record.actor, record.target) == ("root@example.org", str(row))
    assert "'timeout_s': 3600" in record.details["before"]["tiers"][1]
    assert "'timeout_s': 60" in record.details["after"]["tiers"][1]


WRONG = [
    ("rules that are none", {"rules": '[{"name": "x"}]'}, "weight"),
    ("rules that are no JSON", {"rules": "[{"}, "Enter a valid JSON"),
    ("a tier out of order", {"tiers-0-min_vram_mb": 90_000}, "smallest"),
    ("an image that is none", {"tiers-0-image": "NO IMAGE"}, "Write the image as"),
    ("a variable of ours", {"tiers-0-env": '{"NVIDIA_X": "1"}'}, "is set by GPU Jobs"),
    ("no tier at all", {"tiers-0-DELETE": "on", "tiers-1-DELETE": "on"}, "tier"),
    ("a name with a space", {"name": "a b"}, "small letters"),
]


@pytest.mark.parametrize(
    ("fields", "told"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG]
)
def test_what_is_no_policy_is_told_and_not_saved(
    root: Client, row: RoutingPolicy, fields: dict[str, Any], told: str
) -> None:
    answer = root.post(address(row), {**form_of(root, address(row)), **fields})
    assert answer.status_code == 200
    assert told in answer.content.decode()
    assert RoutingPolicy.objects.get().read() == row.read()


class TestFrozen:
    @pytest.mark.parametrize("fields", [{"description": "x"}, {"tiers-1-cpus": 3}])
    def test_it_says_so_and_how_to_go_on(
        self, root: Client, row: RoutingPolicy, fields: dict[str, Any]
    ) -> None:
        use(row)
        answer = root.post(address(row), {**form_of(root, address(row)), **fields})
        assert answer.status_code == 200
        assert "A job was routed by this version." in answer.content.decode()

    def test_saved_as_new_it_is_the_next_version_with_all_its_tiers(
        self, root: Client, row: RoutingPolicy
    ) -> None:
        use(row)
        sent = {**form_of(root, address(row)), "_saveasnew": "1", "description": "x"}
        assert root.post(address(row), sent).status_code == 302
        first, second = RoutingPolicy.objects.order_by("version")
        assert (second.version, second.description, second.is_active) == (2, "x", False)
        assert [t.name for t in second.read().tiers] == ["small", "large"]
        assert (second.used_at, first.tiers.count()) == (None, 2)

    def test_it_can_not_be_deleted(self, root: Client, row: RoutingPolicy) -> None:
        use(row)
        path = reverse("admin:jobs_routingpolicy_delete", args=[row.pk])
        assert root.post(path, {"post": "yes"}).status_code == 403


class TestGoingLive:
    def test_by_an_action(self, root: Client, row: RoutingPolicy) -> None:
        assert "entiment version 1 is live." in act(root, "activate", row)
        act(root, "retire", row)
        assert not RoutingPolicy.objects.get().is_active

    def test_the_gate_says_why_not(self, root: Client) -> None:
        gate = {"thresholds": {"accuracy": 0.9}}
        row, _ = policies.store(parse(document(release=gate)), by="olga")
        text = act(root, "activate", row)
        assert "is not live: No suite was run through it" in text
        assert not RoutingPolicy.objects.get().is_active

    def test_an_operator_may_read_and_not_write(
        self, olga: Any, row: RoutingPolicy
    ) -> None:
        client = Client()
        client.force_login(olga)
        assert client.get(address(row)).status_code == 200
        assert client.post(address(row), {"name": "x"}).status_code == 403
        act(client, "activate", row)
        assert not RoutingPolicy.objects.get().is_active

    def test_one_who_has_the_right_may_write(
        self, olga: Any, row: RoutingPolicy
    ) -> None:
        names = ["change_routingpolicy", "change_modeltier"]
        olga.user_permissions.set(Permission.objects.filter(codename__in=names))
        client = Client()
        client.force_login(olga)
        sent = {**form_of(client, address(row)), "tiers-0-timeout_s": 60}
        assert client.post(address(row), sent).status_code == 302
        act(client, "activate", row)
        assert RoutingPolicy.objects.get().is_active
