from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.models import Group
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest

from jobs import audit

admin.site.unregister(Group)


@admin.register(Group)
class GroupAdmin(DjangoGroupAdmin):
    def get_readonly_fields(
        self, request: HttpRequest, obj: Any = None
    ) -> tuple[Any, ...]:
        # Who is in the group has its permissions: else who may change groups could
        # give everything to their own.
        own = () if request.user.is_superuser else ("permissions",)
        return (*super().get_readonly_fields(request, obj), *own)

    def save_model(
        self, request: HttpRequest, obj: Group, form: Any, change: bool
    ) -> None:
        super().save_model(request, obj, form, change)
        action = "group.changed" if change else "group.added"
        audit.record(action, target=obj, by=request.user, fields=form.changed_data)

    def delete_model(self, request: HttpRequest, obj: Group) -> None:
        audit.record("group.deleted", target=obj, by=request.user)
        super().delete_model(request, obj)

    @transaction.atomic
    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Group]) -> None:
        for group in queryset:
            self.delete_model(request, group)
