"""Who asks, and what a personal token lets its holder do."""

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.db.models import Q
from django.utils import timezone
from knox.crypto import hash_token
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request
from rest_framework_simplejwt.authentication import JWTAuthentication

from jobs.api.problems import Forbidden
from jobs.models import ApiToken, Scope, User
from jobs.models.token import PREFIX

if TYPE_CHECKING:  # views import the classes that are here
    from rest_framework.views import APIView

# A row is not written with each request that is read.
USE_IS_TOLD_EVERY = timedelta(minutes=1)

Scopes = Mapping[str, Scope]
READS: Scopes = dict.fromkeys(SAFE_METHODS, Scope.READ)
WRITES: Scopes = {**READS, "POST": Scope.SUBMIT, "DELETE": Scope.SUBMIT}


class BearerAuthentication(JWTAuthentication):
    """One scheme for both: a login's short JWT, or a personal token by its prefix."""

    def authenticate(self, request: Request) -> tuple[Any, Any] | None:
        header = self.get_header(request)
        raw = self.get_raw_token(header) if header else None
        if raw is None or not raw.startswith(PREFIX.encode()):
            return super().authenticate(request)
        token = _live(raw.decode("latin-1"))
        return _holder(token), token


def _live(text: str) -> ApiToken:
    # Found by the digest of 256 random bits: no time tells anything of another.
    tokens = ApiToken.objects.select_related("user")
    token = tokens.filter(digest=hash_token(text)).first()
    if token is None:
        raise AuthenticationFailed(
            "The API token is revoked or not ours. Make a new one.", "bad_token"
        )
    if token.is_expired:
        raise AuthenticationFailed(
            "The API token has expired. Make a new one.", "token_expired"
        )
    if not token.user.is_active:
        raise AuthenticationFailed(
            "The account of this API token is not open. Ask an operator of this site.",
            "user_inactive",
        )
    return token


def _holder(token: ApiToken) -> User:
    """Without the scope `operate` an operator is here anybody: on this instance alone,
    which no view saves."""
    now = timezone.now()
    unused = Q(last_used_at=None) | Q(last_used_at__lte=now - USE_IS_TOLD_EVERY)
    if token.last_used_at is None or now - token.last_used_at >= USE_IS_TOLD_EVERY:
        ApiToken.objects.filter(unused, pk=token.pk).update(last_used_at=now)
    user: User = token.user
    if not token.covers(Scope.OPERATE):
        user.is_staff = user.is_superuser = False
    return user


class WithinScopes(BasePermission):
    """What a token may do is what a view says in `scopes`; one that says nothing is
    closed to tokens."""

    def has_permission(self, request: Request, view: "APIView") -> bool:
        if not isinstance(request.auth, ApiToken):
            return True
        scope = getattr(view, "scopes", {}).get(request.method)
        if scope is None:
            raise Forbidden("An API token can not do this: log in.", "login_needed")
        if not request.auth.covers(scope):
            raise Forbidden(
                f"This API token lacks the scope {scope}. Make one that has it.",
                "scope_missing",
            )
        return True
