"""What can be done to one job that is there: cancel, hold, release, move to the top."""

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import ErrorDetail, ValidationError
from rest_framework.generics import get_object_or_404
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet

from jobs import lifecycle
from jobs.api.access import WRITES
from jobs.api.filters import flag, refuse_unknown
from jobs.api.problems import Forbidden
from jobs.api.routing import ReviewSerializer
from jobs.api.serializers import JobSerializer
from jobs.failpoints import failpoint
from jobs.models import Job, User

ARRAY = OpenApiParameter(
    "array",
    bool,
    description="true: of every task of this job's array that it can be done to.",
)


class JobActions(GenericViewSet[Job]):
    """Jobs as their owners and operators see them; to all others they do not exist."""

    queryset = Job.objects.none()
    scopes = WRITES

    @property
    def me(self) -> User:
        assert isinstance(self.request.user, User)
        return self.request.user

    def get_queryset(self) -> QuerySet[Job]:
        return Job.objects.visible_to(self.request.user).select_related("owner")

    def get_object(self) -> Job:
        # The filters are the list's: on one job they would only hide it.
        job = get_object_or_404(self.get_queryset(), pk=self.kwargs["pk"])
        is_look = self.request.method in SAFE_METHODS
        if not is_look and not job.may_be_changed_by(self.me):
            raise Forbidden(
                f"You may look at this job of your group. Ask {job.owner} to change it.",
                "not_yours",
            )
        return job

    @extend_schema(request=None, parameters=[ARRAY], responses=JobSerializer)
    def cancel(self, request: Request, pk: str) -> Response:
        """Ends a queued job at once; asks a starting or running one to stop."""
        answer = self._act(lifecycle.request_cancel)
        failpoint("cancel.committed")
        return answer

    @extend_schema(request=None, parameters=[ARRAY], responses=JobSerializer)
    def hold(self, request: Request, pk: str) -> Response:
        """Keeps a queued job from starting until it is released."""
        return self._act(lifecycle.hold)

    @extend_schema(request=None, parameters=[ARRAY], responses=JobSerializer)
    def release(self, request: Request, pk: str) -> Response:
        """Ends a hold; that of an operator is an operator's to end."""
        return self._act(lifecycle.release_hold)

    @extend_schema(request=None, responses=JobSerializer)
    def top(self, request: Request, pk: str) -> Response:
        """For operators: puts a queued job before all others."""
        _refuse_body(request)
        refuse_unknown(request, set())
        return self._answer(lifecycle.move_to_top(self.get_object(), by=self.me))

    @extend_schema(request=ReviewSerializer, responses=JobSerializer)
    def review(self, request: Request, pk: str) -> Response:
        """For operators: accepts or rejects a result that waits for a person."""
        refuse_unknown(request, set())
        job = self.get_object()
        said = ReviewSerializer(data=request.data)
        said.is_valid(raise_exception=True)
        told = {"text": "", **said.validated_data}
        return self._answer(lifecycle.review(job, by=self.me, **told))

    def _act(self, verb: lifecycle.Verb) -> Response:
        _refuse_body(self.request)
        refuse_unknown(self.request, {"array"})
        of_array = flag(self.request, "array")
        job = self.get_object()
        if not of_array:
            return self._answer(verb(job, by=self.me))
        if job.array_id is None:
            text = "This job is no task of an array. Leave the parameter out."
            raise ValidationError({"array": [ErrorDetail(text, "no_task")]})
        return self._answer(lifecycle.each_task(verb, job, by=self.me))

    def _answer(self, job: Job, status: int = 200) -> Response:
        context = self.get_serializer_context()
        return Response(JobSerializer(job, context=context).data, status=status)


def _refuse_body(request: Request) -> None:
    if request.data:
        text = "This takes no fields. Send no body."
        raise ValidationError(dict.fromkeys(request.data, text), "unknown_field")
