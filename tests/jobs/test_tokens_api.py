import json
import logging
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.contrib.auth.models import Permission
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from rest_framework.test import APIClient

from jobs import accounts
from jobs.models import ApiToken, AuditRecord, Job, Scope, User
from tests.asserts import assert_problem
from tests.factories import IMAGE, make_job

pytestmark = pytest.mark.django_db

TOKENS = "/api/v1/auth/tokens"
ME = "/api/v1/auth/me"
JOBS = "/api/v1/jobs"


def issue(user: User, *scopes: str, days: int = 1) -> str:
    _, text = accounts.issue_token(
        user,
        name="laptop",
        scopes=[Scope(scope) for scope in scopes or ("read",)],
        expires_at=timezone.now() + timedelta(days=days),
    )
    return text


def holding(token: str) -> APIClient:
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {token}")
    return client


def make(api: Any, by: User, **changes: Any) -> Any:
    return api(by).post(TOKENS, {"name": "laptop", "scopes": ["read"], **changes})


# --- Making, listing, revoking -------------------------------------------------------


def test_a_token_is_shown_once_and_kept_as_a_digest(api: Any, alice: User) -> None:
    answer = make(api, alice, scopes=["submit", "read", "read"])
    assert (answer.status_code, answer["Cache-Control"]) == (201, "no-store")
    body = answer.json()
    text = body.pop("token")
    assert text.startswith("gpujobs_")
    assert len(text) == len("gpujobs_") + 64
    assert body.keys() == {
        *["id", "name", "scopes", "created_at", "expires_at", "last_used_at"]
    }
    assert (body["name"], body["scopes"]) == ("laptop", ["read", "submit"])
    listed = api(alice).get(TOKENS)
    assert listed.json()["results"] == [body]
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM jobs_apitoken")
        assert text not in str(cursor.fetchall())
    assert holding(text).get(ME).json()["email"] == alice.email


def test_a_token_lives_90_days_unless_asked_otherwise(api: Any, alice: User) -> None:
    with time_machine.travel(timezone.now(), tick=False):
        make(api, alice)
        life = ApiToken.objects.get().expiry - timezone.now()
    assert abs(life - timedelta(days=90)) < timedelta(seconds=1)


def test_making_and_revoking_are_told_without_the_token(api: Any, alice: User) -> None:
    body = make(api, alice).json()
    assert api(alice).delete(f"{TOKENS}/{body['id']}").status_code == 204
    records = list(AuditRecord.objects.all())
    assert [record.action for record in records] == ["token.created", "token.revoked"]
    for record in records:
        assert (record.actor, record.target) == (alice.email, alice.email)
        assert (record.details["token"], record.details["name"]) == (
            body["id"],
            "laptop",
        )
        assert body["token"] not in json.dumps(record.details)


@pytest.mark.parametrize(
    ("changes", "code", "field"),
    [
        ({"name": ""}, "blank", "name"),
        ({"name": "x" * 101}, "max_length", "name"),
        ({"name": "a\nb"}, "control_character", "name"),
        ({"name": 5}, "invalid", "name"),
        ({"scopes": []}, "min_length", "scopes"),
        ({"scopes": ["root"]}, "invalid_choice", "scopes/0"),
        ({"scopes": [{}]}, "invalid_choice", "scopes/0"),
        ({"scopes": "read"}, "not_a_list", "scopes"),
        ({"scopes": ["read"] * 4}, "max_length", "scopes"),
        ({"scopes": ["operate"]}, "not_operator", "scopes"),
        ({"expires_at": None}, "null", "expires_at"),
        ({"expires_at": 5}, "invalid", "expires_at"),
        ({"expires_at": "2100-01-01T00:00:00Z"}, "bad_expiry", "expires_at"),
        ({"expires_at": "2000-01-01T00:00:00Z"}, "bad_expiry", "expires_at"),
        ({"expires_at": "2027-01-01T00:00:00"}, "no_time_zone", "expires_at"),
        ({"digest": "0" * 128}, "unknown_field", "digest"),
        ({"user": 1}, "unknown_field", "user"),
        ({"last_used_at": None}, "unknown_field", "last_used_at"),
    ],
)
def test_no_token(
    api: Any, alice: User, changes: dict[str, Any], code: str, field: str
) -> None:
    assert_problem(make(api, alice, **changes), 400, code, f"/{field}")
    assert not ApiToken.objects.exists()


def test_a_name_with_a_nul_is_refused(api: Any, alice: User) -> None:
    assert_problem(make(api, alice, name="a\x00b"), 400, "bad_text")


def test_nobody_has_more_than_fifty(api: Any, alice: User, bob: User) -> None:
    for _ in range(accounts.MOST_TOKENS):
        issue(alice)
    body = assert_problem(make(api, alice), 409, "too_many_tokens")
    assert "Revoke one" in body["detail"]
    assert make(api, bob).status_code == 201


def test_others_tokens_do_not_exist(api: Any, alice: User, bob: User) -> None:
    issue(alice)
    token = ApiToken.objects.get()
    assert api(bob).get(TOKENS).json()["results"] == []
    theirs = api(bob).delete(f"{TOKENS}/{token.pk}")
    nothing = api(bob).delete(f"{TOKENS}/{bob.pk}")
    for answer in (theirs, nothing):
        assert_problem(answer, 404, "not_found")
    assert ApiToken.objects.exists()


def test_a_token_is_revoked_once(api: Any, alice: User) -> None:
    issue(alice)
    token = ApiToken.objects.get()
    assert api(alice).delete(f"{TOKENS}/{token.pk}").status_code == 204
    assert api(alice).delete(f"{TOKENS}/{token.pk}").status_code == 404
    assert accounts.revoke_token(token, by=alice) is False
    assert AuditRecord.objects.filter(action="token.revoked").count() == 1


# --- What opens, and what does not ---------------------------------------------------


@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
def test_there_is_one_scheme_in_one_spelling(alice: User, scheme: str) -> None:
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"{scheme} {issue(alice)}")
    assert client.get(ME).status_code == (200 if scheme == "Bearer" else 401)


def test_a_revoked_token_ends_at_once(alice: User) -> None:
    client = holding(issue(alice))
    assert client.get(ME).status_code == 200
    accounts.revoke_token(ApiToken.objects.get(), by=alice)
    assert_problem(client.get(ME), 401, "bad_token")


def test_a_token_ends_at_its_time(alice: User) -> None:
    with time_machine.travel(timezone.now(), tick=False) as clock:
        client = holding(issue(alice))
        clock.shift(timedelta(hours=23, minutes=59))
        assert client.get(ME).status_code == 200
        clock.shift(timedelta(minutes=2))
        assert_problem(client.get(ME), 401, "token_expired")


@pytest.mark.parametrize(
    "standing", [{"suspended_at": timezone.now()}, {"approved_at": None}]
)
def test_a_token_of_a_closed_account_opens_nothing(
    alice: User, standing: dict[str, Any]
) -> None:
    client = holding(issue(alice))
    User.objects.filter(pk=alice.pk).update(**standing)
    answer = client.get(ME)
    assert_problem(answer, 401, "user_inactive")
    assert answer["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t[:-1],
        lambda t: t + "0",
        lambda t: t.upper(),
        lambda t: t[:-1] + ("0" if t[-1] != "0" else "1"),
        lambda t: "gpujobs_",
        lambda t: "gpujobs_" + "\u00e9" * 64,
        lambda t: "gpujobs_" + "0" * 60_000,
        lambda t: t.removeprefix("gpujobs_"),
    ],
)
def test_what_is_nearly_a_token_is_none(alice: User, change: Any) -> None:
    answer = holding(change(issue(alice))).get(ME)
    assert answer.status_code == 401
    assert answer.json()["code"] in ("bad_token", "token_not_valid")


@pytest.mark.parametrize("name", ["token", "access_token", "api_key", "Authorization"])
def test_a_token_in_the_address_opens_nothing(alice: User, name: str) -> None:
    answer = APIClient().get(ME, {name: issue(alice)})
    assert_problem(answer, 401, "not_authenticated")


def test_a_token_goes_before_a_session(alice: User, bob: User) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(bob)
    token = issue(alice, "submit")
    answer = client.post(
        JOBS,
        json.dumps({"image": IMAGE, "gpu_count": 0}),
        content_type="application/json",
        headers={"Authorization": f"Bearer {token}"},
    )
    assert answer.json()["owner"] == alice.email


def test_a_token_opens_no_page(alice: User) -> None:
    answer = Client().get("/jobs/", headers={"Authorization": f"Bearer {issue(alice)}"})
    assert answer.headers["Location"].startswith("/login/")


def test_the_use_is_told_once_a_minute(alice: User) -> None:
    with time_machine.travel(timezone.now(), tick=False) as clock:
        client, first = holding(issue(alice)), timezone.now()
        client.get(ME)
        assert ApiToken.objects.get().last_used_at == first
        clock.shift(59)
        with CaptureQueriesContext(connection) as captured:
            client.get(ME)
        assert not [q for q in captured if q["sql"].startswith("UPDATE")]
        assert ApiToken.objects.get().last_used_at == first
        clock.shift(1)
        client.get(ME)
        assert ApiToken.objects.get().last_used_at == timezone.now()


def test_a_token_is_in_no_log(alice: User, caplog: pytest.LogCaptureFixture) -> None:
    token = issue(alice)
    with caplog.at_level(logging.DEBUG):
        for text in (token, token + "x"):
            holding(text).get(ME)
            holding(text).post(JOBS, {"nonsense": 1})
    assert token not in caplog.text


# --- Scopes --------------------------------------------------------------------------


def test_a_reader_reads_and_changes_nothing(alice: User) -> None:
    job = make_job(alice)
    client = holding(issue(alice, "read"))
    for path in (JOBS, f"{JOBS}/{job.pk}", f"{JOBS}/{job.pk}/logs", "/api/v1/gpus"):
        assert client.get(path).status_code == 200
    for answer in (
        client.post(JOBS, {"image": IMAGE}),
        client.post(f"{JOBS}/{job.pk}/cancel"),
        client.delete(f"{JOBS}/{job.pk}"),
    ):
        body = assert_problem(answer, 403, "scope_missing")
        assert "submit" in body["detail"]
    assert Job.objects.get().status == "queued"


def test_a_submitter_changes_what_is_its_owners(alice: User, bob: User) -> None:
    client = holding(issue(alice, "submit"))
    job, foreign = make_job(alice), make_job(bob)
    assert client.get(f"{JOBS}/{job.pk}").status_code == 200
    assert client.post(f"{JOBS}/{job.pk}/cancel").status_code == 200
    assert client.delete(f"{JOBS}/{job.pk}").status_code == 204
    assert client.post(f"{JOBS}/{foreign.pk}/cancel").status_code == 404


@pytest.mark.parametrize(
    ("scope", "status"), [("read", 403), ("submit", 404), ("operate", 200)]
)
def test_only_the_scope_operate_makes_an_operator(
    alice: User, olga: User, scope: str, status: int
) -> None:
    job = make_job(alice)
    client = holding(issue(olga, scope))
    assert client.get(ME).json()["is_operator"] is (scope == "operate")
    assert client.get(f"{JOBS}/{job.pk}").status_code == (
        200 if scope == "operate" else 404
    )
    assert client.post(f"{JOBS}/{job.pk}/top").status_code == status
    assert client.post(f"{JOBS}/{job.pk}/cancel").status_code == status
    olga.refresh_from_db()
    assert olga.is_staff


def test_a_token_of_a_former_operator_operates_no_more(alice: User, olga: User) -> None:
    job = make_job(alice)
    client = holding(issue(olga, "operate"))
    User.objects.filter(pk=olga.pk).update(is_staff=False)
    assert client.get(f"{JOBS}/{job.pk}").status_code == 404


def test_an_admins_reader_has_no_priority(db: None) -> None:
    root = User.objects.create_superuser("root@example.org", "x")
    spec = {"image": IMAGE, "priority": 60}
    answer = holding(issue(root, "submit")).post(f"{JOBS}?dry_run=true", spec)
    assert_problem(answer, 400, "priority_not_allowed", "/priority")
    permission = Permission.objects.get(codename="raise_priority")
    root.user_permissions.add(permission)
    answer = holding(issue(root, "submit")).post(f"{JOBS}?dry_run=true", spec)
    assert answer.status_code == 200


@pytest.mark.parametrize("scope", list(Scope))
def test_no_token_makes_lists_or_revokes_tokens(olga: User, scope: str) -> None:
    client = holding(issue(olga, scope))
    token = ApiToken.objects.get()
    for answer in (
        client.get(TOKENS),
        client.post(TOKENS, {"name": "x", "scopes": ["read"]}),
        client.delete(f"{TOKENS}/{token.pk}"),
    ):
        body = assert_problem(answer, 403, "login_needed")
        assert "log in" in body["detail"]
    assert ApiToken.objects.get() == token
