from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.db import connection
from django.utils import timezone
from rest_framework.test import APIClient

from jobs.models import AuditRecord, User
from tests.asserts import assert_problem
from tests.factories import PASSWORD

pytestmark = pytest.mark.django_db

AUTH = "/api/v1/auth"


def log_in(email: str = "alice@example.org", password: str = PASSWORD) -> Any:
    return APIClient().post(f"{AUTH}/login", {"email": email, "password": password})


def bearing(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def me(token: str) -> Any:
    return APIClient().get(f"{AUTH}/me", headers=bearing(token))


def refresh(token: str) -> Any:
    return APIClient().post(f"{AUTH}/refresh", {"refresh_token": token})


def actions() -> list[str]:
    return list(AuditRecord.objects.values_list("action", flat=True))


# --- Login ---------------------------------------------------------------------------


def test_a_login_gives_tokens_that_open_the_api(alice: User) -> None:
    body = log_in().json()
    assert body.keys() == {
        *["access_token", "token_type", "refresh_token", "expires_in"]
    }
    assert (body["token_type"], body["expires_in"]) == ("bearer", 900)
    assert me(body["access_token"]).json() == {
        "id": alice.pk,
        "email": "alice@example.org",
        "name": "Alice",
        "is_operator": False,
        "created_at": alice.created_at.isoformat().replace("+00:00", "Z"),
        "time_zone": "UTC",
    }


def test_the_address_may_be_written_in_any_case(alice: User) -> None:
    assert log_in("ALICE@Example.ORG").status_code == 200


def test_a_login_is_in_the_audit(alice: User) -> None:
    log_in()
    record = AuditRecord.objects.get()
    assert (record.action, record.actor) == ("user.logged_in", alice.email)


def test_a_failed_login_is_in_the_audit_without_the_password(alice: User) -> None:
    log_in(password="hunter2-typo")
    record = AuditRecord.objects.get()
    assert (record.action, record.target) == ("user.login_failed", alice.email)
    assert "hunter2" not in str(record.details)


def test_unknown_and_wrong_and_suspended_read_alike(alice: User, bob: User) -> None:
    User.objects.filter(pk=bob.pk).update(suspended_at=timezone.now())
    bodies = [
        assert_problem(answer, 401, "bad_credentials")
        for answer in (
            log_in("nobody@example.org"),
            log_in(password="wrong"),
            log_in("bob@example.org"),
            log_in("no address"),
        )
    ]
    assert bodies[0] == bodies[1] == bodies[2] == bodies[3]


def test_an_account_that_was_not_approved_does_not_log_in(alice: User) -> None:
    User.objects.filter(pk=alice.pk).update(approved_at=None)
    assert_problem(log_in(), 401, "bad_credentials")


@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        ({}, "required", "email"),
        ({"email": "a@b.org"}, "required", "password"),
        ({"email": "", "password": "x"}, "blank", "email"),
        ({"email": 5, "password": "x"}, "invalid", "email"),
        ({"email": ["a@b.org"], "password": "x"}, "invalid", "email"),
        ({"email": "a@b.org", "password": None}, "null", "password"),
        ({"email": "a@b.org", "password": {}}, "invalid", "password"),
        ({"email": "a" * 255, "password": "x"}, "max_length", "email"),
        ({"email": "a@b.org", "password": "x" * 1025}, "max_length", "password"),
        ({"email": "a@b.org", "password": "x", "otp": "1"}, "unknown_field", "otp"),
    ],
)
def test_no_login(body: dict[str, Any], code: str, field: str, db: None) -> None:
    answer = APIClient().post(f"{AUTH}/login", body)
    assert answer.status_code == 400
    errors = answer.json()["errors"]
    assert (f"/{field}", code) in [(e["pointer"], e["code"]) for e in errors]


def test_guessing_at_one_account_is_slowed(alice: User, bob: User) -> None:
    for _ in range(10):
        log_in(password="wrong")
    answer = log_in()
    assert_problem(answer, 429, "throttled")
    assert 0 < int(answer["Retry-After"]) <= 60
    assert log_in("bob@example.org").status_code == 200


def test_a_forged_forwarding_header_does_not_help_guessing(alice: User) -> None:
    for number in range(11):
        answer = APIClient().post(
            f"{AUTH}/login",
            {"email": alice.email, "password": "wrong"},
            headers={"X-Forwarded-For": f"10.0.0.{number}"},
        )
    assert answer.status_code == 429


# --- Access tokens -------------------------------------------------------------------


@pytest.mark.parametrize(
    "token", ["x", "", "a.b.c", "\u00e9", "gpujobs_" + "0" * 64, "a b", "." * 9000]
)
def test_a_token_that_is_not_ours_is_401(db: None, token: str) -> None:
    answer = me(token)
    assert answer.status_code == 401
    assert answer["Content-Type"] == "application/problem+json"
    assert answer["WWW-Authenticate"].startswith("Bearer")


def test_an_access_token_ends_after_15_minutes(alice: User) -> None:
    with time_machine.travel(timezone.now(), tick=False) as clock:
        token = log_in().json()["access_token"]
        clock.shift(timedelta(minutes=14, seconds=59))
        assert me(token).status_code == 200
        clock.shift(1)
        assert_problem(me(token), 401, "token_not_valid")


def test_a_new_password_ends_the_old_tokens(alice: User) -> None:
    tokens = log_in().json()
    alice.set_password("another good phrase")
    alice.save(update_fields=["password"])
    assert_problem(me(tokens["access_token"]), 401, "password_changed")
    assert_problem(refresh(tokens["refresh_token"]), 401, "bad_token")


def test_a_suspension_ends_the_tokens_at_once(alice: User) -> None:
    tokens = log_in().json()
    User.objects.filter(pk=alice.pk).update(suspended_at=timezone.now())
    assert_problem(me(tokens["access_token"]), 401, "user_inactive")
    assert_problem(refresh(tokens["refresh_token"]), 401, "bad_token")


def test_a_refresh_token_opens_nothing(alice: User) -> None:
    assert me(log_in().json()["refresh_token"]).status_code == 401


def test_a_stale_token_does_not_stand_in_the_way_of_a_login(alice: User) -> None:
    answer = APIClient().post(
        f"{AUTH}/login",
        {"email": alice.email, "password": PASSWORD},
        headers=bearing("stale"),
    )
    assert answer.status_code == 200


def test_nobody_is_me_without_a_token(db: None) -> None:
    assert_problem(APIClient().get(f"{AUTH}/me"), 401, "not_authenticated")


def test_an_operator_is_told_so(api: Any, olga: User) -> None:
    assert api(olga).get(f"{AUTH}/me/").json()["is_operator"] is True


# --- Refresh and logout --------------------------------------------------------------


def test_a_refresh_gives_new_tokens_and_spends_the_old_one(alice: User) -> None:
    old = log_in().json()["refresh_token"]
    body = refresh(old).json()
    assert me(body["access_token"]).status_code == 200
    assert_problem(refresh(old), 401, "bad_token")
    assert refresh(body["refresh_token"]).status_code == 200


def test_two_refreshes_at_once_give_one_pair(alice: User) -> None:
    """The other request spends the token after we have found it unspent."""
    old = log_in().json()["refresh_token"]
    answers: list[Any] = []

    def be_second(execute: Any, sql: str, *rest: Any) -> Any:
        if sql.startswith("SELECT") and "jobs_user" in sql and not answers:
            answers.append(None)
            answers[0] = refresh(old)
        return execute(sql, *rest)

    with connection.execute_wrapper(be_second):
        assert_problem(refresh(old), 401, "bad_token")
    assert answers[0].status_code == 200


@pytest.mark.parametrize("path", ["refresh", "logout"])
@pytest.mark.parametrize("token", ["x", "a.b.c", "\u00e9", "x" * 4096])
def test_no_refresh_token(db: None, path: str, token: str) -> None:
    answer = APIClient().post(f"{AUTH}/{path}", {"refresh_token": token})
    assert_problem(answer, 401, "bad_token")


def test_an_access_token_refreshes_nothing(alice: User) -> None:
    assert_problem(refresh(log_in().json()["access_token"]), 401, "bad_token")


def test_a_refresh_token_of_a_deleted_account_is_refused(alice: User) -> None:
    token = log_in().json()["refresh_token"]
    alice.delete()
    assert_problem(refresh(token), 401, "bad_token")


def test_a_logout_ends_the_refresh_token(alice: User) -> None:
    token = log_in().json()["refresh_token"]
    answer = APIClient().post(f"{AUTH}/logout", {"refresh_token": token})
    assert (answer.status_code, answer.content) == (204, b"")
    assert_problem(refresh(token), 401, "bad_token")
    assert actions() == ["user.logged_in", "user.logged_out"]


def test_a_logout_is_no_link(alice: User, api: Any) -> None:
    assert_problem(api(alice).get(f"{AUTH}/logout"), 405, "method_not_allowed")


# --- Registration --------------------------------------------------------------------


@pytest.fixture
def _open_registration(settings: Any) -> None:
    settings.REGISTRATION = "open"


def register(**changes: Any) -> Any:
    body = {"email": "new@example.org", "password": "a good long phrase", **changes}
    return APIClient().post(f"{AUTH}/register", body)


def test_registration_is_closed_unless_opened(db: None) -> None:
    body = assert_problem(register(), 403, "registration_closed")
    assert "Ask an operator" in body["detail"]
    assert not User.objects.exists()


@pytest.mark.usefixtures("_open_registration")
def test_an_account_can_log_in_at_once(db: None) -> None:
    answer = register(name="Newt")
    assert answer.status_code == 201
    assert (answer.json()["email"], answer.json()["name"]) == (
        "new@example.org",
        "Newt",
    )
    assert "password" not in answer.json()
    assert log_in("new@example.org", "a good long phrase").status_code == 200
    assert actions() == ["user.registered", "user.logged_in"]


@pytest.mark.usefixtures("_open_registration")
@pytest.mark.parametrize("email", ["alice@example.org", "Alice@EXAMPLE.org"])
def test_an_address_has_one_account_in_any_case(alice: User, email: str) -> None:
    assert_problem(register(email=email), 400, "email_taken", "/email")


@pytest.mark.usefixtures("_open_registration")
def test_two_registrations_at_once_make_one_account(db: None) -> None:
    """The other request commits after we have found the address free."""
    answers: list[Any] = []

    def be_second(execute: Any, sql: str, *rest: Any) -> Any:
        if sql.startswith("SAVEPOINT") and not answers:
            answers.append(None)
            answers[0] = register(email="New@example.org")
        return execute(sql, *rest)

    with connection.execute_wrapper(be_second):
        assert_problem(register(), 400, "email_taken", "/email")
    assert answers[0].status_code == 201
    assert User.objects.count() == 1


@pytest.mark.usefixtures("_open_registration")
@pytest.mark.parametrize(
    ("changes", "code", "field"),
    [
        ({"password": "short"}, "password_too_short", "password"),
        ({"password": "password123"}, "password_too_common", "password"),
        ({"password": "9182736455"}, "password_entirely_numeric", "password"),
        ({"password": "new@example.org"}, "password_too_similar", "password"),
        ({"password": 12345678901}, "invalid", "password"),
        ({"password": "x" * 1025}, "max_length", "password"),
        ({"email": "no address"}, "invalid", "email"),
        ({"email": ""}, "blank", "email"),
        ({"email": "a@" + "b" * 250 + ".org"}, "max_length", "email"),
        ({"name": "x" * 151}, "max_length", "name"),
        ({"is_staff": True}, "unknown_field", "is_staff"),
        ({"is_superuser": True}, "unknown_field", "is_superuser"),
        ({"approved_at": None}, "unknown_field", "approved_at"),
        ({"uid": 1}, "unknown_field", "uid"),
        ({"groups": [1]}, "unknown_field", "groups"),
        ({"id": 1}, "unknown_field", "id"),
    ],
)
def test_no_registration(
    db: None, changes: dict[str, Any], code: str, field: str
) -> None:
    answer = register(**changes)
    assert answer.status_code == 400
    errors = answer.json()["errors"]
    assert (f"/{field}", code) in [(e["pointer"], e["code"]) for e in errors]
    assert not User.objects.exists()


@pytest.mark.usefixtures("_open_registration")
def test_mass_registration_is_slowed(db: None) -> None:
    for number in range(20):
        register(email=f"n{number}@example.org", password="short")
    assert_problem(register(), 429, "throttled")


def test_an_account_that_waits_for_approval_does_not_log_in(
    db: None, settings: Any
) -> None:
    settings.REGISTRATION = "approval"
    answer = register()
    assert (answer.status_code, answer.json()["needs_approval"]) == (201, True)
    assert_problem(
        log_in("new@example.org", "a good long phrase"), 401, "bad_credentials"
    )
    User.objects.update(approved_at=timezone.now())
    assert log_in("new@example.org", "a good long phrase").status_code == 200
    assert actions() == ["user.registered", "user.login_failed", "user.logged_in"]


@pytest.mark.usefixtures("_open_registration")
@pytest.mark.parametrize(
    ("email", "is_taken"),
    [
        ("a@lab.org", True),
        ("a@LAB.org", True),
        ("a@sub.lab.org", False),
        ("a@notlab.org", False),
        ("a@lab.org.evil.com", False),
        ('"x@lab.org"@evil.com', False),
    ],
)
def test_only_listed_domains_register(
    db: None, settings: Any, email: str, is_taken: bool
) -> None:
    settings.MAIL_DOMAINS = ["Lab.org"]
    answer = register(email=email)
    if is_taken:
        assert answer.status_code == 201
    else:
        assert_problem(answer, 400, "domain_not_taken", "/email")
