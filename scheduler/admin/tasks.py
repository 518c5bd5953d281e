"""What the task queue did, to look at only."""

from django.apps import apps
from django.contrib import admin

from jobs.admin import HistoryAdmin

# A schedule names any function of Python, and a queued task is a pickle: who may
# write one, or send one again, runs code here.
for _name in ("Schedule", "OrmQ", "Success", "Failure"):
    _model = apps.get_model("django_q", _name)
    if admin.site.is_registered(_model):
        admin.site.unregister(_model)


@admin.register(
    apps.get_model("django_q", "Success"), apps.get_model("django_q", "Failure")
)
class TaskAdmin(HistoryAdmin):
    list_display = ("name", "func", "cluster", "started", "stopped", "attempt_count")
    list_filter = ("func", "cluster")
    search_fields = ("name", "func")
    fields = (
        "name",
        "func",
        "args",
        "cluster",
        "started",
        "stopped",
        "attempt_count",
        "result",
    )
