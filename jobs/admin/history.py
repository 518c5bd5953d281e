from functools import partial

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from jobs import lifecycle
from jobs.admin.base import HistoryAdmin, HistoryInline
from jobs.exceptions import TransitionConflict
from jobs.models import (
    Artifact,
    Attempt,
    AuditRecord,
    AuditSeal,
    Job,
    JobDependency,
    JobEvent,
    UnsealedRecord,
    UsageRecord,
    User,
)
from jobs.status import Status

# As in a mail: where only text goes, the symbol is in front of the word.
SYMBOLS = {
    Status.QUEUED: "\u25cb",
    Status.STARTING: "\u25d0",
    Status.RUNNING: "\u25b7",
    Status.SUCCEEDED: "\u2713",
    Status.FAILED: "\u2717",
    Status.CANCELLED: "\u2298",
}


class AttemptInline(HistoryInline):
    model = Attempt
    fields = (
        "number",
        "kind",
        "phase",
        "node",
        "reason",
        "exit_code",
        "started_at",
        "ended_at",
    )
    ordering = ("number",)
    show_change_link = True


class EventInline(HistoryInline):
    model = JobEvent
    fields = ("created_at", "event_type", "actor", "payload")
    ordering = ("id",)


class DependencyInline(HistoryInline):
    model = JobDependency
    fields = ("parent_id", "condition", "outcome")
    ordering = ("id",)


class ArtifactInline(HistoryInline):
    model = Artifact
    fields = ("path", "size", "mime_type", "sha256")


@admin.register(Job)
class JobAdmin(HistoryAdmin):
    list_display = (
        "name",
        "symbol",
        "owner",
        "gpu_count",
        "min_vram_mb",
        "priority",
        "why",
        "created_at",
        "finished_at",
    )
    list_filter = ("status", "reason", "wait_reason", "owner", "group", "visibility")
    list_select_related = ("owner",)
    search_fields = ("id__startswith", "name", "image", "owner__email", "group")
    actions = ("hold", "release", "move_to_top", "accept", "reject")
    date_hierarchy = "created_at"
    # Values often are passwords: only the job's owner sees them.
    exclude = ("env", "idempotency_key")
    readonly_fields = ("env_names",)
    inlines = (AttemptInline, DependencyInline, EventInline)

    @admin.action(description="Hold", permissions=["view"])
    def hold(self, request: HttpRequest, jobs: QuerySet[Job]) -> None:
        self._do(request, jobs, lifecycle.hold, "held")

    @admin.action(description="Release", permissions=["view"])
    def release(self, request: HttpRequest, jobs: QuerySet[Job]) -> None:
        self._do(request, jobs, lifecycle.release_hold, "released")

    @admin.action(description="Move to the top of the queue", permissions=["view"])
    def move_to_top(self, request: HttpRequest, jobs: QuerySet[Job]) -> None:
        self._do(request, jobs, lifecycle.move_to_top, "moved to the top")

    @admin.action(description="Accept the result in review", permissions=["view"])
    def accept(self, request: HttpRequest, jobs: QuerySet[Job]) -> None:
        self._do(request, jobs, partial(lifecycle.review, accepts=True), "accepted")

    @admin.action(description="Reject the result in review", permissions=["view"])
    def reject(self, request: HttpRequest, jobs: QuerySet[Job]) -> None:
        self._do(request, jobs, partial(lifecycle.review, accepts=False), "rejected")

    def _do(
        self,
        request: HttpRequest,
        jobs: QuerySet[Job],
        verb: lifecycle.Verb,
        done: str,
    ) -> None:
        assert isinstance(request.user, User)
        count = 0
        for job in jobs:
            try:
                verb(job, by=request.user)
                count += 1
            except TransitionConflict as conflict:
                self.message_user(request, str(conflict), messages.WARNING)
        noun = "job" if count == 1 else "jobs"
        self.message_user(request, f"{count} {noun} {done}.")

    @admin.display(description="status", ordering="status")
    def symbol(self, job: Job) -> SafeString:
        return format_html("{}&nbsp;{}", SYMBOLS[Status(job.status)], job.status)

    @admin.display(description="reason")
    def why(self, job: Job) -> str:
        return job.reason or job.wait_reason

    @admin.display(description="environment")
    def env_names(self, job: Job) -> str:
        return ", ".join(sorted(job.env))


@admin.register(Attempt)
class AttemptAdmin(HistoryAdmin):
    list_display = (
        "container_name",
        "kind",
        "phase",
        "node",
        "reason",
        "exit_code",
        "created_at",
        "ended_at",
    )
    list_filter = ("phase", "kind", "reason", "node")
    search_fields = ("job__id__startswith", "job__name", "container_id", "node")
    date_hierarchy = "created_at"
    # It tells our container from a forgery.
    exclude = ("nonce", "sealed")
    inlines = (ArtifactInline,)


@admin.register(JobDependency)
class JobDependencyAdmin(HistoryAdmin):
    list_display = ("job", "condition", "parent_id", "outcome")
    list_filter = ("condition", "outcome")
    list_select_related = ("job",)
    search_fields = ("job__id__startswith", "job__name", "parent_id__startswith")
    ordering = ("-id",)


@admin.register(JobEvent)
class JobEventAdmin(HistoryAdmin):
    list_display = ("created_at", "event_type", "job", "actor")
    list_filter = ("event_type",)
    list_select_related = ("job",)
    search_fields = ("job__id__startswith", "job__name", "actor")
    date_hierarchy = "created_at"
    ordering = ("-id",)


@admin.register(Artifact)
class ArtifactAdmin(HistoryAdmin):
    list_display = ("path", "attempt", "size", "mime_type", "created_at")
    list_filter = ("mime_type",)
    list_select_related = ("attempt",)
    search_fields = ("path", "sha256", "attempt__job__id__startswith")
    ordering = ("-created_at",)


@admin.register(AuditRecord)
class AuditRecordAdmin(HistoryAdmin):
    list_display = ("at", "actor", "action", "target", "address")
    list_filter = ("action",)
    search_fields = ("actor", "target", "address")
    date_hierarchy = "at"
    ordering = ("-id",)


@admin.register(AuditSeal)
class AuditSealAdmin(HistoryAdmin):
    list_display = ("number", "record_id", "sealed_at", "is_anchored", "hash")
    search_fields = ("number", "record_id", "hash__startswith")
    ordering = ("-number",)


@admin.register(UnsealedRecord)
class UnsealedRecordAdmin(HistoryAdmin):
    list_display = ("record_id",)


@admin.register(UsageRecord)
class UsageRecordAdmin(HistoryAdmin):
    list_display = (
        "ended_at",
        "owner",
        "group",
        "job",
        "attempt_number",
        "gpu_seconds",
        "fault",
    )
    list_filter = ("fault", "group")
    search_fields = ("owner", "job", "group")
    date_hierarchy = "ended_at"
    ordering = ("-id",)
