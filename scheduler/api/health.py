"""Health with what the scheduler knows of its parts. Says nothing about hosts."""

from datetime import timedelta
from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api import views
from scheduler import reservation
from scheduler.models import Node

# Of a supervisor that beats every second.
SILENCE = timedelta(seconds=15)


class NodesHealthSerializer(serializers.Serializer[Any]):
    """How many there are, and how many were not heard of for 15 s."""

    known = serializers.IntegerField()
    silent = serializers.IntegerField()


class HealthSerializer(serializers.Serializer[Any]):
    """`status` is ok, or degraded: this server answers, but jobs may wait."""

    status = serializers.CharField()
    database = serializers.CharField()
    scheduler = serializers.CharField()
    nodes = NodesHealthSerializer()


class HealthView(views.HealthView):
    @extend_schema(responses=HealthSerializer)
    def get(self, request: Request) -> Response:
        answer = super().get(request)
        known = Node.objects.count()
        silent = (
            known
            - Node.objects.filter(heartbeat_at__gt=timezone.now() - SILENCE).count()
        )
        is_silent = reservation.is_silent()
        answer.data |= {
            "status": "degraded" if silent or is_silent else "ok",
            "scheduler": "silent" if is_silent else "ok",
            "nodes": {"known": known, "silent": silent},
        }
        return answer
