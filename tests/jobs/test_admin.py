import re
from typing import Any

import pytest
from django.apps import apps
from django.contrib import admin
from django.db import connection
from django.db.models import Model
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from jobs.models import (
    ApiToken,
    AuditRecord,
    Evaluation,
    Job,
    JobDependency,
    Quota,
    RoutingDecision,
    RoutingPolicy,
    Secret,
    SitePolicy,
    SuiteRun,
    User,
)
from jobs.sealing import seal
from jobs.spec import Parent
from jobs.status import Condition, Reason, Status
from tests.factories import PASSWORD, make_artifact, make_job, make_user

OURS = [*apps.get_app_config("jobs").get_models()]
CHANGED = (User, Quota, SitePolicy, RoutingPolicy)
HISTORY = [model for model in OURS if model not in CHANGED]


def page(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def address(model: type[Model], verb: str, *args: Any) -> str:
    return reverse(
        f"admin:{model._meta.label_lower.replace('.', '_')}_{verb}", args=args
    )


@pytest.fixture
def root(db: None) -> Client:
    return page(make_user("root@example.org", is_staff=True, is_superuser=True))


def make_history(owner: User) -> Job:
    job = make_job(owner, status=Status.SUCCEEDED, env={"TOKEN": "hf_secret"})
    attempt = job.attempts.get()
    make_artifact(attempt)
    routed = make_job(owner, model_name=f"m{job.pk.hex[:8]}")
    assert routed.policy
    RoutingDecision.objects.create(job=routed, number=1, cause="submitted", text="-")
    SuiteRun.objects.create(policy=routed.policy, suite="all", by="olga")
    Evaluation.objects.create(attempt=attempt)
    Secret.objects.create(owner=owner, name="HF_TOKEN", sealed="sealed text")
    make_job(owner, status=Status.FAILED, reason=Reason.CUDA_OOM)
    seal()
    make_job(owner, depends_on=[Parent(job.pk, Condition.AFTER_ANY)])
    return job


def test_every_model_is_in_the_admin() -> None:
    assert [model for model in OURS if not admin.site.is_registered(model)] == []


@pytest.mark.parametrize(
    "name",
    [
        "django_q.Schedule",
        "django_q.OrmQ",
        "django_q.Success",
        "django_q.Failure",
        "token_blacklist.OutstandingToken",
        "token_blacklist.BlacklistedToken",
    ],
)
def test_what_holds_code_or_secrets_is_not(name: str) -> None:
    assert not admin.site.is_registered(apps.get_model(name))


@pytest.mark.parametrize("path", ["/admin/", "/admin/jobs/job/"])
def test_who_is_no_operator_gets_no_admin(alice: User, path: str) -> None:
    assert page(alice).get(path).headers["Location"].startswith("/admin/login/")


def test_operators_log_in_where_everybody_does(client: Client, db: None) -> None:
    answer = client.get("/admin/", follow=True)
    assert answer.redirect_chain[-1][0].startswith("/login/?next=/admin/")
    assert "E-mail address" in answer.content.decode()


@pytest.mark.parametrize("model", HISTORY, ids=lambda model: model.__name__)
def test_history_can_be_looked_at_and_not_changed(
    olga: User, root: Client, model: type[Model]
) -> None:
    make_history(olga)
    ApiToken.objects.create(user=olga, name="laptop")
    row = model._default_manager.first()
    assert row is not None
    assert page(olga).get(address(model, "changelist")).status_code == 200
    for client in (page(olga), root):
        assert client.get(address(model, "add")).status_code == 403
        assert client.post(address(model, "delete", row.pk)).status_code == 403
        answer = client.post(address(model, "change", row.pk), {"name": "x"})
        assert answer.status_code == 403
    assert model._default_manager.filter(pk=row.pk).exists()


@pytest.mark.parametrize("model", OURS, ids=lambda model: model.__name__)
def test_a_list_takes_as_many_queries_for_few_rows_as_for_many(
    olga: User, root: Client, model: type[Model]
) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert root.get(address(model, "changelist")).status_code == 200
        return len(captured)

    def more(count: int) -> None:
        for number in range(count):
            owner = make_user()
            make_history(owner)
            Quota.objects.create(user=owner)
            ApiToken.objects.create(user=olga, name=f"token {number}")

    more(1)
    queries()
    few = queries()
    more(4)
    assert queries() == few


@pytest.mark.parametrize("query", ["?q=train", "?q=nothing", "?status__exact=failed"])
def test_jobs_can_be_searched(olga: User, query: str) -> None:
    make_history(olga)
    answer = page(olga).get(address(Job, "changelist") + query)
    assert answer.status_code == 200


def test_a_job_shows_its_story_and_no_secret(olga: User) -> None:
    job = make_history(olga)
    text = page(olga).get(address(Job, "change", job.pk)).content.decode()
    assert "exit_seen" in text
    assert "completed" in text
    assert "TOKEN" in text
    assert "hf_secret" not in text


def test_an_attempt_keeps_its_nonce_to_itself(olga: User) -> None:
    attempt = make_history(olga).attempts.get()
    path = address(type(attempt), "change", attempt.pk)
    text = page(olga).get(path).content.decode()
    assert "model.pt" in text
    # The stand-in's container id begins with it, too.
    assert text.count(attempt.nonce) == text.count(attempt.nonce * 2) * 2


def test_a_token_shows_no_digest(olga: User) -> None:
    token, _ = ApiToken.objects.create(user=olga, name="laptop")
    text = page(olga).get(address(ApiToken, "changelist")).content.decode()
    assert "laptop" in text
    assert token.digest not in text
    text = page(olga).get(address(ApiToken, "change", token.pk)).content.decode()
    assert "laptop" in text
    assert token.digest not in text
    assert token.token_key not in text


def test_an_operator_revokes_the_tokens_of_others(alice: User, olga: User) -> None:
    tokens = [
        ApiToken.objects.create(user=alice, name=name)[0] for name in ("one", "two")
    ]
    kept, _ = ApiToken.objects.create(user=alice, name="three")
    form = {"action": "revoke", "_selected_action": [str(t.pk) for t in tokens]}
    path = address(ApiToken, "changelist")
    text = page(olga).post(path, form, follow=True).content.decode()
    assert "2 API tokens revoked." in text
    assert list(ApiToken.objects.all()) == [kept]
    told = AuditRecord.objects.filter(action="token.revoked")
    assert {(record.actor, record.target) for record in told} == {
        (olga.email, alice.email)
    }
    assert {record.details["name"] for record in told} == {"one", "two"}


def test_a_password_set_by_an_operator_ends_the_tokens(
    root: Client, alice: User
) -> None:
    ApiToken.objects.create(user=alice, name="laptop")
    form = {"password1": "a new one 123", "password2": "a new one 123"}
    path = f"/admin/jobs/user/{alice.pk}/password/"
    assert root.post(path, {**form, "usable_password": "true"}).status_code == 302
    assert not ApiToken.objects.exists()


def test_hostile_text_is_shown_as_text(olga: User) -> None:
    job = make_job(olga, name="<script>alert(1)</script>")
    for path in (address(Job, "changelist"), address(Job, "change", job.pk)):
        assert "<script>alert" not in page(olga).get(path).content.decode()


# --- What waits ----------------------------------------------------------------------


def act(client: Client, action: str, *jobs: Job) -> str:
    form = {"action": action, "_selected_action": [str(job.pk) for job in jobs]}
    answer = client.post(address(Job, "changelist"), form, follow=True)
    assert answer.status_code == 200
    return answer.content.decode()


def test_an_operator_holds_and_releases_many_at_once(alice: User, olga: User) -> None:
    jobs = [make_job(alice), make_job(alice)]
    assert "2 jobs held." in act(page(olga), "hold", *jobs)
    assert Job.objects.filter(held_by=olga, wait_reason="held").count() == 2
    assert "2 jobs released." in act(page(olga), "release", *jobs)
    assert not Job.objects.filter(held_at__isnull=False).exists()
    told = AuditRecord.objects.filter(actor=olga.email).values_list("action", flat=True)
    assert sorted(told) == ["job.held", "job.held", "job.released", "job.released"]


def test_an_operator_moves_a_job_to_the_top(alice: User, olga: User) -> None:
    job = make_job(alice)
    assert "1 job moved to the top." in act(page(olga), "move_to_top", job)
    job.refresh_from_db()
    assert job.topped_at is not None
    assert AuditRecord.objects.latest("id").action == "job.moved_to_top"


@pytest.mark.parametrize("action", ["hold", "release", "move_to_top"])
def test_a_job_that_does_not_wait_is_left_and_named(
    alice: User, olga: User, action: str
) -> None:
    runs, waits = make_job(alice, status=Status.RUNNING), make_job(alice, name="waits")
    text = act(page(olga), action, runs, waits)
    assert "it is running" in text
    assert "1 job " in text
    assert not Job.objects.get(pk=runs.pk).is_held


@pytest.mark.parametrize("action", ["hold", "release", "move_to_top"])
def test_who_is_no_operator_does_none_of_it(alice: User, action: str) -> None:
    job = make_job(alice)
    form = {"action": action, "_selected_action": [str(job.pk)]}
    answer = page(alice).post(address(Job, "changelist"), form)
    assert answer.headers["Location"].startswith("/admin/login/")
    assert job.events.count() == 1


def test_a_job_shows_what_it_waits_for(alice: User, olga: User) -> None:
    parent = make_job(alice)
    child = make_job(alice, depends_on=[Parent(parent.pk)])
    text = page(olga).get(address(Job, "change", child.pk)).content.decode()
    assert str(parent.pk) in text
    found = page(olga).get(address(JobDependency, "changelist") + "?q=train")
    assert found.context["cl"].result_count == 1


# --- Quotas --------------------------------------------------------------------------

LIMITS = {"running_jobs": "4", "gpus": "2", "shares": "3"}


def test_a_quota_is_added_changed_and_deleted_and_told(root: Client, bob: User) -> None:
    form = {"user": str(bob.pk), **LIMITS}
    assert root.post(address(Quota, "add"), form).status_code == 302
    quota = Quota.objects.get(user=bob)
    assert (quota.running_jobs, quota.gpus, quota.vram_mb) == (4, 2, None)
    path = address(Quota, "change", quota.pk)
    assert root.post(path, {**form, "gpus": "8"}).status_code == 302
    delete = address(Quota, "delete", quota.pk)
    assert root.post(delete, {"post": "yes"}).status_code == 302
    assert not Quota.objects.exists()
    told = AuditRecord.objects.filter(action__startswith="quota.")
    assert [record.action for record in told] == [
        *["quota.added", "quota.changed", "quota.deleted"],
    ]
    assert {record.target for record in told} == {bob.email}
    assert {record.actor for record in told} == {"root@example.org"}
    given = {"user": bob.email, "running_jobs": 4, "gpus": 2, "shares": 3}
    assert told[0].details == {"before": {}, "after": given}
    assert told[1].details == {"before": {"gpus": 2}, "after": {"gpus": 8}}
    assert told[2].details["before"]["gpus"] == 8


def test_each_of_many_deleted_quotas_is_told(root: Client) -> None:
    quotas = [Quota.objects.create(user=make_user()) for _ in range(3)]
    form = {
        "action": "delete_selected",
        "_selected_action": [str(quota.pk) for quota in quotas],
        "post": "yes",
    }
    root.post(address(Quota, "changelist"), form)
    assert not Quota.objects.exists()
    assert AuditRecord.objects.filter(action="quota.deleted").count() == 3


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"gpus": "-1"}, "greater than or equal to 0"),
        ({"gpus": "1.5"}, "whole number"),
        ({"gpus": "lots"}, "whole number"),
        ({"shares": "0"}, "greater than or equal to 1"),
        ({"shares": ""}, "required"),
        ({"user": "999999"}, "valid choice"),
        ({"user": "x\x00"}, "errorlist"),
        ({"gpus": "9" * 30}, "less than or equal to"),
    ],
)
def test_a_quota_that_is_none_is_refused_with_the_reason(
    root: Client, values: dict[str, str], said: str
) -> None:
    answer = root.post(address(Quota, "add"), {**LIMITS, **values})
    assert answer.status_code == 200
    assert said in answer.content.decode()
    assert not Quota.objects.exists()


def test_a_quota_of_both_and_a_second_default_are_refused_in_words(
    root: Client, bob: User
) -> None:
    group = apps.get_model("auth.Group").objects.create(name="vision")
    both = {**LIMITS, "user": str(bob.pk), "group": str(group.pk)}
    text = root.post(address(Quota, "add"), both).content.decode()
    assert "Choose a user or a group, not both." in text
    assert root.post(address(Quota, "add"), LIMITS).status_code == 302
    text = root.post(address(Quota, "add"), LIMITS).content.decode()
    assert "There is a quota for every user already" in text
    assert Quota.objects.count() == 1


def test_an_operator_looks_at_quotas_and_changes_none(olga: User, bob: User) -> None:
    quota = Quota.objects.create(user=bob, gpus=1)
    client = page(olga)
    text = client.get(address(Quota, "changelist") + "?q=bob").content.decode()
    assert bob.email in text
    form = {"user": str(bob.pk), **LIMITS}
    assert client.get(address(Quota, "change", quota.pk)).status_code == 200
    assert client.post(address(Quota, "change", quota.pk), form).status_code == 403
    assert client.post(address(Quota, "add"), form).status_code == 403
    assert client.post(address(Quota, "delete", quota.pk), {}).status_code == 403
    quota.refresh_from_db()
    assert quota.gpus == 1


# --- Accounts ------------------------------------------------------------------------

NEW = {
    "email": "new@example.org",
    "name": "New",
    "usable_password": "true",
    "password1": PASSWORD,
    "password2": PASSWORD,
}


@pytest.mark.parametrize("approved", [True, False])
def test_an_account_is_added_by_address(root: Client, approved: bool) -> None:
    ticked = {"is_approved": "on"} if approved else {}
    answer = root.post(address(User, "add"), {**NEW, **ticked})
    assert answer.status_code == 302
    user = User.objects.get(email="new@example.org")
    assert user.is_active is approved
    assert user.check_password(PASSWORD)
    assert AuditRecord.objects.get(action="user.added").target == user.email


def change(client: Client, user: User, **values: str) -> int:
    form = {"email": user.email, "name": user.name, "time_zone": user.time_zone}
    answer = client.post(address(User, "change", user.pk), {**form, **values})
    return answer.status_code


def test_an_account_is_suspended_and_let_in_again(root: Client, alice: User) -> None:
    approved_at = alice.approved_at
    assert change(root, alice, is_approved="on", is_suspended="on") == 302
    suspended = User.objects.get(pk=alice.pk)
    assert (suspended.is_active, suspended.approved_at) == (False, approved_at)
    assert change(root, alice, is_approved="on") == 302
    assert User.objects.get(pk=alice.pk).is_active
    records = AuditRecord.objects.filter(action="user.changed")
    was = [{"is_suspended": False}, {"is_suspended": True}]
    assert [record.details["before"] for record in records] == was
    assert [record.details["after"] for record in records] == was[::-1]


@pytest.mark.parametrize(
    ("action", "told"), [("approve", "approved"), ("suspend", "suspended")]
)
def test_many_accounts_at_once(
    root: Client, alice: User, action: str, told: str
) -> None:
    if action == "approve":
        User.objects.filter(pk=alice.pk).update(approved_at=None)
    form = {"action": action, "_selected_action": [alice.pk]}
    root.post(address(User, "changelist"), form)
    alice.refresh_from_db()
    assert alice.is_active is (action == "approve")
    record = AuditRecord.objects.get(action=f"user.{told}")
    assert (record.actor, record.target) == ("root@example.org", alice.email)


def test_an_operator_looks_at_accounts_and_changes_none(
    olga: User, alice: User
) -> None:
    client = page(olga)
    text = client.get(address(User, "change", alice.pk)).content.decode()
    assert alice.email in text
    assert "_save" not in text
    assert change(client, alice, is_staff="on") == 403


def test_who_may_change_accounts_can_not_make_operators(
    olga: User, alice: User
) -> None:
    permission = apps.get_model("auth.Permission").objects.get(codename="change_user")
    olga.user_permissions.add(permission)
    client = page(olga)
    assert change(client, alice, is_approved="on", is_staff="on", name="A") == 302
    assert change(client, olga, is_approved="on", is_superuser="on") == 403
    assert change(client, alice, is_approved="on", uid="1", gid="1") == 302
    alice.refresh_from_db()
    olga.refresh_from_db()
    assert (alice.is_staff, alice.uid, olga.is_superuser) == (False, None, False)


def test_who_may_change_accounts_can_not_take_over_an_operators(
    olga: User, alice: User
) -> None:
    permission = apps.get_model("auth.Permission").objects.get(codename="change_user")
    olga.user_permissions.add(permission)
    boss = make_user("boss@example.org", is_staff=True, is_superuser=True)
    client = page(olga)
    passwords = {"password1": "a new one 123", "password2": "a new one 123"}
    passwords["usable_password"] = "true"

    def set_password(user: User) -> int:
        path = f"/admin/jobs/user/{user.pk}/password/"
        return client.post(path, passwords).status_code

    assert change(client, boss, email="mine@example.org") == 403
    assert set_password(boss) == 403
    assert set_password(alice) == 302
    boss.refresh_from_db()
    alice.refresh_from_db()
    assert (boss.email, boss.check_password("a new one 123")) == (
        "boss@example.org",
        False,
    )
    assert alice.check_password("a new one 123")
    told = AuditRecord.objects.filter(action="user.password_set")
    assert [(record.actor, record.target) for record in told] == [
        (olga.email, alice.email)
    ]


def test_no_account_is_deleted(root: Client, alice: User) -> None:
    assert root.post(address(User, "delete", alice.pk)).status_code == 403


def test_no_inline_script_or_style_reaches_an_operator(root: Client) -> None:
    for path in ("/admin/", address(User, "add"), address(Job, "changelist")):
        text = root.get(path).content.decode()
        assert not re.search(r"<script(?![^>]*(?:src=|application/json))", text)
        assert "<style" not in text
