"""What a reverse proxy may say, and who else says the same in vain."""

from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone
from gunicorn.config import Config  # type: ignore[import-untyped]

from gpujobs.proxies import client_address, log_in_by_proxy, see_through_proxies
from jobs.models import AuditRecord, User
from tests.factories import PASSWORD, make_user

PROXY, OTHER = "10.1.2.3", "192.0.2.7"


@pytest.fixture(autouse=True)
def _behind_a_proxy(settings: Any) -> None:
    settings.TRUSTED_PROXIES = ["10.1.0.0/16", "fd00::1"]
    settings.PROXY_HEADER = "X-Forwarded-Email"


def ask(
    client: Client, email: str | None, peer: str = PROXY, path: str = "/jobs/"
) -> Any:
    headers = {} if email is None else {"X-Forwarded-Email": email}
    return client.get(path, headers=headers, REMOTE_ADDR=peer)


def who(client: Client) -> str | None:
    return client.session.get("_auth_user_id")


# --- From where ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [
        (OTHER, "203.0.113.9", OTHER),
        (PROXY, "", PROXY),
        (PROXY, "203.0.113.9", "203.0.113.9"),
        (PROXY, "1.1.1.1, 203.0.113.9", "203.0.113.9"),
        (PROXY, "1.1.1.1, 203.0.113.9, 10.1.9.9", "203.0.113.9"),
        (PROXY, "203.0.113.9, nonsense", PROXY),
        (PROXY, "203.0.113.9,", PROXY),
        (PROXY, "2001:db8::1", "2001:db8::1"),
        (PROXY, "10.1.0.1, 10.1.0.2", "10.1.0.1"),
        (PROXY, "203.0.113.9\x00", PROXY),
        ("fd00::1", "203.0.113.9", "203.0.113.9"),
        ("::ffff:10.1.2.3", "203.0.113.9", "203.0.113.9"),
        ("", "203.0.113.9", ""),
        ("nonsense", "203.0.113.9", "nonsense"),
    ],
)
def test_the_nearest_hop_that_is_no_proxy_counts(
    peer: str, forwarded: str, address: str
) -> None:
    assert client_address(peer, forwarded) == address


def test_a_socket_is_trusted_if_it_is_listed(settings: Any) -> None:
    settings.TRUSTED_PROXIES = ["unix"]
    assert client_address("", "203.0.113.9") == "203.0.113.9"


def test_the_audit_and_the_throttles_see_the_client(alice: User) -> None:
    body = {"email": alice.email, "password": "wrong"}

    def fail(forwarded: str) -> int:
        answer = Client().post(
            "/api/v1/auth/login",
            body,
            content_type="application/json",
            headers={"X-Forwarded-For": forwarded},
            REMOTE_ADDR=PROXY,
        )
        return answer.status_code

    # What is left of the client is the client's own invention.
    statuses = [fail(f"8.8.8.{number}, 203.0.113.9") for number in range(11)]
    assert statuses == [401] * 10 + [429]
    assert fail("203.0.113.10") == 401
    addresses = AuditRecord.objects.values_list("address", flat=True)
    assert set(addresses) == {"203.0.113.9", "203.0.113.10"}


# --- Who -----------------------------------------------------------------------------


@pytest.mark.parametrize("spelling", ["alice@example.org", " ALICE@Example.org "])
def test_a_trusted_proxy_logs_in(alice: User, spelling: str) -> None:
    client = Client()
    assert ask(client, spelling).status_code == 200
    assert who(client) == str(alice.pk)
    key = client.session.session_key
    assert ask(client, spelling).status_code == 200
    assert client.session.session_key == key


def test_nobody_else_does(alice: User) -> None:
    client = Client()
    assert ask(client, alice.email, peer=OTHER).status_code == 302
    assert ask(client, alice.email, peer="").status_code == 302
    assert who(client) is None
    answer = client.get(
        "/jobs/",
        headers={"X-Forwarded-Email": alice.email, "X-Forwarded-For": PROXY},
        REMOTE_ADDR=OTHER,
    )
    assert answer.status_code == 302


def test_it_is_off_unless_a_header_is_named(alice: User, settings: Any) -> None:
    settings.PROXY_HEADER = ""
    assert ask(Client(), alice.email).status_code == 302


@pytest.mark.parametrize(
    "said",
    [
        *["", "alice", "alice@example.org,bob@example.org", "alice@example.org\x00"],
        *["alice@example.org, alice@example.org", "alice@example.org\x7f", "a" * 300],
        *["a" * 250 + "@example.org", "\u00e1lice@example.org", "'; DROP TABLE--"],
    ],
)
def test_what_is_no_address_logs_nobody_in(
    alice: User, settings: Any, said: str
) -> None:
    settings.REGISTRATION = "open"
    client = Client()
    assert ask(client, said).status_code == 302
    assert who(client) is None
    assert User.objects.count() == 1


def test_the_servers_drop_the_spelling_with_underscores() -> None:
    """X_Forwarded_Email would be read as X-Forwarded-Email, past the proxy's check."""
    assert Config().header_map == "drop"


@pytest.mark.parametrize("registration", ["closed", "approval", "open"])
def test_an_unknown_address_is_registered_as_anybody(
    db: None, settings: Any, registration: str
) -> None:
    settings.REGISTRATION = registration
    client = Client()
    status = ask(client, "new@example.org").status_code
    assert status == (200 if registration == "open" else 302)
    user = User.objects.filter(email="new@example.org").first()
    assert (user is None) is (registration == "closed")
    if user:
        assert user.is_active is (registration == "open")
        assert (user.is_staff, user.is_superuser) == (False, False)
        assert not user.has_usable_password()
        told = ["user.registered", *["user.logged_in"] * (registration == "open")]
        actions = AuditRecord.objects.values_list("action", flat=True)
        assert list(actions) == told
        ask(client, "NEW@example.org")
        assert User.objects.count() == 1


def test_only_listed_domains_are_registered(db: None, settings: Any) -> None:
    settings.REGISTRATION, settings.MAIL_DOMAINS = "open", ["lab.org"]
    assert ask(Client(), "new@example.org").status_code == 302
    assert ask(Client(), "new@lab.org").status_code == 200


def test_a_suspended_person_is_let_in_by_no_proxy(alice: User) -> None:
    client = Client()
    ask(client, alice.email)
    User.objects.update(suspended_at=timezone.now())
    assert ask(client, alice.email).status_code == 302
    assert who(client) is None


def test_the_session_follows_the_header(alice: User, bob: User) -> None:
    client = Client()
    ask(client, alice.email)
    ask(client, bob.email)
    assert who(client) == str(bob.pk)
    assert ask(client, None).status_code == 302
    assert who(client) is None


def test_a_session_of_a_password_needs_no_header(alice: User) -> None:
    client = Client()
    client.force_login(alice)
    assert ask(client, None).status_code == 200
    assert ask(client, None, peer=OTHER).status_code == 200


def test_an_operator_comes_by_the_proxy_too(db: None) -> None:
    olga = make_user("olga@example.org", is_staff=True, password=PASSWORD)
    assert ask(Client(), olga.email, path="/admin/").status_code == 200


def test_a_network_that_is_none_is_an_error(settings: Any) -> None:
    settings.TRUSTED_PROXIES = ["10.1.0.0/99"]
    with pytest.raises(ImproperlyConfigured, match="GPUJOBS_TRUSTED_PROXIES"):
        see_through_proxies(lambda request: HttpResponse())


def test_a_header_without_a_trusted_proxy_is_an_error(settings: Any) -> None:
    settings.TRUSTED_PROXIES = []
    with pytest.raises(ImproperlyConfigured, match="set both"):
        log_in_by_proxy(lambda request: HttpResponse())
