from typing import Any

from django import forms
from django.contrib import admin
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from scheduler.admin.service import SERVICE, ServiceAdmin, ServiceForm
from scheduler.models import GPU


class GpuForm(ServiceForm):
    def clean_headroom_mb(self) -> int:
        headroom_mb = int(self.cleaned_data["headroom_mb"])
        most = self.instance.total_mb - self.instance.reserved_mb
        if not 0 <= headroom_mb <= most:
            text = f"The headroom is 0 to {most:,} MiB, what this GPU has."
            raise forms.ValidationError(text, "out_of_range")
        return headroom_mb


@admin.register(GPU)
class GpuAdmin(ServiceAdmin):
    form = GpuForm
    editable = (*SERVICE, "headroom_mb")
    changed = "gpu.changed"
    named_by = "uuid"
    list_display = (
        "__str__",
        "name",
        "state",
        "state_until",
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
    fields = (
        *editable,
        "state_by",
        "node",
        "uuid",
        "index",
        "name",
        "total_mb",
        "reserved_mb",
        "is_present",
        "pci_bus_id",
        "nvlink_peers",
        "used_mb",
        "foreign_mb",
        "strangers",
        "utilisation",
        "temperature",
        "power_w",
        "sampled_at",
    )

    @admin.display(description="foreign processes")
    def strangers(self, gpu: GPU) -> SafeString | str:
        lines = [(_line(process),) for process in gpu.foreign_processes]
        return format_html_join("", "<div>{}</div>", lines) or "none"


def _line(process: dict[str, Any]) -> str:
    """Their names are their own, and may be anything."""
    used_mb = process["used_mb"]
    size = "unknown size" if used_mb is None else f"{used_mb:,} MiB"
    where = f" in container {process['container']}" if process["container"] else ""
    who = process["user"] or "unknown user"
    what = process["process"] or "unknown process"
    return f"{size}: {what} (pid {process['pid']}) of {who}{where}"
