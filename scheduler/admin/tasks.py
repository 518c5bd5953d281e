"""What the cluster was asked for, to look at only."""

from django.apps import apps
from django.contrib import admin

from jobs.admin import HistoryAdmin
from scheduler.models import TaskMessage

# django-q2's own tables hold pickles, and a schedule names any function of Python: who
# may look at one row of them runs what it says.
for _name in ("Schedule", "OrmQ", "Success", "Failure"):
    _model = apps.get_model("django_q", _name)
    if admin.site.is_registered(_model):
        admin.site.unregister(_model)


@admin.register(TaskMessage)
class TaskMessageAdmin(HistoryAdmin):
    list_display = ("__str__", "node", "created_at", "claimed_at", "failed_at")
    list_filter = ("function", "queue")
    search_fields = ("arguments",)
    fields = (
        "function",
        "arguments",
        "node",
        "created_at",
        "claimed_at",
        "claimed_by",
        "failed_at",
        "error",
    )

    @admin.display(description="node")
    def node(self, message: TaskMessage) -> str:
        return message.queue or "any"
