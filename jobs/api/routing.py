"""Policies as people may name them, and what was decided and judged by them."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from jobs.api.access import READS
from jobs.api.fields import ParamsField, Strict, StrictBoolean, StrictChar
from jobs.api.filters import refuse_unknown
from jobs.api.pagination import Pages
from jobs.api.problems import Missing
from jobs.exceptions import OperatorsOnly
from jobs.models import Evaluation, ModelTier, RoutingDecision, RoutingPolicy
from jobs.savings import Savings, TierShare, savings

PAGE_PARAMETERS = {Pages.page_query_param, Pages.page_size_query_param}


class Rows(serializers.ListField):
    """JSON objects, as they were recorded."""

    child = ParamsField()


class TierSerializer(serializers.ModelSerializer[ModelTier]):
    class Meta:
        model = ModelTier
        fields = [
            "name",
            "image",
            "gpu_count",
            "min_vram_mb",
            "share",
            "timeout_s",
            "model_version",
            "prompt_version",
            "max_complexity",
            "max_risk",
        ]


class PolicySerializer(serializers.ModelSerializer[RoutingPolicy]):
    """`params` is the JSON Schema that a job's params must meet, null for none."""

    params = ParamsField(read_only=True, allow_null=True)
    tiers = TierSerializer(many=True, read_only=True)

    class Meta:
        model = RoutingPolicy
        fields = [
            "name",
            "version",
            "description",
            "work",
            "prefer",
            "params",
            "tiers",
            "max_escalations",
            "review",
        ]


class DecisionSerializer(serializers.ModelSerializer[RoutingDecision]):
    """`candidates` are all tiers on each type of GPU, with why each was not taken."""

    policy = serializers.CharField(source="policy.name", default=None, allow_null=True)
    policy_version = serializers.IntegerField(
        source="policy.version", default=None, allow_null=True
    )
    contributions = Rows(read_only=True)
    candidates = Rows(read_only=True)
    request = ParamsField(read_only=True)
    attempts = serializers.SlugRelatedField[Any](
        "number", many=True, read_only=True, help_text="Numbers of the attempts by it."
    )

    class Meta:
        model = RoutingDecision
        fields = [
            "number",
            "cause",
            "policy",
            "policy_version",
            "tier",
            "gpu_name",
            "model_version",
            "prompt_version",
            "params_digest",
            "risk",
            "complexity",
            "contributions",
            "candidates",
            "fallback",
            "text",
            "request",
            "attempts",
            "created_at",
        ]


class EvaluationSerializer(serializers.ModelSerializer[Evaluation]):
    outcomes = Rows(read_only=True)
    scores = ParamsField(read_only=True)

    class Meta:
        model = Evaluation
        fields = [
            "is_accepted",
            "outcomes",
            "scores",
            "gpu_seconds",
            "review_until",
            "reviewed_at",
            "reviewed_by",
            "review_accepts",
            "review_text",
        ]


class ReviewSerializer(Strict):
    """Whether a result that waits for a person is accepted, and why."""

    accepts = StrictBoolean()
    text = StrictChar(required=False, allow_blank=True, max_length=4000)


class TierShareSerializer(serializers.Serializer[TierShare]):
    """`jobs` are those whose accepted result is of the tier, `share` of all."""

    name = serializers.CharField()
    jobs = serializers.IntegerField()
    share = serializers.FloatField()
    gpu_seconds = serializers.FloatField()
    vram_mb_seconds = serializers.FloatField()


class SavingsSerializer(serializers.Serializer[Savings]):
    """`largest_...` is what everything on the largest tier would have used: the median
    of its accepted attempts, times the jobs; null where there is none to judge by."""

    policy = serializers.CharField()
    days = serializers.IntegerField()
    jobs = serializers.IntegerField()
    escalated = serializers.IntegerField()
    escalation_rate = serializers.FloatField()
    tiers = TierShareSerializer(many=True)
    gpu_seconds = serializers.FloatField()
    vram_mb_seconds = serializers.FloatField()
    largest_gpu_seconds = serializers.FloatField(allow_null=True)
    largest_vram_mb_seconds = serializers.FloatField(allow_null=True)
    wait_p50_s = serializers.FloatField(allow_null=True)
    wait_p95_s = serializers.FloatField(allow_null=True)


class SavingsQuery(Strict):
    unknown_code = "unknown_parameter"

    days = serializers.IntegerField(default=30, min_value=1, max_value=366)


class SavingsView(APIView):
    scopes = READS

    @extend_schema(parameters=[SavingsQuery], responses=SavingsSerializer)
    def get(self, request: Request, policy: str) -> Response:
        """For operators: what a policy saved, of the jobs that ended in the last days."""
        if not request.user.is_staff:
            raise OperatorsOnly("Only an operator can see what everybody's jobs used.")
        query = SavingsQuery(data=request.query_params.dict())
        query.is_valid(raise_exception=True)
        if not RoutingPolicy.objects.filter(name=policy).exists():
            raise Missing(f"There is no policy {policy}.", "not_found")
        found = savings(policy, query.validated_data["days"])
        return Response(SavingsSerializer(found).data)


class PolicyView(APIView):
    """The policies that a `model_name` may name, as they are live."""

    pagination_class = Pages
    scopes = READS

    @extend_schema(responses=PolicySerializer(many=True))
    def get(self, request: Request) -> Response:
        refuse_unknown(request, PAGE_PARAMETERS)
        rows = RoutingPolicy.objects.active().prefetch_related("tiers")
        pages = self.pagination_class()
        page = pages.paginate_queryset(rows.order_by("name"), request, view=self)
        return pages.get_paginated_response(PolicySerializer(page, many=True).data)
