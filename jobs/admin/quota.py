from typing import Any

from django import forms
from django.contrib import admin
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest

from jobs import audit, lifecycle
from jobs.admin.base import LooksOnly
from jobs.models import Quota


@admin.register(Quota)
class QuotaAdmin(admin.ModelAdmin):
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

    def save_model(
        self, request: HttpRequest, obj: Quota, form: forms.ModelForm, change: bool
    ) -> None:
        super().save_model(request, obj, form, change)
        action = "quota.changed" if change else "quota.added"
        said = {name: form.cleaned_data[name] for name in form.changed_data}
        audit.record(action, target=obj, by=request.user, **_as_json(said))
        lifecycle.announce_queued()

    def delete_model(self, request: HttpRequest, obj: Quota) -> None:
        audit.record("quota.deleted", target=obj, by=request.user)
        super().delete_model(request, obj)
        lifecycle.announce_queued()

    @transaction.atomic
    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Quota]) -> None:
        for quota in queryset.select_related("user", "group"):
            self.delete_model(request, quota)


def _as_json(said: dict[str, Any]) -> dict[str, Any]:
    return {
        n: v if v is None or isinstance(v, int) else str(v) for n, v in said.items()
    }
