"""What of a job's API needs the hardware: admission, dry run, explain."""

from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api import views
from jobs.api.filters import refuse_unknown
from jobs.api.problems import Unplaceable
from jobs.api.serializers import JobSerializer, JobSubmitSerializer
from jobs.models import Job
from scheduler import placement, reservation
from scheduler.placement import Placement, Wait


class LineSerializer(serializers.Serializer[placement.Line]):
    """One GPU's part of an answer. MiB; `blocked_by` is empty where it would do."""

    node = serializers.CharField(source="gpu.node")
    index = serializers.IntegerField(source="gpu.index")
    uuid = serializers.CharField(source="gpu.uuid")
    name = serializers.CharField(source="gpu.name")
    total_mb = serializers.IntegerField(source="gpu.total_mb")
    reserved_mb = serializers.IntegerField(source="gpu.reserved_mb")
    headroom_mb = serializers.IntegerField(source="gpu.headroom_mb")
    promised_mb = serializers.IntegerField(source="gpu.promised_mb")
    measured_mb = serializers.IntegerField(source="gpu.measured_mb")
    foreign_mb = serializers.IntegerField(source="gpu.foreign_mb")
    free_mb = serializers.IntegerField(source="gpu.free_mb")
    missing_mb = serializers.IntegerField()
    blocked_by = serializers.CharField()
    text = serializers.CharField()


class ExplainSerializer(serializers.Serializer[Any]):
    status = serializers.CharField()
    place_in_line = serializers.IntegerField(allow_null=True)
    reason = serializers.CharField()
    text = serializers.CharField()
    gpus = LineSerializer(many=True)


class DryRunSerializer(serializers.Serializer[Any]):
    """`outcome` is now, later or never. There is no ETA yet, so `eta` is null."""

    outcome = serializers.ChoiceField(["now", "later", "never"])
    eta = serializers.DateTimeField(allow_null=True)
    reason = serializers.CharField()
    text = serializers.CharField()
    gpus = LineSerializer(many=True)


def request_of(spec: dict[str, Any]) -> placement.Request:
    return reservation.request_of(Job(**spec))


def _said(decision: Placement | Wait | None) -> dict[str, Any]:
    if isinstance(decision, Wait):
        return {
            "reason": decision.reason,
            "text": decision.text,
            "gpus": decision.lines,
        }
    lines = decision.lines if decision else ()
    return {"reason": "", "text": "", "gpus": lines}


DRY_RUN = OpenApiParameter(
    "dry_run",
    bool,
    description="Only say whether the job would start now, later or never (200).",
)


class JobViewSet(views.JobViewSet):
    create_parameters = frozenset({"dry_run"})

    def admit(self, spec: dict[str, Any]) -> None:
        super().admit(spec)
        refusal = placement.fits_ever(reservation.snapshot(), request_of(spec))
        if refusal:
            raise Unplaceable(refusal)

    @extend_schema(
        request=JobSubmitSerializer,
        responses={201: JobSerializer, 200: JobSerializer},
        parameters=[views.KEY_HEADER, DRY_RUN],
    )
    def create(self, request: Request) -> Response:
        wanted = request.query_params.get("dry_run", "false")
        if wanted not in ("true", "false"):
            raise serializers.ValidationError(
                {"dry_run": "It is either true or false."}, "bad_dry_run"
            )
        if wanted == "false":
            return super().create(request)
        refuse_unknown(request, set(self.create_parameters))
        return Response(DryRunSerializer(self._dry_run(self.read_spec())).data)

    def _dry_run(self, spec: dict[str, Any]) -> dict[str, Any]:
        views.JobViewSet.admit(self, spec)
        job = Job(**spec)
        refusal, decision = reservation.consider(request_of(spec), job.priority)
        outcome = "now" if isinstance(decision, Placement) else "later"
        said = {**_said(decision), "outcome": outcome, "eta": None}
        if refusal:
            said |= {"outcome": "never", "reason": "never_fits", "text": refusal}
        return said

    @extend_schema(responses=ExplainSerializer, filters=False)
    def explain(self, request: Request, pk: str) -> Response:
        """Why the job waits, GPU by GPU with numbers, by the function that decides."""
        refuse_unknown(request, set())
        job = self.get_object()
        decision, place = reservation.explain(job)
        said = {"status": job.status, "place_in_line": place or None}
        said |= _said(decision)
        if isinstance(decision, Placement):
            said["text"] = f"It starts on {decision.node} with the next pass."
        elif decision is None:
            said["text"] = job.reason_text or f"It does not wait: it is {job.status}."
        return Response(ExplainSerializer(said).data)
