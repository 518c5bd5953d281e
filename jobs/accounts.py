"""What is done to accounts: tokens are made and end, passwords and standing change."""

from datetime import datetime

from django.conf import settings
from django.contrib.auth.hashers import make_password
from django.contrib.sessions.models import Session
from django.db import transaction
from django.utils import timezone
from rest_framework_simplejwt.token_blacklist.models import (
    BlacklistedToken,
    OutstandingToken,
)

from jobs import audit
from jobs.exceptions import TooManyTokens
from jobs.models import ApiToken, Scope, User

MOST_TOKENS = 50


@transaction.atomic
def issue_token(
    user: User, *, name: str, scopes: list[Scope], expires_at: datetime
) -> tuple[ApiToken, str]:
    """A new token and its text, which is kept nowhere. Raises TooManyTokens."""
    # Two requests at once would each not see the other's token.
    User.objects.select_for_update(no_key=True).get(pk=user.pk)
    if user.auth_token_set.count() >= MOST_TOKENS:
        raise TooManyTokens(
            f"You have {MOST_TOKENS} API tokens, and nobody may have more. Revoke one."
        )
    token, text = ApiToken.objects.create(
        user, expiry=expires_at - timezone.now(), name=name, scopes=scopes
    )
    audit.record(
        "token.created",
        target=user,
        by=user,
        token=str(token.pk),
        name=name,
        scopes=scopes,
        expires_at=expires_at.isoformat(),
    )
    return token, text


@transaction.atomic
def revoke_token(token: ApiToken, *, by: object) -> bool:
    """End it at once; False if somebody else just did."""
    count, _ = ApiToken.objects.filter(pk=token.pk).delete()
    if count:
        audit.record(
            "token.revoked",
            target=token.user,
            by=by,
            token=str(token.pk),
            name=token.name,
        )
    return count == 1


@transaction.atomic
def revoke_tokens(user: User, *, by: object) -> None:
    for token in user.auth_token_set.all():
        revoke_token(token, by=by)


def takes_mail_of(email: str) -> bool:
    """Whether an account may be made of this address."""
    domain = email.rpartition("@")[2].casefold()
    known = [name.casefold() for name in settings.MAIL_DOMAINS]
    return not known or domain in known


@transaction.atomic
def register(email: str, password: str | None, **fields: str) -> User:
    """An account that somebody made without an operator; raises IntegrityError for an
    address that is taken."""
    is_open = settings.REGISTRATION == "open"
    approved_at = timezone.now() if is_open else None
    user = User.objects.create_user(email, password, approved_at=approved_at, **fields)
    audit.record("user.registered", target=user, by=user)
    return user


@transaction.atomic
def change_password(user: User, password: str) -> bool:
    """Set it and end the tokens; sessions and logins end with the old hash. False if
    somebody else changed it since `user` was read."""
    made = make_password(password)
    rows = User.objects.filter(pk=user.pk, password=user.password)
    if not rows.update(password=made):
        return False
    user.password = made
    audit.record("user.password_changed", target=user, by=user)
    revoke_tokens(user, by=user)
    return True


@transaction.atomic
def log_out_everywhere(user: User, *, by: object) -> None:
    """Nothing that opened the account before opens it again."""
    revoke_tokens(user, by=by)
    for token in OutstandingToken.objects.filter(user=user):
        BlacklistedToken.objects.get_or_create(token=token)
    for session in Session.objects.filter(expire_date__gt=timezone.now()):
        if session.get_decoded().get("_auth_user_id") == str(user.pk):
            session.delete()
