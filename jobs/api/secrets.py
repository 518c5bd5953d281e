"""A person's secrets: written, listed by name, removed; never read."""

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from jobs import secrets, spec, vault
from jobs.api.fields import Strict, StrictChar
from jobs.api.filters import refuse_unknown
from jobs.api.pagination import Pages
from jobs.api.problems import Missing
from jobs.models import Secret, User


class SecretSerializer(serializers.ModelSerializer[Secret]):
    class Meta:
        model = Secret
        fields = ["name", "created_at", "updated_at", "last_used_at"]


class ValueSerializer(Strict):
    value = StrictChar(
        trim_whitespace=False,
        help_text=f"{secrets.LEAST_BYTES} to {vault.MOST_BYTES} bytes as UTF-8.",
    )

    def validate_value(self, value: str) -> str:
        vault.check_value(value)
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
        value = asked.validated_data["value"]
        row, is_new = vault.write_secret(request.user, name, value)
        status = 201 if is_new else 200
        return Response(SecretSerializer(row).data, status=status)

    @extend_schema(responses={204: None})
    def delete(self, request: Request, name: str) -> Response:
        """Remove a secret. A queued job that names it will not start."""
        assert isinstance(request.user, User)
        if not vault.remove_secret(request.user, name):
            raise Missing
        return Response(status=204)
