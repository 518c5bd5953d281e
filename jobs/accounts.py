"""What is done to accounts: tokens are made and end, passwords and standing change."""

from datetime import datetime

from django.db import transaction
from django.utils import timezone

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
