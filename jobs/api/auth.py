from typing import Any, cast

from django.conf import settings
from django.contrib.auth import authenticate, update_session_auth_hash
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError as DjangoValidationError
from django.db import IntegrityError, transaction
from drf_spectacular.utils import extend_schema, inline_serializer
from rest_framework import serializers
from rest_framework.authentication import SessionAuthentication
from rest_framework.exceptions import AuthenticationFailed, ErrorDetail
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView
from rest_framework_simplejwt.authentication import JWTAuthentication
from rest_framework_simplejwt.exceptions import TokenError
from rest_framework_simplejwt.tokens import RefreshToken

from jobs import accounts, audit
from jobs.api.access import READS
from jobs.api.fields import Strict, StrictChar
from jobs.api.problems import Conflict, Forbidden
from jobs.api.serializers import UserSerializer
from jobs.api.throttles import ByAddress, ByAddressAndAccount, OfPasswords
from jobs.models import User

TokenPair = inline_serializer(
    "TokenPair",
    {
        "access_token": serializers.CharField(),
        "token_type": serializers.CharField(default="bearer"),
        "refresh_token": serializers.CharField(),
        "expires_in": serializers.IntegerField(help_text="Seconds."),
    },
)


class LoginSerializer(Strict):
    email = StrictChar(max_length=254)
    password = StrictChar(max_length=1024)


class RefreshSerializer(Strict):
    refresh_token = StrictChar(max_length=4096)


class RegisterSerializer(Strict, serializers.ModelSerializer[User]):
    password = StrictChar(max_length=1024, write_only=True)

    class Meta:
        model = User
        fields = ["email", "password", "name"]
        # The model's own rule misses another spelling of the same address.
        extra_kwargs: dict[str, Any] = {"email": {"validators": []}}

    def validate_email(self, value: str) -> str:
        if not accounts.takes_mail_of(value):
            domains = ", ".join(settings.MAIL_DOMAINS)
            text = f"Accounts here are for addresses of {domains}."
            raise serializers.ValidationError(text, "domain_not_taken")
        if User.objects.filter(email__iexact=value).exists():
            raise email_taken()
        return value

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        user = User(email=attrs["email"], name=attrs.get("name", ""))
        check_password("password", attrs["password"], user)
        return attrs


def check_password(field: str, password: str, user: User) -> None:
    try:
        validate_password(password, user)
    except DjangoValidationError as exc:
        detail = serializers.as_serializer_error(exc)
        raise serializers.ValidationError({field: detail["non_field_errors"]}) from exc


def email_taken() -> serializers.ValidationError:
    text = "There is an account of this address. Log in instead."
    return serializers.ValidationError(text, "email_taken")


class RegisteredSerializer(UserSerializer):
    needs_approval = serializers.SerializerMethodField()

    class Meta(UserSerializer.Meta):
        fields = [*UserSerializer.Meta.fields, "needs_approval"]

    def get_needs_approval(self, user: User) -> bool:
        return user.approved_at is None


class OpenView(APIView):
    """For who has not logged in yet: a stale token does not stand in the way."""

    authentication_classes = ()
    permission_classes = (AllowAny,)

    def get_authenticate_header(self, request: Request) -> str:
        # Without it the framework turns each 401 into a 403.
        return 'Bearer realm="api"'


class RegisterView(OpenView):
    throttle_classes = (ByAddress,)

    @extend_schema(request=RegisterSerializer, responses={201: RegisteredSerializer})
    def post(self, request: Request) -> Response:
        """Makes an account, where the operator lets anybody do so. With
        `needs_approval` it can log in after an operator has approved it."""
        if settings.REGISTRATION == "closed":
            raise Forbidden(
                "Ask an operator of this site for an account.", "registration_closed"
            )
        serializer = RegisterSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        user = _register(**serializer.validated_data)
        return Response(RegisteredSerializer(user).data, status=201)


def _register(email: str, password: str, name: str = "") -> User:
    try:
        return accounts.register(email, password, name=name)
    except IntegrityError as exc:  # registered by somebody else at the same time
        raise serializers.ValidationError({"email": email_taken().detail}) from exc


class LoginView(OpenView):
    throttle_classes = (ByAddressAndAccount,)

    @extend_schema(request=LoginSerializer, responses=TokenPair)
    def post(self, request: Request) -> Response:
        """Gives an access token of minutes, and a refresh token for the next one."""
        serializer = LoginSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        email = serializer.validated_data["email"]
        user = authenticate(
            request, username=email, password=serializer.validated_data["password"]
        )
        if not isinstance(user, User):
            audit.record("user.login_failed", target=email, by="anonymous")
            # One text for unknown, wrong and suspended: it confirms no account.
            raise AuthenticationFailed(
                "E-mail address or password is wrong.", "bad_credentials"
            )
        with transaction.atomic():
            audit.record("user.logged_in", target=user, by=user)
            return Response(_pair(user))


def _pair(user: User) -> dict[str, Any]:
    refresh = RefreshToken.for_user(user)
    access = refresh.access_token
    return {
        "access_token": str(access),
        "token_type": "bearer",
        "refresh_token": str(refresh),
        "expires_in": int(access.lifetime.total_seconds()),
    }


class RefreshView(OpenView):
    @extend_schema(request=RefreshSerializer, responses=TokenPair)
    def post(self, request: Request) -> Response:
        """A refresh token works once; its answer holds the next."""
        with transaction.atomic():
            user = _spend(request)
            audit.record("user.refreshed", target=user, by=user)
            return Response(_pair(user))


class LogoutView(OpenView):
    @extend_schema(request=RefreshSerializer, responses={204: None})
    def post(self, request: Request) -> Response:
        """Ends the refresh token; access tokens made from it end within minutes."""
        with transaction.atomic():
            user = _spend(request)
            audit.record("user.logged_out", target=user, by=user)
        return Response(status=204)


def _spend(request: Request) -> User:
    """Blacklist the refresh token in the body and return whose it was."""
    serializer = RefreshSerializer(data=request.data)
    serializer.is_valid(raise_exception=True)
    try:
        token = RefreshToken(serializer.validated_data["refresh_token"])
        # Refuses the suspended, and tokens from before a change of the password.
        user = JWTAuthentication().get_user(token)
    except (TokenError, AuthenticationFailed) as exc:
        raise _bad_token() from exc
    # Annotated as one row, it returns what get_or_create does.
    _, is_first = cast(tuple[object, bool], token.blacklist())
    if not is_first:  # spent by another request since it was looked at
        raise _bad_token()
    assert isinstance(user, User)
    return user


def _bad_token() -> AuthenticationFailed:
    return AuthenticationFailed(
        "The refresh token is used, expired or not ours. Log in again.", "bad_token"
    )


class MeView(APIView):
    scopes = READS

    @extend_schema(responses=UserSerializer)
    def get(self, request: Request) -> Response:
        """Who you are logged in as."""
        assert isinstance(request.user, User)
        return Response(UserSerializer(request.user).data)


class PasswordSerializer(Strict):
    old_password = StrictChar(max_length=1024)
    new_password = StrictChar(max_length=1024)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        user: User = self.context["user"]
        if not user.check_password(attrs["old_password"]):
            audit.record("user.password_refused", target=user, by=user)
            text = "This is not your password."
            raise serializers.ValidationError(
                {"old_password": ErrorDetail(text, "wrong_password")}
            )
        check_password("new_password", attrs["new_password"], user)
        return attrs


class PasswordView(APIView):
    throttle_classes = (OfPasswords,)

    @extend_schema(request=PasswordSerializer, responses=TokenPair)
    def post(self, request: Request) -> Response:
        """Sets a new password. Every session, login and API token of yours ends but
        this session; the answer is a new login."""
        assert isinstance(request.user, User)
        user = request.user
        serializer = PasswordSerializer(data=request.data, context={"user": user})
        serializer.is_valid(raise_exception=True)
        new_password = serializer.validated_data["new_password"]
        if not accounts.change_password(user, new_password):
            text = "The password was changed by another request just now. Log in again."
            raise Conflict(text, "password_changed")
        if isinstance(request.successful_authenticator, SessionAuthentication):
            update_session_auth_hash(request._request, user)
        return Response(_pair(user))
