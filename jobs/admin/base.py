from typing import Any

from django import forms
from django.contrib import admin
from django.db import transaction
from django.db.models import Model, QuerySet
from django.forms import model_to_dict
from django.http import HttpRequest

from jobs import audit


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


class ToldAdmin(admin.ModelAdmin):
    """Each row that is added, changed or deleted leaves a record with before and after,
    in the same transaction."""

    def save_related(
        self, request: HttpRequest, form: Any, formsets: Any, change: bool
    ) -> None:
        super().save_related(request, form, formsets, change)
        names = [name for name in form.changed_data if "password" not in name]
        before = {name: _chosen(form, name, form.initial.get(name)) for name in names}
        after = {name: _chosen(form, name, form.cleaned_data[name]) for name in names}
        if change and before == after:
            return
        self._tell(
            request, form.instance, "changed" if change else "added", before, after
        )

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        self._tell(request, obj, "deleted", model_to_dict(obj), {})
        super().delete_model(request, obj)

    @transaction.atomic
    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        for row in queryset:
            self.delete_model(request, row)

    def _tell(
        self,
        request: HttpRequest,
        obj: Any,
        done: str,
        before: dict[str, Any],
        after: dict[str, Any],
    ) -> None:
        action = f"{self.opts.model_name}.{done}"
        was = {} if done == "added" else before
        audit.change(action, target=obj, by=request.user, before=was, after=after)


def _chosen(form: Any, name: str, value: Any) -> Any:
    """Rows by what they are called: a form begins with keys and ends with rows."""
    field = form.fields[name]
    if isinstance(field, forms.ModelMultipleChoiceField):
        return sorted(str(row) for row in value or ())
    if isinstance(field, forms.ModelChoiceField) and not isinstance(value, Model):
        return field.to_python(value)
    return value


class HistoryAdmin(LooksOnly, admin.ModelAdmin):
    actions: tuple[str, ...] | None = None
    show_full_result_count = False
    list_per_page = 50


class HistoryInline(LooksOnly, admin.TabularInline):
    extra = 0
    can_delete = False
    show_change_link = False
