"""Who held what, what was seen, and what was decided: to look at only."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from jobs.admin import HistoryAdmin
from scheduler.models import (
    Allocation,
    DecisionRecord,
    GpuSample,
    Lane,
    NodeImage,
    PassLease,
)


@admin.register(Allocation)
class AllocationAdmin(HistoryAdmin):
    list_display = (
        "attempt",
        "gpu",
        "vram_mb",
        "measured_mb",
        "is_exclusive",
        "reserved_at",
        "released_at",
    )
    list_filter = (
        ("released_at", admin.EmptyFieldListFilter),
        "is_exclusive",
        "gpu__node",
    )
    list_select_related = ("attempt", "gpu__node")
    search_fields = ("attempt__job__id__startswith", "attempt__job__name", "gpu__uuid")
    date_hierarchy = "reserved_at"
    ordering = ("-id",)


@admin.register(NodeImage)
class NodeImageAdmin(HistoryAdmin):
    list_display = ("image", "node", "state", "bytes_done", "bytes_total", "updated_at")
    list_filter = ("state", "node")
    list_select_related = ("node",)
    search_fields = ("image", "digest")


@admin.register(GpuSample)
class GpuSampleAdmin(HistoryAdmin):
    list_display = (
        "at",
        "gpu",
        "attempt",
        "used_mb",
        "foreign_mb",
        "utilisation",
        "temperature",
        "power_w",
    )
    list_filter = ("gpu__node",)
    list_select_related = ("gpu__node", "attempt")
    search_fields = ("gpu__uuid", "attempt__job__id__startswith")
    date_hierarchy = "at"
    ordering = ("-id",)


@admin.register(PassLease)
class PassLeaseAdmin(HistoryAdmin):
    list_display = ("__str__", "holder", "expires_at", "passed_at")


@admin.register(Lane)
class LaneAdmin(HistoryAdmin):
    list_display = ("key", "served_at")
    search_fields = ("key",)


@admin.register(DecisionRecord)
class DecisionRecordAdmin(HistoryAdmin):
    list_display = ("at", "inputs_hash", "brief")
    search_fields = ("inputs_hash",)
    date_hierarchy = "at"
    # The inputs are compressed: the hash names them.
    fields = ("at", "inputs_hash", "outcome")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).defer("inputs")

    @admin.display(description="outcome")
    def brief(self, decision: DecisionRecord) -> str:
        text = str(decision.outcome)
        return text if len(text) <= 200 else f"{text[:200]}\N{HORIZONTAL ELLIPSIS}"
