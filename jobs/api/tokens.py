"""Personal API tokens: made, listed and revoked by who is logged in."""

from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import ListAPIView, get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from jobs import accounts, spec
from jobs.api.fields import Strict, StrictChar, StrictDateTime
from jobs.api.filters import refuse_unknown
from jobs.api.problems import Conflict
from jobs.api.views import PAGE_PARAMETERS
from jobs.exceptions import TooManyTokens
from jobs.models import ApiToken, Scope, User

USUAL_LIFE = timedelta(days=90)
LONGEST_LIFE = timedelta(days=366)


class TokenSerializer(serializers.ModelSerializer[ApiToken]):
    scopes = serializers.ListField(child=serializers.ChoiceField(list(Scope)))
    created_at = serializers.DateTimeField(source="created")
    expires_at = serializers.DateTimeField(source="expiry")

    class Meta:
        model = ApiToken
        fields = ["id", "name", "scopes", "created_at", "expires_at", "last_used_at"]
        read_only_fields = fields


class NewTokenSerializer(TokenSerializer):
    token = serializers.CharField(help_text="Shown this once.")

    class Meta(TokenSerializer.Meta):
        fields = [*TokenSerializer.Meta.fields, "token"]


class TokenRequestSerializer(Strict):
    name = StrictChar(max_length=100)
    scopes = serializers.ListField(
        child=serializers.ChoiceField(list(Scope)), min_length=1, max_length=3
    )
    expires_at = StrictDateTime(
        required=False, help_text="Within 366 days; left out, in 90 days."
    )

    def validate_name(self, value: str) -> str:
        spec.check_name(value)
        return value

    def validate_scopes(self, value: list[str]) -> list[Scope]:
        scopes = [scope for scope in Scope if scope in value]
        if Scope.OPERATE in scopes and not self.context["request"].user.is_staff:
            text = "Only an operator's token may operate. Leave this scope out."
            raise serializers.ValidationError(text, "not_operator")
        return scopes

    def validate_expires_at(self, value: datetime) -> datetime:
        now = timezone.now()
        if not now < value <= now + LONGEST_LIFE:
            text = f"Give a time to come, at most {LONGEST_LIFE.days} days ahead."
            raise serializers.ValidationError(text, "bad_expiry")
        return value


def _me(request: Request) -> User:
    assert isinstance(request.user, User)
    return request.user


class TokensView(ListAPIView[ApiToken]):
    """Names no `scopes`: no token tells of tokens, or makes one."""

    serializer_class = TokenSerializer

    def get_queryset(self) -> Any:
        return ApiToken.objects.filter(user_id=self.request.user.pk)

    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Your tokens, without their text."""
        refuse_unknown(request, PAGE_PARAMETERS)
        return super().list(request, *args, **kwargs)

    @extend_schema(request=TokenRequestSerializer, responses={201: NewTokenSerializer})
    def post(self, request: Request) -> Response:
        """Makes a token. Its text is in this answer, and never again."""
        refuse_unknown(request, set())
        serializer = TokenRequestSerializer(
            data=request.data, context={"request": request}
        )
        serializer.is_valid(raise_exception=True)
        asked = {"expires_at": timezone.now() + USUAL_LIFE, **serializer.validated_data}
        try:
            token, text = accounts.issue_token(_me(request), **asked)
        except TooManyTokens as refusal:
            raise Conflict(str(refusal), "too_many_tokens") from refusal
        answer = Response({**TokenSerializer(token).data, "token": text}, status=201)
        answer["Cache-Control"] = "no-store"
        return answer


class TokenView(APIView):
    @extend_schema(request=None, responses={204: None})
    def delete(self, request: Request, pk: str) -> Response:
        """Revokes a token of yours at once."""
        token = get_object_or_404(ApiToken, user=_me(request), pk=pk)
        accounts.revoke_token(token, by=request.user)
        return Response(status=204)
