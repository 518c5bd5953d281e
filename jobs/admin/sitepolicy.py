from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from jobs.admin.base import LooksOnly, ToldAdmin
from jobs.models import SitePolicy


@admin.register(SitePolicy)
class SitePolicyAdmin(ToldAdmin):
    """Every operator may read it; a superuser writes it, below the hosts' own files."""

    list_display = ("__str__", "text")
    has_view_permission = LooksOnly.has_view_permission
    has_module_permission = LooksOnly.has_module_permission

    def has_add_permission(self, request: HttpRequest) -> bool:
        return request.user.is_superuser and not SitePolicy.objects.exists()

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.is_superuser

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False
