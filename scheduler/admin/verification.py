"""What the checks of the invariants found, to look at only."""

from django.contrib import admin
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from jobs.admin import HistoryAdmin
from scheduler.models import Verification


@admin.register(Verification)
class VerificationAdmin(HistoryAdmin):
    list_display = ("node", "at", "how_many")
    fields = ("node", "at", "told")

    @admin.display(description="findings")
    def how_many(self, verification: Verification) -> int:
        return len(verification.findings)

    @admin.display(description="findings")
    def told(self, verification: Verification) -> SafeString | str:
        lines = [
            (each["invariant"], each["what"], ", ".join(each["rows"]), each["do"])
            for each in verification.findings
        ]
        return format_html_join("", "<p>{}: {} [{}] {}</p>", lines) or "none"
