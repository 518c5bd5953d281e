"""The account's page: tokens are shown once, secrets never, and both are one's own."""

import html
import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from jobs import accounts, secrets, vault
from jobs.models import ApiToken, AuditRecord, Scope, Secret, User

VALUE = "hf_a-long-enough-value"
TOKEN = {"token-name": "laptop", "token-scopes": ["read", "submit"], "token-days": "30"}
SECRET = {"secret-name": "HF_TOKEN", "secret-value": VALUE}


@pytest.fixture
def page(client: Client, alice: User) -> Client:
    client.force_login(alice)
    return client


def text(answer: Any) -> str:
    return html.unescape(answer.content.decode())


class TestTokens:
    def test_one_is_made_and_shown_this_once(self, page: Client, api: Any) -> None:
        answer = page.post("/account/tokens/", TOKEN)
        assert answer.status_code == 201
        assert "no-store" in answer.headers["Cache-Control"]
        found = re.search(r'<code id="token">(gpujobs_\w+)</code>', text(answer))
        assert found is not None
        token = ApiToken.objects.get()
        assert token.scopes == ["read", "submit"]
        left = token.expiry - timezone.now()
        assert timedelta(days=29, hours=23) < left <= timedelta(days=30)
        asked = api()
        asked.credentials(HTTP_AUTHORIZATION=f"Bearer {found[1]}")
        assert asked.get("/api/v1/auth/me").status_code == 200
        assert found[1] not in text(page.get("/account/"))
        assert "laptop" in text(page.get("/account/"))

    @pytest.mark.parametrize(
        ("fields", "told"),
        [
            ({"token-name": ""}, "This field is required."),
            ({"token-name": "a\nb"}, "line"),
            ({"token-name": "x" * 101}, "at most 100"),
            ({"token-scopes": []}, "This field is required."),
            ({"token-scopes": ["root"]}, "Select a valid choice"),
            ({"token-scopes": ["operate"]}, "Select a valid choice"),
            ({"token-days": "4000"}, "Select a valid choice"),
        ],
    )
    def test_a_bad_one_is_told_and_not_made(
        self, page: Client, fields: dict[str, Any], told: str
    ) -> None:
        answer = page.post("/account/tokens/", {**TOKEN, **fields})
        assert answer.status_code == 200
        assert told in text(answer)
        assert not ApiToken.objects.exists()

    def test_an_operators_may_operate(self, client: Client, olga: User) -> None:
        client.force_login(olga)
        sent = {**TOKEN, "token-scopes": ["operate"]}
        assert client.post("/account/tokens/", sent).status_code == 201

    def test_it_is_revoked_by_its_owner_alone(
        self, page: Client, client: Client, bob: User, alice: User
    ) -> None:
        until = timezone.now() + timedelta(days=1)
        token, _ = accounts.issue_token(
            bob, name="of-bob", scopes=[Scope.READ], expires_at=until
        )
        assert page.post(f"/account/tokens/{token.pk}/revoke/").status_code == 404
        assert "of-bob" not in text(page.get("/account/"))
        client.force_login(bob)
        assert client.post(f"/account/tokens/{token.pk}/revoke/").status_code == 302
        assert not ApiToken.objects.exists()

    def test_there_is_an_end_to_them(
        self, page: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(accounts, "MOST_TOKENS", 1)
        page.post("/account/tokens/", TOKEN)
        answer = page.post("/account/tokens/", TOKEN)
        assert answer.status_code == 409
        assert "nobody may have more" in text(answer)


class TestSecrets:
    def test_one_is_kept_and_never_shown(
        self, page: Client, alice: User, settings: Any
    ) -> None:
        answer = page.post("/account/secrets/", SECRET, follow=True)
        assert "HF_TOKEN is kept." in text(answer)
        row = Secret.objects.get()
        assert row.owner == alice
        assert secrets.unseal(row.sealed, settings.SECRET_KEY) == VALUE
        assert VALUE not in text(page.get("/account/"))
        record = AuditRecord.objects.get(action="secret.written")
        assert (record.target, record.actor) == ("HF_TOKEN", alice.email)
        assert VALUE not in str(record.details)

    @pytest.mark.parametrize(
        ("fields", "told"),
        [
            ({"secret-name": ""}, "This field is required."),
            ({"secret-name": "a b"}, "no name of a secret"),
            ({"secret-value": "short"}, "could not be masked"),
            ({"secret-value": "x" * 8193}, "8,193 bytes"),
            ({"secret-value": "a long one\0 with a NUL"}, "Null characters"),
        ],
    )
    def test_a_bad_one_is_told_and_its_value_does_not_come_back(
        self, page: Client, fields: dict[str, Any], told: str
    ) -> None:
        answer = page.post("/account/secrets/", {**SECRET, **fields})
        assert answer.status_code == 200
        assert told in text(answer)
        assert VALUE not in text(answer)
        assert not Secret.objects.exists()

    def test_another_persons_stays(self, page: Client, bob: User) -> None:
        vault.write_secret(bob, "HF_TOKEN", VALUE)
        answer = page.post("/account/secrets/HF_TOKEN/remove/", follow=True)
        assert "There is no secret HF_TOKEN." in text(answer)
        assert Secret.objects.get().owner == bob

    def test_ones_own_goes(self, page: Client, alice: User) -> None:
        vault.write_secret(alice, "HF_TOKEN", VALUE)
        page.post("/account/secrets/HF_TOKEN/remove/")
        assert not Secret.objects.exists()
        assert AuditRecord.objects.filter(action="secret.deleted").count() == 1


def test_a_stranger_is_led_to_the_login(client: Client, db: None) -> None:
    assert client.get("/account/").headers["Location"].startswith("/login/")


@pytest.mark.parametrize(
    "path", ["/account/tokens/", "/account/secrets/", "/account/secrets/A/remove/"]
)
def test_looking_changes_nothing(page: Client, path: str) -> None:
    assert page.get(path).status_code == 405
