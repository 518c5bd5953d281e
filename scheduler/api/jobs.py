"""What of a job's API needs the hardware: admission, dry run, explain."""

import math
from datetime import UTC, datetime
from typing import Any

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from jobs import lifecycle
from jobs.api import views
from jobs.api.filters import flag, refuse_unknown
from jobs.api.problems import Unplaceable
from jobs.api.routing import Rows
from jobs.api.serializers import JobSerializer
from jobs.api.submitting import JobSubmitSerializer
from jobs.models import Job, RoutingDecision, RoutingPolicy
from jobs.spec import array
from jobs.status import WaitReason
from jobs.waiting import outside_line
from scheduler import placement, reservation
from scheduler.placement import Placement
from scheduler.placement.change import Change
from scheduler.placement.forecast import Certainty
from scheduler.reservation import Answer


def moment(at: float | None) -> datetime | None:
    """Of seconds since the epoch; None where nobody knows."""
    return datetime.fromtimestamp(at, UTC) if at not in (None, math.inf) else None


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
    foreign_by = serializers.CharField(source="gpu.foreign_by")
    free_mb = serializers.IntegerField()
    missing_mb = serializers.IntegerField()
    blocked_by = serializers.CharField()
    until = serializers.SerializerMethodField()
    text = serializers.CharField()

    def get_until(self, line: placement.Line) -> datetime | None:
        """When its holders are gone, at the latest."""
        return moment(line.until)


class ChangeSerializer(serializers.Serializer[Any]):
    """The smallest change of one field with which it would start now."""

    field = serializers.CharField()
    before = serializers.JSONField()
    after = serializers.JSONField()
    text = serializers.CharField()


class AnswerSerializer(serializers.Serializer[Any]):
    """What a pass would say. `eta` is null where nothing guarantees a time."""

    place_in_line = serializers.IntegerField(allow_null=True)
    jobs_in_line = serializers.IntegerField(allow_null=True)
    reason = serializers.CharField()
    text = serializers.CharField()
    eta = serializers.DateTimeField(allow_null=True)
    eta_certainty = serializers.ChoiceField([word.value for word in Certainty])
    change = ChangeSerializer(allow_null=True)
    gpus = LineSerializer(many=True)


class ExplainSerializer(AnswerSerializer):
    status = serializers.CharField()


class RoutedSerializer(serializers.Serializer[RoutingDecision]):
    """The tier that a model job would start with, and why no other."""

    tier = serializers.CharField()
    gpu_name = serializers.CharField()
    complexity = serializers.FloatField()
    fallback = serializers.CharField()
    text = serializers.CharField()
    candidates = Rows()


class DryRunSerializer(AnswerSerializer):
    outcome = serializers.ChoiceField(["now", "later", "never"])
    routed = RoutedSerializer(allow_null=True, default=None)


def _shown(said: Answer) -> dict[str, Any]:
    explained = said.explained
    shown: dict[str, Any] = {
        "reason": said.reason,
        "text": said.text,
        "place_in_line": None,
        "jobs_in_line": None,
        "eta": None,
        "eta_certainty": Certainty.UNKNOWN,
        "change": None,
        "gpus": (),
    }
    if explained is None:
        return shown
    return {
        **shown,
        "place_in_line": explained.place,
        "jobs_in_line": explained.waiting,
        "eta": moment(explained.expected.at),
        "eta_certainty": explained.expected.certainty,
        "change": _change(explained.change),
        "gpus": explained.lines,
    }


def _change(change: Change | None) -> dict[str, Any] | None:
    """In the shapes of the API: labels are an object there."""
    if change is None:
        return None
    before, after = change.before, change.after
    if change.field == "node_labels":
        before, after = dict(before), dict(after)
    shown = {"field": change.field, "before": before, "after": after}
    return {**shown, "text": change.text}


DRY_RUN = OpenApiParameter(
    "dry_run",
    bool,
    description="Only say whether the job would start now, later or never (200).",
)


class JobViewSet(views.JobViewSet):
    create_parameters = frozenset({"dry_run"})

    def admit(self, spec: dict[str, Any]) -> dict[str, Any]:
        spec = super().admit(spec)
        if spec.get("model_name"):
            return self._routed(spec)
        refusal = reservation.never(Job(owner=self.me, **spec))
        if refusal:
            raise Unplaceable(refusal)
        return spec

    def _routed(self, spec: dict[str, Any]) -> dict[str, Any]:
        """With the tier that its policy chose, and what that asks for."""
        name = spec["model_name"]
        row = RoutingPolicy.objects.active().filter(name=name).first()
        if row is None:
            text = f"There is no policy named {name}. See /api/v1/policies."
            raise Unplaceable(text, "unknown_model")
        try:
            return reservation.routed(spec, row, by=self.me)
        except reservation.Unroutable as refusal:
            raise Unplaceable(str(refusal)) from refusal

    @extend_schema(
        request=JobSubmitSerializer,
        responses={201: JobSerializer, 200: JobSerializer},
        parameters=[views.KEY_HEADER, DRY_RUN],
    )
    def create(self, request: Request) -> Response:
        if not flag(request, "dry_run"):
            return super().create(request)
        refuse_unknown(request, set(self.create_parameters))
        return Response(DryRunSerializer(self._dry_run(self.read_spec())).data)

    def _dry_run(self, spec: dict[str, Any]) -> dict[str, Any]:
        try:
            admitted = self.admit(spec)
        except Unplaceable as refused:
            if refused.get_codes() == "unknown_model":
                raise
            said = Answer(reason=WaitReason.NEVER_FITS, text=str(refused.detail))
            return {**_shown(said), "outcome": "never"}
        routed = admitted.pop("decision", None)
        job, terms, now = (
            Job(owner=self.me, **admitted),
            self.read_terms(),
            timezone.now(),
        )
        if terms.get("hold"):
            job.held_at, job.held_by = now, self.me
        outcomes = lifecycle.check_parents(terms.get("depends_on", ()), by=self.me)
        parents = [job_id for job_id, outcome in outcomes.items() if not outcome]
        tasks = len(array.parse(job.array).indices) if job.array else 1
        lifecycle.refuse_over_quota(self.me, job.group, tasks)
        refusal, explained = reservation.consider(job)
        if explained is None:
            said = Answer(reason=WaitReason.NEVER_FITS, text=refusal)
            return {**_shown(said), "outcome": "never", "routed": routed}
        if outside := outside_line(job, parents, now):
            said = Answer(reason=outside[0], text=outside[1])
            return {**_shown(said), "outcome": "later", "routed": routed}
        is_now = isinstance(explained.decision, Placement)
        shown = _shown(reservation.answer(explained))
        outcome = "now" if is_now else "later"
        return {**shown, "outcome": outcome, "routed": routed}

    @extend_schema(responses=ExplainSerializer, filters=False)
    def explain(self, request: Request, pk: str) -> Response:
        """Why the job waits, GPU by GPU with numbers, by the function that decides."""
        refuse_unknown(request, set())
        job = self.get_object()
        said = {"status": job.status, **_shown(reservation.explain(job))}
        return Response(ExplainSerializer(said).data)
