import re
from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from jobs.admin import HistoryInline
from scheduler.admin.service import BACK, SERVICE, ServiceAdmin, ServiceForm
from scheduler.models import GPU, OUT_OF_SERVICE, Node, NodeImage, NodeState

MOST_LABELS = 20
LABEL_WORD = re.compile(r"[A-Za-z0-9._/-]{1,63}")


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
    fields = ("image", "state", "text", "bytes_done", "bytes_total", "updated_at")


class NodeForm(ServiceForm):
    """Of the states only an operator's can be chosen; the rest are the supervisor's."""

    state = forms.ChoiceField(
        choices=[
            (NodeState.UP, "in service"),
            (NodeState.DRAINING, "draining: running jobs end, none starts"),
            (NodeState.QUARANTINED, "quarantined: something is wrong with it"),
        ]
    )
    labels = forms.CharField(
        required=False,
        widget=forms.Textarea(attrs={"rows": 5}),
        help_text="One key=value a line, such as gpu=a100; jobs may ask for them.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.state not in OUT_OF_SERVICE:
            self.initial["state"] = NodeState.UP
        labels = sorted(self.instance.labels.items())
        self.initial["labels"] = "\n".join(f"{key}={value}" for key, value in labels)

    def clean_state(self) -> str:
        chosen, before = self.cleaned_data["state"], self.before["state"]
        if chosen in OUT_OF_SERVICE:
            return str(chosen)
        # Up again by its supervisor's next heartbeat, if that is there.
        return str(NodeState.JOINING if before in OUT_OF_SERVICE else before)

    def clean_labels(self) -> dict[str, str]:
        lines = [line.strip() for line in self.cleaned_data["labels"].splitlines()]
        labels: dict[str, str] = {}
        for line in filter(None, lines):
            key, value = _label(line)
            if key in labels:
                raise forms.ValidationError(f"{key} is there twice.", "twice")
            labels[key] = value
        if len(labels) > MOST_LABELS:
            text = f"A node has at most {MOST_LABELS} labels."
            raise forms.ValidationError(text, "too_many")
        return labels


def _label(line: str) -> tuple[str, str]:
    key, equals, value = line.partition("=")
    words = (key.strip(), value.strip())
    if not equals or not all(LABEL_WORD.fullmatch(word) for word in words):
        text = (
            f"{line[:150]!r} is no label. Write key=value, both of 1 to 63 letters, "
            "digits and . _ / -"
        )
        raise forms.ValidationError(text, "bad_label")
    return words


@admin.register(Node)
class NodeAdmin(ServiceAdmin):
    form = NodeForm
    editable = (*SERVICE, "labels")
    changed = "node.changed"
    named_by = "name"
    list_display = (
        "name",
        "state",
        "state_reason",
        "state_until",
        "heartbeat_at",
        "cpus",
        "memory_mb",
    )
    list_filter = ("state",)
    search_fields = ("name", "boot_id")
    fields = (
        *editable,
        "state_by",
        "name",
        "heartbeat_at",
        "boot_id",
        "versions",
        "cpus",
        "memory_mb",
        "reports",
    )
    inlines = (GpuInline, ImageInline)
    actions = ("drain", "undrain")

    def get_inline_instances(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        # Tables to look at, whose rows come and go while the page is open: nothing of
        # them is sent.
        if request.method == "POST":
            return []
        return super().get_inline_instances(request, obj)

    @admin.action(description="Drain: running jobs end, none starts")
    def drain(self, request: HttpRequest, nodes: QuerySet[Node]) -> None:
        reason = f"drained by {request.user}"[:255]
        changes = {"state": NodeState.DRAINING, "state_reason": reason}
        self._apply_all(request, nodes.exclude(state__in=OUT_OF_SERVICE), changes)

    @admin.action(description="End draining")
    def undrain(self, request: HttpRequest, nodes: QuerySet[Node]) -> None:
        changes = {"state": NodeState.JOINING, **BACK}
        self._apply_all(request, nodes.filter(state=NodeState.DRAINING), changes)

    def _apply_all(
        self, request: HttpRequest, nodes: QuerySet[Node], changes: dict[str, Any]
    ) -> None:
        changed = list(nodes)
        for node in changed:
            before = {name: getattr(node, name) for name in changes}
            self.apply(request, node, changes, before)
        self.message_user(request, f"{len(changed)} changed.")
