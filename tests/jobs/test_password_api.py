from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from rest_framework.test import APIClient

from jobs import accounts
from jobs.models import ApiToken, AuditRecord, User
from tests.asserts import assert_problem
from tests.factories import PASSWORD, make_user
from tests.jobs.test_auth_api import bearing, log_in, me, refresh
from tests.jobs.test_tokens_api import holding, issue

pytestmark = pytest.mark.django_db

PATH = "/api/v1/auth/password"
NEW = "a better long phrase"


def change(client: Any, **changes: Any) -> Any:
    body = {"old_password": PASSWORD, "new_password": NEW, **changes}
    return client.post(PATH, body)


def test_a_new_password_opens_the_account_and_the_old_one_does_not(
    api: Any, alice: User
) -> None:
    body = change(api(alice)).json()
    assert me(body["access_token"]).status_code == 200
    assert log_in(password=NEW).status_code == 200
    assert_problem(log_in(), 401, "bad_credentials")
    told = AuditRecord.objects.get(action="user.password_changed")
    assert (told.actor, told.target, told.details) == (alice.email, alice.email, {})


def test_everything_else_of_the_account_ends(alice: User) -> None:
    other = log_in().json()
    session, token = Client(), issue(alice)
    session.force_login(alice)
    mine = APIClient()
    mine.credentials(HTTP_AUTHORIZATION=f"Bearer {log_in().json()['access_token']}")
    assert change(mine).status_code == 200
    assert_problem(me(other["access_token"]), 401, "password_changed")
    assert_problem(refresh(other["refresh_token"]), 401, "bad_token")
    assert_problem(holding(token).get("/api/v1/auth/me"), 401, "bad_token")
    assert session.get("/jobs/").headers["Location"].startswith("/login/")


def test_the_session_that_changed_it_goes_on(alice: User) -> None:
    client = Client()
    client.force_login(alice)
    body = {"old_password": PASSWORD, "new_password": NEW}
    answer = client.post(PATH, body, content_type="application/json")
    assert answer.status_code == 200
    assert client.get("/jobs/").status_code == 200


@pytest.mark.parametrize(
    ("changes", "code", "field"),
    [
        ({"old_password": "wrong"}, "wrong_password", "old_password"),
        ({"old_password": ""}, "blank", "old_password"),
        ({"old_password": 5}, "invalid", "old_password"),
        ({"new_password": "short"}, "password_too_short", "new_password"),
        ({"new_password": "password123"}, "password_too_common", "new_password"),
        ({"new_password": "alice@example.org"}, "password_too_similar", "new_password"),
        ({"new_password": "x" * 1025}, "max_length", "new_password"),
        ({"new_password": None}, "null", "new_password"),
        ({"user": 1}, "unknown_field", "user"),
    ],
)
def test_no_change(
    api: Any, alice: User, changes: dict[str, Any], code: str, field: str
) -> None:
    assert_problem(change(api(alice), **changes), 400, code, f"/{field}")
    assert log_in().status_code == 200


def test_nobody_and_no_token_changes_it(alice: User) -> None:
    assert_problem(change(APIClient()), 401, "not_authenticated")
    assert_problem(change(holding(issue(alice, "submit"))), 403, "login_needed")


def test_a_stolen_session_does_not_guess_the_password(api: Any, alice: User) -> None:
    for _ in range(10):
        change(api(alice), old_password="wrong")
    assert_problem(change(api(alice)), 429, "throttled")
    assert AuditRecord.objects.filter(action="user.password_refused").count() == 10


def test_of_two_changes_at_once_one_is_made(alice: User) -> None:
    second = User.objects.get(pk=alice.pk)
    assert accounts.change_password(alice, NEW) is True
    assert accounts.change_password(second, "yet another phrase") is False
    assert log_in(password=NEW).status_code == 200


def test_an_operators_own_change_in_the_admin_ends_the_tokens(olga: User) -> None:
    client, token = Client(), issue(olga, "operate")
    client.force_login(olga)
    form = {"old_password": PASSWORD, "new_password1": NEW, "new_password2": NEW}
    assert client.post(reverse("admin:password_change"), form).status_code == 302
    assert_problem(holding(token).get("/api/v1/auth/me"), 401, "bad_token")
    assert AuditRecord.objects.get(action="user.password_changed").actor == olga.email


# --- Suspension ----------------------------------------------------------------------


@pytest.mark.parametrize("by", ["action", "form"])
def test_a_suspension_ends_all_and_its_end_gives_nothing_back(
    alice: User, by: str
) -> None:
    root = Client()
    root.force_login(make_user(is_staff=True, is_superuser=True))
    session, token, login = Client(), issue(alice), log_in().json()
    session.force_login(alice)
    if by == "action":
        form: dict[str, Any] = {"action": "suspend", "_selected_action": [alice.pk]}
        root.post(reverse("admin:jobs_user_changelist"), form)
    else:
        form = {"email": alice.email, "time_zone": "UTC", "is_approved": "on"}
        path = reverse("admin:jobs_user_change", args=[alice.pk])
        assert root.post(path, {**form, "is_suspended": "on"}).status_code == 302
    alice.refresh_from_db()
    assert alice.suspended_at is not None
    assert me(login["access_token"]).status_code == 401
    assert session.get("/jobs/").status_code == 302
    User.objects.update(suspended_at=None)
    assert_problem(refresh(login["refresh_token"]), 401, "bad_token")
    assert not ApiToken.objects.exists()
    assert holding(token).get("/api/v1/auth/me").status_code == 401
    assert session.get("/jobs/").headers["Location"].startswith("/login/")
    assert root.get("/admin/").status_code == 200


def test_a_suspension_ends_a_session_at_once(alice: User) -> None:
    client = Client()
    client.force_login(alice)
    User.objects.filter(pk=alice.pk).update(suspended_at=timezone.now())
    assert client.get("/jobs/").headers["Location"].startswith("/login/")
    assert client.get("/api/v1/auth/me", headers=bearing("x")).status_code == 401
