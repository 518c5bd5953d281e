from typing import Any

from django.contrib import admin
from django.http import HttpRequest


class LooksOnly:
    """Every operator may look, and nobody may add, change or delete."""

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.is_active and request.user.is_staff

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class HistoryAdmin(LooksOnly, admin.ModelAdmin):
    actions: tuple[str, ...] | None = None
    show_full_result_count = False
    list_per_page = 50


class HistoryInline(LooksOnly, admin.TabularInline):
    extra = 0
    can_delete = False
    show_change_link = False
