from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.models import Group
from django.http import HttpRequest

from jobs.admin.base import ToldAdmin

admin.site.unregister(Group)


@admin.register(Group)
class GroupAdmin(ToldAdmin, DjangoGroupAdmin):
    """Whose jobs are accounted together, and rights that its members have."""

    def get_readonly_fields(
        self, request: HttpRequest, obj: Any = None
    ) -> tuple[Any, ...]:
        # Who is in the group has its permissions: else who may change groups could
        # give everything to their own.
        own = () if request.user.is_superuser else ("permissions",)
        return (*super().get_readonly_fields(request, obj), *own)
