from datetime import UTC, datetime
from typing import Any

import django_filters
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db.models import QuerySet
from django_filters.rest_framework import DjangoFilterBackend
from rest_framework.exceptions import ErrorDetail, ValidationError
from rest_framework.request import Request
from rest_framework.settings import api_settings
from rest_framework.views import APIView

from jobs.models import Job
from jobs.models.bounds import choices
from jobs.status import Status, Visibility, WaitReason

# Years that can be shown in every time zone without leaving the calendar.
SANE_TIMES = [
    MinValueValidator(datetime(1970, 1, 1, tzinfo=UTC)),
    MaxValueValidator(datetime(9000, 1, 1, tzinfo=UTC)),
]


class StrictFilterBackend(DjangoFilterBackend):
    """django-filter's backend, which refuses a parameter that no filter knows.

    A misspelt filter would otherwise answer with every row, and so would an empty id. Views without a filterset are left alone.
    """

    def filter_queryset(
        self, request: Request, queryset: QuerySet[Any], view: APIView
    ) -> QuerySet[Any]:
        filterset = self.get_filterset(request, queryset, view)
        if filterset is not None:
            refuse_unknown(request, {*filterset.filters, *_page_parameters(view)})
            _refuse_empty(request, filterset)
        return super().filter_queryset(request, queryset, view)


def _page_parameters(view: APIView) -> set[str]:
    paginator = getattr(view, "paginator", None)
    if paginator is None:
        return set()
    return {paginator.page_query_param, paginator.page_size_query_param}


def refuse_unknown(request: Request, known: set[str]) -> None:
    unknown = set(request.query_params) - known - {api_settings.URL_FORMAT_OVERRIDE}
    if unknown:
        text = "There is no such parameter."
        text += (
            f" Known are {', '.join(sorted(known))}." if known else " None is known."
        )
        error = ErrorDetail(text, "unknown_parameter")
        raise ValidationError({name: [error] for name in sorted(unknown)})


def _refuse_empty(request: Request, filterset: django_filters.FilterSet) -> None:
    """A text may be empty; what is one of some, or exact, would silently be none."""
    # The form of the browsable pages sends all its fields, filled in or not.
    if request.accepted_renderer.format == "api":
        return
    exact = (
        django_filters.ChoiceFilter,
        django_filters.UUIDFilter,
        django_filters.IsoDateTimeFilter,
        django_filters.OrderingFilter,
    )
    empty = [
        name
        for name, value in request.query_params.items()
        if not value and isinstance(filterset.filters.get(name), exact)
    ]
    if empty:
        error = ErrorDetail("Give a value, or leave it out.", "empty_parameter")
        raise ValidationError({name: [error] for name in empty})


def flag(request: Request, name: str) -> bool:
    """A parameter that is true or false; left out, it is false. Said twice it could be
    either, and is refused."""
    said = request.query_params.getlist(name) or ["false"]
    if said not in (["true"], ["false"]):
        error = ErrorDetail("It is either true or false.", f"bad_{name}")
        raise ValidationError({name: [error]})
    return said == ["true"]


class StableOrdering(django_filters.OrderingFilter):
    def filter(self, qs: QuerySet[Any], value: list[str] | None) -> QuerySet[Any]:
        """Break ties by id, so that no row is on two pages or on none."""
        ordered = super().filter(qs, value)
        return ordered.order_by(*ordered.query.order_by, "id") if value else ordered


class TimeFilter(django_filters.IsoDateTimeFilter):
    """In UTC: PostgreSQL knows no zone of a day's hours away, though ISO 8601 does."""

    def filter(self, qs: QuerySet[Any], value: datetime | None) -> QuerySet[Any]:
        return super().filter(qs, value and value.astimezone(UTC))


class JobFilter(django_filters.FilterSet):
    # SQLite refuses patterns of 50,000 bytes: what is searched for has a bound.
    name = django_filters.CharFilter(lookup_expr="icontains", max_length=100)
    image = django_filters.CharFilter(lookup_expr="icontains", max_length=255)
    model_name = django_filters.CharFilter(max_length=100)
    status = django_filters.MultipleChoiceFilter(choices=choices(Status))
    wait_reason = django_filters.MultipleChoiceFilter(choices=choices(WaitReason))
    group = django_filters.CharFilter(max_length=150)
    visibility = django_filters.ChoiceFilter(choices=choices(Visibility))
    array_id = django_filters.UUIDFilter()
    created_after = TimeFilter(
        field_name="created_at", lookup_expr="gte", validators=SANE_TIMES
    )
    created_before = TimeFilter(
        field_name="created_at", lookup_expr="lt", validators=SANE_TIMES
    )
    ordering = StableOrdering(
        fields=("created_at", "started_at", "finished_at", "priority", "name", "status")
    )

    class Meta:
        model = Job
        fields: list[str] = []
