"""What the hardware is and who holds it, for operators."""

from typing import Any

from django import forms
from django.apps import apps
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from jobs import audit
from jobs.admin import HistoryAdmin, HistoryInline
from scheduler.models import (
    GPU,
    Allocation,
    GpuSample,
    GpuState,
    Node,
    NodeImage,
    NodeState,
    PassLease,
)

# A schedule names any function of Python, and a queued task is a pickle: who may
# write one, or send one again, runs code here.
for _name in ("Schedule", "OrmQ", "Success", "Failure"):
    _model = apps.get_model("django_q", _name)
    if admin.site.is_registered(_model):
        admin.site.unregister(_model)


@admin.register(
    apps.get_model("django_q", "Success"), apps.get_model("django_q", "Failure")
)
class TaskAdmin(HistoryAdmin):
    list_display = ("name", "func", "cluster", "started", "stopped", "attempt_count")
    list_filter = ("func", "cluster")
    search_fields = ("name", "func")
    fields = (
        "name",
        "func",
        "args",
        "cluster",
        "started",
        "stopped",
        "attempt_count",
        "result",
    )


class GpuInline(HistoryInline):
    model = GPU
    fields = (
        "index",
        "name",
        "total_mb",
        "headroom_mb",
        "state",
        "used_mb",
        "foreign_mb",
    )
    show_change_link = True


class ImageInline(HistoryInline):
    model = NodeImage
    fields = ("image", "state", "bytes_done", "bytes_total", "updated_at")


@admin.register(Node)
class NodeAdmin(HistoryAdmin):
    list_display = ("name", "state", "heartbeat_at", "cpus", "memory_mb")
    list_filter = ("state",)
    search_fields = ("name", "boot_id")
    inlines = (GpuInline, ImageInline)
    actions = ("drain", "undrain")

    @admin.action(description="Drain: running jobs end, none starts")
    def drain(self, request: HttpRequest, nodes: QuerySet[Node]) -> None:
        self._set(request, nodes, NodeState.DRAINING)

    @admin.action(description="End draining")
    def undrain(self, request: HttpRequest, nodes: QuerySet[Node]) -> None:
        # Up again by its supervisor's next heartbeat, if that is there.
        draining = nodes.filter(state=NodeState.DRAINING)
        self._set(request, draining, NodeState.JOINING)

    def _set(
        self, request: HttpRequest, nodes: QuerySet[Node], state: NodeState
    ) -> None:
        for node in nodes:
            Node.objects.filter(pk=node.pk).update(state=state)
            audit.record("node.changed", target=node, by=request.user, state=state)


class GpuForm(forms.ModelForm):
    def clean_headroom_mb(self) -> int:
        headroom_mb = int(self.cleaned_data["headroom_mb"])
        most = self.instance.total_mb - self.instance.reserved_mb
        if not 0 <= headroom_mb <= most:
            text = f"The headroom is 0 to {most:,} MiB, what this GPU has."
            raise forms.ValidationError(text, "out_of_range")
        return headroom_mb

    def clean(self) -> None:
        data = self.cleaned_data
        if data.get("state") != GpuState.ENABLED and not data.get("state_reason"):
            text = "Say why: those whose jobs wait for it will read this."
            self.add_error("state_reason", text)


@admin.register(GPU)
class GpuAdmin(HistoryAdmin):
    form = GpuForm
    list_display = (
        "__str__",
        "name",
        "state",
        "total_mb",
        "usable_mb",
        "used_mb",
        "foreign_mb",
        "utilisation",
        "sampled_at",
    )
    list_filter = ("state", "is_present", "node", "name")
    list_select_related = ("node",)
    search_fields = ("uuid", "name", "pci_bus_id", "node__name")
    editable = ("headroom_mb", "state", "state_reason")

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.has_view_permission(request)

    def get_readonly_fields(
        self, request: HttpRequest, obj: Any = None
    ) -> tuple[str, ...]:
        names = (field.name for field in GPU._meta.fields)
        return tuple(name for name in names if name not in self.editable)

    def save_model(
        self, request: HttpRequest, obj: GPU, form: Any, change: bool
    ) -> None:
        if not form.changed_data:
            return
        # The supervisor writes the same row: save what was changed here, no more.
        obj.save(update_fields=form.changed_data)
        changes = {name: form.cleaned_data[name] for name in form.changed_data}
        audit.record("gpu.changed", target=obj.uuid, by=request.user, **changes)


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
