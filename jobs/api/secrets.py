"""A person's secrets: written, listed by name, removed; never read."""

from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from jobs import audit, secrets, spec
from jobs.api.fields import Strict, StrictChar
from jobs.api.filters import refuse_unknown
from jobs.api.pagination import Pages
from jobs.api.problems import Missing
from jobs.models import Secret, User
from jobs.models.secret import MOST_SECRETS

# A private key has some thousands.
MOST_BYTES = 8192


class SecretSerializer(serializers.ModelSerializer[Secret]):
    class Meta:
        model = Secret
        fields = ["name", "created_at", "updated_at", "last_used_at"]


class ValueSerializer(Strict):
    value = StrictChar(
        trim_whitespace=False,
        help_text=f"{secrets.LEAST_BYTES} to {MOST_BYTES} bytes as UTF-8.",
    )

    def validate_value(self, value: str) -> str:
        size = len(value.encode())
        if not secrets.LEAST_BYTES <= size <= MOST_BYTES:
            text = (
                f"It has {size:,} bytes; a secret has {secrets.LEAST_BYTES} to "
                f"{MOST_BYTES:,}: a shorter one could not be masked in logs."
            )
            raise serializers.ValidationError(text, "bad_size")
        return value


class SecretsView(ListAPIView[Secret]):
    serializer_class = SecretSerializer
    pagination_class = Pages

    def get_queryset(self) -> QuerySet[Secret]:
        return Secret.objects.filter(owner_id=self.request.user.pk)

    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Your secrets by name. No value is ever shown."""
        refuse_unknown(request, {Pages.page_query_param, Pages.page_size_query_param})
        return super().get(request, *args, **kwargs)


class SecretView(APIView):
    @extend_schema(
        request=ValueSerializer,
        responses={
            200: SecretSerializer,
            201: OpenApiResponse(SecretSerializer, description="It is new."),
        },
    )
    def put(self, request: Request, name: str) -> Response:
        """Set a secret. Jobs that have started keep the value that they were given."""
        spec.check_secret_name(name)
        asked = ValueSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        assert isinstance(request.user, User)
        row, is_new = _write(request.user, name, asked.validated_data["value"])
        status = 201 if is_new else 200
        return Response(SecretSerializer(row).data, status=status)

    @extend_schema(responses={204: None})
    def delete(self, request: Request, name: str) -> Response:
        """Remove a secret. A queued job that names it will not start."""
        with transaction.atomic():
            gone, _ = Secret.objects.filter(
                owner_id=request.user.pk, name=name
            ).delete()
            if not gone:
                raise Missing
            audit.record("secret.deleted", target=name, by=request.user)
        return Response(status=204)


@transaction.atomic
def _write(owner: User, name: str, value: str) -> tuple[Secret, bool]:
    # The owner's row is held, so that two at once can not pass the limit together.
    User.objects.select_for_update(no_key=True).get(pk=owner.pk)
    others = Secret.objects.filter(owner=owner).exclude(name=name)
    if others.count() >= MOST_SECRETS:
        text = f"A person has at most {MOST_SECRETS} secrets. Remove one first."
        raise ValidationError({"name": [text]}, "too_many_secrets")
    row, is_new = Secret.objects.update_or_create(
        owner=owner,
        name=name,
        defaults={
            "sealed": secrets.seal(value, settings.SECRET_KEY),
            "updated_at": timezone.now(),
        },
    )
    audit.record("secret.written", target=name, by=owner, is_new=is_new)
    return row, is_new
