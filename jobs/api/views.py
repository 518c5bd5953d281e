import re
from collections.abc import Mapping
from typing import Any

from django.db import DatabaseError, IntegrityError, connection
from django.db.models import QuerySet
from django.http import HttpResponseBase
from django.utils.functional import cached_property
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, inline_serializer
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.permissions import AllowAny
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse
from rest_framework.views import APIView

from jobs import lifecycle
from jobs.api import artifacts, logs
from jobs.api.actions import JobActions
from jobs.api.fields import Strict
from jobs.api.filters import JobFilter, refuse_unknown
from jobs.api.pagination import Pages
from jobs.api.problems import Conflict, Unavailable
from jobs.api.routing import DecisionSerializer
from jobs.api.serializers import (
    AttemptSerializer,
    EventSerializer,
    JobSerializer,
    ResultSerializer,
)
from jobs.api.submitting import JobSubmitSerializer
from jobs.exceptions import OverQuota
from jobs.failpoints import failpoint
from jobs.models import Job
from jobs.passport import passport
from jobs.spec import OF_AN_IMAGE
from jobs.spec.placing import TERMS

PAGE_PARAMETERS = {Pages.page_query_param, Pages.page_size_query_param}
IDEMPOTENCY_KEY = re.compile(r"[!-~]{1,100}")
KEY_HEADER = OpenApiParameter(
    "Idempotency-Key",
    str,
    OpenApiParameter.HEADER,
    description="Sent again with the same key, a spec is answered with the first job.",
)
LOG_HEADERS = [
    OpenApiParameter(
        name, kind, OpenApiParameter.HEADER, description=text, response=[200]
    )
    for name, kind, text in [
        ("X-Log-Offset", int, "The offset to ask for next."),
        ("X-Log-Size", int, "Bytes in the log so far."),
        ("X-Log-Complete", bool, "true: the job ended and this was the last of it."),
    ]
]


class AnyAccept(DefaultContentNegotiation):
    """For answers that are no rendered data: bytes come whatever is accepted."""

    def select_renderer(
        self, request: Request, renderers: Any, format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        return renderers[0], renderers[0].media_type


class JobViewSet(JobActions):
    """The scheduler extends this: it overrides `admit`, and adds what needs the hardware."""

    filterset_class = JobFilter
    # Query parameters of `create`, which a subclass may add to.
    create_parameters: frozenset[str] = frozenset()

    def get_serializer_class(self) -> type[serializers.BaseSerializer[Any]]:
        submits = self.action in ("create", "metadata")
        return JobSubmitSerializer if submits else JobSerializer

    def admit(self, spec: dict[str, Any]) -> dict[str, Any]:
        """Refuse a spec that can not be run here, before it is queued; return it with
        what follows from it, as arguments of lifecycle.submit.

        Raises Unplaceable, or another APIException. A dry run asks no more than this,
        so what its terms lack is told here too.
        """
        lifecycle.check_parents(self.read_terms().get("depends_on", ()), by=self.me)
        return spec

    @cached_property
    def _sent(self) -> dict[str, Any]:
        serializer = JobSubmitSerializer(
            data=self.request.data, context=self.get_serializer_context()
        )
        serializer.is_valid(raise_exception=True)
        return serializer.validated_data

    def read_spec(self) -> dict[str, Any]:
        """The validated spec in the request's body as fields of Job; raises
        ValidationError."""
        return {name: v for name, v in self._sent.items() if name not in TERMS}

    def read_terms(self) -> dict[str, Any]:
        """What the body says beside the spec: `depends_on` and `hold`, where given.

        Arguments of lifecycle.submit; raises ValidationError.
        """
        return {name: v for name, v in self._sent.items() if name in TERMS}

    @extend_schema(
        request=JobSubmitSerializer,
        responses={201: JobSerializer, 200: JobSerializer},
        parameters=[KEY_HEADER],
    )
    def create(self, request: Request) -> Response:
        """Queues a job; of an array all tasks, and answers with the first."""
        refuse_unknown(request, set(self.create_parameters))
        job, is_new = self._submit_once(self.read_spec(), _idempotency_key(request))
        failpoint("submit.committed")
        response = self._answer(job, 201 if is_new else 200)
        response["Location"] = reverse("api-job", [job.pk], request=request)
        return response

    def _submit_once(self, spec: dict[str, Any], key: str | None) -> tuple[Job, bool]:
        if first := self._first_of(key, spec):
            return first, False
        admitted = self.admit(spec)
        terms = self.read_terms()
        try:
            job = lifecycle.submit(by=self.me, idempotency_key=key, **terms, **admitted)
        except (IntegrityError, OverQuota):
            # The same request came twice at once, and the other one was first.
            if first := self._first_of(key, spec):
                return first, False
            raise
        return job, True

    def _first_of(self, key: str | None, spec: dict[str, Any]) -> Job | None:
        mine = self.get_queryset().filter(owner=self.me)
        first = mine.filter(idempotency_key=key).first() if key else None
        if first and not _asked_the_same(first, Job(**spec), self.read_terms()):
            raise Conflict(
                "This Idempotency-Key was used for another spec. Take a new key.",
                "idempotency_conflict",
                job_id=str(first.pk),
            )
        return first

    def list(self, request: Request) -> Response:
        jobs = self.get_queryset().prefetch_related("dependencies")
        page = self.paginate_queryset(self.filter_queryset(jobs))
        return self.get_paginated_response(self.get_serializer(page, many=True).data)

    def retrieve(self, request: Request, pk: str) -> Response:
        return self._answer(self.get_object())

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:
        lifecycle.delete(self.get_object(), by=self.me)
        return Response(status=204)

    @extend_schema(
        parameters=[logs.LogQuery, *LOG_HEADERS],
        responses={(200, "text/plain"): OpenApiTypes.STR},
    )
    def logs(self, request: Request, pk: str) -> HttpResponseBase:
        """stdout and stderr of the latest attempt, from an offset on."""
        return logs.answer(self.get_object(), _query(logs.LogQuery, request))

    @extend_schema(filters=False, responses=EventSerializer(many=True))
    def events(self, request: Request, pk: str) -> Response:
        return self._page(self.get_object().events.all(), EventSerializer)

    @extend_schema(filters=False, responses=AttemptSerializer(many=True))
    def attempts(self, request: Request, pk: str) -> Response:
        rows = self.get_object().attempts.select_related("evaluation", "decision")
        return self._page(rows, AttemptSerializer)

    @extend_schema(responses=OpenApiTypes.OBJECT)
    def passport(self, request: Request, pk: str) -> Response:
        """What ran, for whom, where and how it ended, signed: for who must prove it."""
        job = self.get_object()
        if not job.is_terminal:
            raise Conflict("A job has a passport once it has ended.", "not_ended")
        return Response(passport(job))

    @extend_schema(filters=False, responses=DecisionSerializer(many=True))
    def decisions(self, request: Request, pk: str) -> Response:
        """How the job was routed, each time: with what was rejected, and why."""
        rows = self.get_object().decisions.select_related("policy")
        return self._page(rows.prefetch_related("attempts"), DecisionSerializer)

    @extend_schema(parameters=[artifacts.ArtifactQuery], responses=ResultSerializer)
    def artifact(self, request: Request, pk: str) -> Response:
        """What the job left in /artifacts, once it has succeeded."""
        query = _query(artifacts.ArtifactQuery, request)
        left = artifacts.left_by(self.get_object(), query.get("attempt"))
        return Response(ResultSerializer(left).data)

    @extend_schema(
        parameters=[artifacts.DownloadQuery],
        responses={(200, artifacts.OCTETS): OpenApiTypes.BINARY},
    )
    def artifact_download(self, request: Request, pk: str) -> HttpResponseBase:
        """The file; of several, a zip or the one whose `path` is given."""
        query = _query(artifacts.DownloadQuery, request)
        result = artifacts.left_by(self.get_object(), query.get("attempt"))
        return artifacts.download(result, query.get("path"))

    def _page(
        self, rows: QuerySet[Any], serializer: type[serializers.ModelSerializer[Any]]
    ) -> Response:
        refuse_unknown(self.request, PAGE_PARAMETERS)
        page = self.paginate_queryset(rows)
        return self.get_paginated_response(serializer(page, many=True).data)


def _asked_the_same(first: Job, wanted: Job, terms: Mapping[str, Any]) -> bool:
    # What a policy decided was not asked for; what was escalated since was.
    decided = {*TERMS, *(("image", *OF_AN_IMAGE) if first.model_name else ())}
    names = [name for name in JobSubmitSerializer.Meta.fields if name not in decided]
    asked = {name: first.asked.get(name, getattr(first, name)) for name in names}
    if any(asked[name] != getattr(wanted, name) for name in names):
        return False
    parents = {(d.parent_id, d.condition) for d in first.dependencies.all()}
    if parents != set(terms.get("depends_on", ())):
        return False
    # It may have been released since: what was asked is in its story.
    queued = first.events.earliest("id")
    return queued.payload.get("hold", False) == terms.get("hold", False)


def _idempotency_key(request: Request) -> str | None:
    key = request.headers.get("Idempotency-Key")
    if key is not None and not IDEMPOTENCY_KEY.fullmatch(key):
        raise ValidationError(
            {"Idempotency-Key": "Use 1 to 100 printable ASCII characters, no space."},
            "bad_idempotency_key",
        )
    return key


def _query(serializer: type[Strict], request: Request) -> dict[str, Any]:
    # A plain dict: of a QueryDict, a missing boolean would read as false.
    query = serializer(data=request.query_params.dict())
    query.is_valid(raise_exception=True)
    return query.validated_data


class HealthView(APIView):
    authentication_classes = ()
    throttle_classes = ()
    permission_classes = (AllowAny,)

    @extend_schema(
        responses=inline_serializer(
            "Health",
            {"status": serializers.CharField(), "database": serializers.CharField()},
        )
    )
    def get(self, request: Request) -> Response:
        """For load balancers: says nothing about hosts, asks for no login."""
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1")
        except DatabaseError as exc:
            raise Unavailable() from exc
        return Response({"status": "ok", "database": "ok"})
