"""The doors of the pages: logins, logouts, forgery, and where they lead."""

from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.test import Client
from django.urls import reverse

from jobs.models import AuditRecord, Job, User
from tests.factories import PASSWORD, make_job

pytestmark = pytest.mark.django_db

LOGINS = ["/login/", "/api/session/login/"]


def page(user: User, **options: Any) -> Client:
    client = Client(**options)
    client.force_login(user)
    return client


# --- Logins and logouts --------------------------------------------------------------


@pytest.mark.parametrize("path", LOGINS)
def test_every_login_page_counts_and_tells(alice: User, path: str) -> None:
    for _ in range(10):
        Client().post(path, {"username": alice.email, "password": "wrong"})
    assert AuditRecord.objects.filter(action="user.login_failed").count() == 10
    answer = Client().post(path, {"username": alice.email, "password": PASSWORD})
    assert answer.status_code == 200
    assert "Too many tries" in answer.content.decode()


def test_the_admin_has_no_login_of_its_own(alice: User, olga: User) -> None:
    form = {"username": olga.email, "password": PASSWORD}
    path = reverse("admin:login")
    answer = page(alice).post(path, form)
    assert answer.status_code == 403
    assert "_auth_user_id" in page(alice).session
    assert Client().post(path, form)["Location"].startswith("/login/?next=")
    assert page(olga).get(path)["Location"] == "/admin/"
    assert not AuditRecord.objects.exists()


@pytest.mark.parametrize("path", ["/logout/", "/api/session/logout/", "/admin/logout/"])
def test_a_logout_is_no_link(olga: User, path: str) -> None:
    client = page(olga)
    assert client.get(path).status_code == 405
    assert client.get("/jobs/").status_code == 200
    client.post(path)
    assert client.get("/jobs/").status_code == 302


# --- Forged requests -----------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        *["/submit/", "/logout/", "/jobs/{}/cancel/", "/jobs/{}/delete/"],
        *["/jobs/{}/hold/", "/jobs/{}/release/", "/jobs/{}/top/"],
        *["/admin/jobs/job/", "/admin/jobs/user/", "/admin/jobs/apitoken/"],
        *["/admin/password_change/", "/admin/logout/"],
    ],
)
def test_no_page_takes_what_another_site_sent(olga: User, path: str) -> None:
    job = make_job(olga)
    before = Job.objects.values().get()
    client = page(olga, enforce_csrf_checks=True)
    assert client.post(path.format(job.pk), {"action": "hold"}).status_code == 403
    assert Job.objects.values().get() == before
    assert client.get("/jobs/").status_code == 200


@pytest.mark.parametrize("path", LOGINS)
def test_nobody_is_logged_in_by_another_site(alice: User, path: str) -> None:
    client = Client(enforce_csrf_checks=True)
    form = {"username": alice.email, "password": PASSWORD}
    assert client.post(path, form).status_code == 403
    assert client.get("/jobs/").status_code == 302


def test_the_api_takes_a_session_only_with_its_proof(alice: User) -> None:
    client, job = page(alice, enforce_csrf_checks=True), make_job(alice)
    answer = client.post(f"/api/v1/jobs/{job.pk}/cancel")
    assert (answer.status_code, answer.json()["code"]) == (403, "permission_denied")
    job.refresh_from_db()
    assert job.status == "queued"


def test_no_other_site_reads_the_api(api: Any, alice: User) -> None:
    answer = api(alice).get("/api/v1/jobs", headers={"Origin": "https://evil.example"})
    assert "Access-Control-Allow-Origin" not in answer


# --- Where a login leads -------------------------------------------------------------


@pytest.mark.parametrize("path", LOGINS)
@pytest.mark.parametrize(
    "target",
    [
        *["//evil.example", "https://evil.example/", "https:evil.example"],
        *["///evil.example", "/\\evil.example", "\\\\evil.example", "\t//evil.example"],
        *[
            "/\t/evil.example",
            "/\n/evil.example",
            "javascript:alert(1)",
            "data:text/html,x",
        ],
        *[
            "http:///evil.example",
            "//evil.example@testserver",
            "\x00//evil.example",
            "",
        ],
    ],
)
def test_a_login_leads_to_no_other_site(alice: User, path: str, target: str) -> None:
    form = {"username": alice.email, "password": PASSWORD, "next": target}
    answer = Client().post(path, form)
    assert (answer.status_code, answer["Location"]) == (302, "/jobs/")
    led = page(alice).get(path, {"next": target})
    assert led["Location"] == "/jobs/"


def test_a_login_leads_back_to_where_one_was(alice: User) -> None:
    form = {"username": alice.email, "password": PASSWORD, "next": "/submit/"}
    assert Client().post("/login/", form)["Location"] == "/submit/"


# --- What no operator makes of the admin ---------------------------------------------


@pytest.fixture
def careful(olga: User) -> Client:
    """An operator who was given each permission there is, but is no superuser."""
    everything = Group.objects.create(name="all")
    everything.permissions.set(everything.permissions.model.objects.all())
    olga.groups.add(everything)
    return page(olga)


def change(client: Client, user: User, **values: str) -> int:
    form = {"email": user.email, "time_zone": "UTC", "is_approved": "on", **values}
    path = reverse("admin:jobs_user_change", args=[user.pk])
    return client.post(path, form).status_code


@pytest.mark.parametrize(
    "box", ["is_superuser", "is_staff", "groups", "user_permissions"]
)
def test_no_operator_gives_rights(
    careful: Client, alice: User, olga: User, box: str
) -> None:
    value = str(olga.groups.get().pk) if box == "groups" else "1"
    assert change(careful, alice, **{box: value}) == 302
    assert change(careful, olga, **{box: value}) == 403
    for user, is_staff in ((alice, False), (olga, True)):
        user.refresh_from_db()
        assert (user.is_superuser, user.is_staff) == (False, is_staff)
        assert not user.user_permissions.exists()
    assert not alice.groups.exists()


def test_no_operator_adds_an_account_with_rights(careful: Client) -> None:
    form = {"email": "new@example.org", "usable_password": "true", "is_approved": "on"}
    rights = {"is_staff": "on", "is_superuser": "on", "user_permissions": "1"}
    passwords = {"password1": PASSWORD, "password2": PASSWORD}
    path = reverse("admin:jobs_user_add")
    assert careful.post(path, {**form, **passwords, **rights}).status_code == 302
    user = User.objects.get(email="new@example.org")
    assert (user.is_staff, user.is_superuser) == (False, False)
    assert not user.user_permissions.exists()


def test_no_operator_gives_a_group_rights(careful: Client, olga: User) -> None:
    """Members of a group have its permissions, and an operator may be one of them."""
    group = Group.objects.create(name="vision")
    path = reverse("admin:auth_group_change", args=[group.pk])
    careful.post(path, {"name": "vision", "permissions": ["1", "2"]})
    assert not group.permissions.exists()


def test_no_operator_opens_a_superusers_account(careful: Client, db: None) -> None:
    boss = User.objects.create_superuser("boss@example.org", PASSWORD)
    path = reverse("admin:auth_user_password_change", args=[boss.pk])
    form = {"password1": "a new one 123", "password2": "a new one 123"}
    assert careful.post(path, form).status_code == 403
    assert change(careful, boss, email="mine@example.org") == 403
    boss.refresh_from_db()
    assert (boss.email, boss.check_password(PASSWORD)) == ("boss@example.org", True)


def test_nobody_edits_a_job_or_the_audit(careful: Client, alice: User) -> None:
    job = make_job(alice)
    record = AuditRecord.objects.latest("id")
    root = page(User.objects.create_superuser("boss@example.org", PASSWORD))
    for client in (careful, root):
        for model, pk in (("job", job.pk), ("auditrecord", record.pk)):
            form = {"image": "evil", "actor": "nobody", "volumes": "[]"}
            for verb in ("change", "delete"):
                path = reverse(f"admin:jobs_{model}_{verb}", args=[pk])
                assert client.post(path, {**form, "post": "yes"}).status_code == 403
            many = {
                "action": "delete_selected",
                "_selected_action": [pk],
                "post": "yes",
            }
            client.post(reverse(f"admin:jobs_{model}_changelist"), many)
    job.refresh_from_db()
    assert job.image != "evil"
    assert AuditRecord.objects.filter(pk=record.pk, actor=record.actor).exists()


@pytest.mark.parametrize("model", ["logentry", "session", "permission", "contenttype"])
def test_what_the_admin_wrote_down_has_no_page(careful: Client, model: str) -> None:
    for app in ("admin", "auth", "sessions", "contenttypes"):
        assert careful.get(f"/admin/{app}/{model}/").status_code == 404


def test_what_is_done_to_a_group_is_told(db: None) -> None:
    boss = User.objects.create_superuser("boss@example.org", PASSWORD)
    root = page(boss)
    root.post(reverse("admin:auth_group_add"), {"name": "vision"})
    group = Group.objects.get()
    path = reverse("admin:auth_group_change", args=[group.pk])
    root.post(path, {"name": "seeing", "permissions": ["1"]})
    assert group.permissions.count() == 1
    many = {"action": "delete_selected", "_selected_action": [group.pk], "post": "yes"}
    root.post(reverse("admin:auth_group_changelist"), many)
    assert not Group.objects.exists()
    told = AuditRecord.objects.values_list("action", "target", "actor")
    assert list(told) == [
        ("group.added", "vision", boss.email),
        ("group.changed", "seeing", boss.email),
        ("group.deleted", "seeing", boss.email),
    ]
