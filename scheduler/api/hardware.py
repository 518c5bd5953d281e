"""GPUs and nodes, as everybody who is logged in may see them."""

from typing import Any, TypeVar

from django.db.models import Model, Prefetch, QuerySet
from rest_framework import serializers
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api.access import READS
from jobs.api.fields import LabelsField
from jobs.api.filters import refuse_unknown
from jobs.api.views import PAGE_PARAMETERS
from scheduler.models import GPU, Allocation, Node

M = TypeVar("M", bound=Model)


class ForeignProcessSerializer(serializers.Serializer[Any]):
    """A process in none of our containers. What is not known is empty, or null."""

    pid = serializers.IntegerField()
    user = serializers.CharField()
    process = serializers.CharField()
    used_mb = serializers.IntegerField(allow_null=True)
    container = serializers.CharField()


class GPUSerializer(serializers.ModelSerializer[GPU]):
    """MiB. `over_promise_mb` is what shared attempts use beyond their promise."""

    node = serializers.CharField(source="node.name")
    usable_mb = serializers.IntegerField(read_only=True)
    promised_mb = serializers.SerializerMethodField()
    over_promise_mb = serializers.SerializerMethodField()
    foreign_processes = ForeignProcessSerializer(many=True)

    class Meta:
        model = GPU
        fields = [
            "uuid",
            "index",
            "name",
            "node",
            "state",
            "state_reason",
            "state_until",
            "is_present",
            "total_mb",
            "reserved_mb",
            "headroom_mb",
            "usable_mb",
            "promised_mb",
            "over_promise_mb",
            "used_mb",
            "foreign_mb",
            "foreign_processes",
            "utilisation",
            "temperature",
            "power_w",
            "sampled_at",
        ]

    def get_promised_mb(self, gpu: GPU) -> int:
        return sum(allocation.vram_mb for allocation in gpu.allocations.all())

    def get_over_promise_mb(self, gpu: GPU) -> int:
        return sum(allocation.over_promise_mb for allocation in gpu.allocations.all())


class NodeSerializer(serializers.ModelSerializer[Node]):
    labels = LabelsField()

    class Meta:
        model = Node
        fields = [
            "name",
            "state",
            "state_reason",
            "state_until",
            "labels",
            "heartbeat_at",
            "cpus",
            "memory_mb",
            "reports",
        ]


class StrictList(ListAPIView[M]):
    scopes = READS

    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        refuse_unknown(request, PAGE_PARAMETERS)
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
