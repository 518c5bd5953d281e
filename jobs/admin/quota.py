from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from jobs import lifecycle
from jobs.admin.base import LooksOnly, ToldAdmin
from jobs.models import Quota


@admin.register(Quota)
class QuotaAdmin(ToldAdmin):
    """What a person, a group, or everybody else may have at once."""

    list_display = (
        "__str__",
        "running_jobs",
        "gpus",
        "vram_mb",
        "queued_jobs",
        "gpu_hours",
        "shares",
    )
    list_select_related = ("user", "group")
    search_fields = ("user__email", "user__name", "group__name")
    ordering = ("user__email", "group__name")
    has_view_permission = LooksOnly.has_view_permission
    has_module_permission = LooksOnly.has_module_permission

    def save_related(
        self, request: HttpRequest, form: Any, formsets: Any, change: bool
    ) -> None:
        super().save_related(request, form, formsets, change)
        lifecycle.announce_queued()

    def delete_model(self, request: HttpRequest, obj: Quota) -> None:
        super().delete_model(request, obj)
        lifecycle.announce_queued()
