"""In service or out of it: the form and the page that a node and a GPU have in common.

The supervisor writes the same rows. What was changed here is saved, and no more.
"""

from typing import Any

from django import forms
from django.db import transaction
from django.http import HttpRequest
from django.utils import timezone

from jobs import audit
from jobs.admin import HistoryAdmin
from scheduler import reservation
from scheduler.models import OUT_OF_SERVICE

SERVICE = ("state", "state_reason", "state_until")
BACK: dict[str, Any] = {"state_reason": "", "state_until": None}


class ServiceForm(forms.ModelForm):
    """Out of service needs a reason; its time, if it has one, is still to come."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.before = {name: getattr(self.instance, name) for name in self.fields}
        zone = timezone.get_current_timezone_name()
        self.fields[
            "state_reason"
        ].help_text = "Those whose jobs wait for it read this."
        self.fields[
            "state_until"
        ].help_text = (
            f"In your time zone, {zone}. It comes back then; empty: when you say so."
        )

    def clean(self) -> None:
        if self.cleaned_data.get("state") in OUT_OF_SERVICE:
            self._clean_reason()
            self._clean_until()
        elif "state" in self.cleaned_data:
            self.cleaned_data |= {"state_reason": "", "state_until": None}

    def _clean_reason(self) -> None:
        if not self.cleaned_data.get("state_reason"):
            text = "Say why: those whose jobs wait for it will read this."
            self.add_error("state_reason", text)

    def _clean_until(self) -> None:
        if "state_until" not in self.changed_data and "state" not in self.changed_data:
            # Not what was shown, which leaves out the part of a second.
            self.cleaned_data["state_until"] = self.before["state_until"]
            return
        until = self.cleaned_data.get("state_until")
        if until and until <= timezone.now():
            self.add_error("state_until", "Give a time that is still to come, or none.")

    def changes(self) -> dict[str, Any]:
        """The new values, of what will be different."""
        cleaned = self.cleaned_data.items()
        return {name: value for name, value in cleaned if value != self.before[name]}


class ServiceAdmin(HistoryAdmin):
    """`editable` are the fields that an operator sets; all others are looked at."""

    editable: tuple[str, ...] = SERVICE
    # What the audit calls a change, and which field names the row there.
    changed = ""
    named_by = ""

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.has_view_permission(request)

    def get_readonly_fields(
        self, request: HttpRequest, obj: Any = None
    ) -> tuple[str, ...]:
        shown = self.get_fields(request, obj)
        return tuple(str(name) for name in shown if name not in self.editable)

    def save_model(
        self, request: HttpRequest, obj: Any, form: Any, change: bool
    ) -> None:
        changes = form.changes()
        if changes:
            self.apply(request, obj, changes, form.before)

    def apply(
        self,
        request: HttpRequest,
        obj: Any,
        changes: dict[str, Any],
        before: dict[str, Any],
    ) -> None:
        """Save these fields of a row, with who did it and the record of it. The wake
        comes after the commit: a pass that does not see the change yet must not
        answer it."""
        by = {}
        if not changes.keys().isdisjoint(SERVICE):
            is_out = changes.get("state", obj.state) in OUT_OF_SERVICE
            by = {"state_by": str(request.user) if is_out else ""}
        with transaction.atomic():
            self.model._default_manager.filter(pk=obj.pk).update(**changes, **by)
            target = getattr(obj, self.named_by)
            audit.change(
                self.changed,
                target=target,
                by=request.user,
                before={name: before[name] for name in changes},
                after=changes,
            )
            transaction.on_commit(reservation.wake, robust=True)
