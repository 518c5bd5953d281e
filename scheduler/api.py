"""What of the API needs the hardware: admission, dry run, explain, GPUs and nodes."""

from typing import Any, TypeVar

from django.db.models import Model, Prefetch, QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api import views
from jobs.api.filters import refuse_unknown
from jobs.api.problems import Unplaceable
from jobs.api.serializers import JobSerializer, JobSubmitSerializer
from jobs.models import Job
from scheduler import placement, reservation
from scheduler.models import GPU, Allocation, Node
from scheduler.placement import Placement, Wait

M = TypeVar("M", bound=Model)


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


class GPUSerializer(serializers.ModelSerializer[GPU]):
    node = serializers.CharField(source="node.name")
    usable_mb = serializers.IntegerField(read_only=True)
    promised_mb = serializers.SerializerMethodField()

    class Meta:
        model = GPU
        fields = [
            "uuid",
            "index",
            "name",
            "node",
            "state",
            "state_reason",
            "is_present",
            "total_mb",
            "reserved_mb",
            "headroom_mb",
            "usable_mb",
            "promised_mb",
            "used_mb",
            "foreign_mb",
            "utilisation",
            "temperature",
            "power_w",
            "sampled_at",
        ]

    def get_promised_mb(self, gpu: GPU) -> int:
        return sum(allocation.vram_mb for allocation in gpu.allocations.all())


class NodeSerializer(serializers.ModelSerializer[Node]):
    class Meta:
        model = Node
        fields = ["name", "state", "heartbeat_at", "cpus", "memory_mb", "reports"]


class StrictList(ListAPIView[M]):
    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        refuse_unknown(request, views.PAGE_PARAMETERS)
        return super().list(request, *args, **kwargs)


class GPUView(StrictList[GPU]):
    """Every GPU with what is promised, used and foreign on it. MiB."""

    serializer_class = GPUSerializer

    def get_queryset(self) -> QuerySet[GPU]:
        live = Prefetch("allocations", queryset=Allocation.objects.live())
        return GPU.objects.select_related("node").prefetch_related(live)


class NodeView(StrictList[Node]):
    serializer_class = NodeSerializer
    queryset = Node.objects.all()
