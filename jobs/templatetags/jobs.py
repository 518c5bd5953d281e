"""How values read on a page: the words, units and times of the visual reference."""

import re
import shlex
from datetime import UTC, datetime, timedelta
from typing import Any

from django import template
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from jobs.models import Attempt, Job, JobEvent
from jobs.reasons import ENDINGS
from jobs.spec import NOT_ONE_LINE
from jobs.status import Phase, Reason, Status, WaitReason

register = template.Library()

# Whose peak is above this part of what it asked for asked rightly.
WORTH_ASKING = 0.6
TIMES = "\N{MULTIPLICATION SIGN}"

# Waits that a person should look into; the others end by themselves.
_ATTENTION = (
    WaitReason.FOREIGN_USE,
    WaitReason.NODE_DOWN,
    WaitReason.SCHEDULER_DOWN,
    WaitReason.NEVER_FITS,
)
_TOLD = {
    Status.QUEUED: "Submitted",
    Status.STARTING: "Reserved",
    Status.RUNNING: "Running",
    "exit_seen": "Exit seen",
    "cancel_requested": "Cancel requested",
    "stop_requested": "Stop requested",
    "requeued": "Back in the queue",
    "moved_to_top": "Moved to the top of the queue",
    "rerouted": "Routed anew",
    "in_review": "In review",
}
# CSI and OSC sequences, and two-character escapes.
_ANSI = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])"
)


@register.inclusion_tag("jobs/_badge.html")
def badge(status: str, word: str = "") -> dict[str, str]:
    return {"status": status, "word": word or status}


@register.inclusion_tag("jobs/_badge.html")
def attempt_badge(attempt: Attempt) -> dict[str, str]:
    if attempt.is_live:
        shape = Status.STARTING if attempt.phase == Phase.STARTING else Status.RUNNING
        return {"status": shape, "word": attempt.phase}
    return badge(Reason(attempt.reason).status)


@register.inclusion_tag("jobs/_copy.html")
def copy(text: object, what: str) -> dict[str, object]:
    return {"text": text, "what": what}


@register.inclusion_tag("jobs/_bar.html")
def bar(start: datetime, limit_s: int) -> dict[str, str]:
    """How much of the limit has passed; its width is an attribute, as the CSP needs."""
    share = (timezone.now() - start).total_seconds() / limit_s
    return {"width": f"{min(1.0, max(0.0, share)):.1%}"}


@register.filter
def duration(seconds: float) -> str:
    minutes, s = divmod(max(0, int(seconds)), 60)
    hours, m = divmod(minutes, 60)
    days, h = divmod(hours, 24)
    if days:
        return f"{days}d {h:02}h"
    if hours:
        return f"{h}h {m:02}m"
    return f"{m}m {s:02}s" if minutes else f"{s}s"


@register.simple_tag
def lasted(start: datetime | None, end: datetime | None) -> str:
    """From start to end, or to now while it goes on; empty before the start."""
    if start is None:
        return ""
    return duration(((end or timezone.now()) - start).total_seconds())


@register.filter
def vram(mb: int | None) -> str:
    return "" if mb is None else f"{mb / 1024:,.1f} GB"


@register.filter
def size(count: int) -> str:
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            break
        value /= 1000
    return f"{value:,.0f} B" if unit == "B" else f"{value:,.1f} {unit}"


@register.filter
def short(value: object) -> str:
    return str(value)[:8]


@register.filter
def asks(job: Job) -> str:
    if job.gpu_count == 0:
        return "no GPU"
    if job.min_vram_mb is None:
        return f"{job.gpu_count} {TIMES} any"
    return f"{job.gpu_count} {TIMES} {vram(job.min_vram_mb)}"


@register.simple_tag
def where(node: str | None, indices: list[int]) -> str:
    if not node or not indices:
        return node or ""
    return f"{node} GPU {', '.join(map(str, indices))}"


@register.filter
def shell_words(command: str | list[str] | None) -> str:
    return shlex.join(command) if isinstance(command, list) else command or ""


@register.filter
def attention(wait_reason: str) -> str:
    return "attention" if wait_reason in _ATTENTION else ""


@register.filter
def vram_advice(job: Job, attempt: Attempt) -> str:
    """Of one that asked for much more than it used; empty where there is nothing to
    gain."""
    peak = max(attempt.peak_vram_mb.values(), default=0)
    asked = job.min_vram_mb
    if attempt.ended_at is None or not peak or not asked or peak > asked * WORTH_ASKING:
        return ""
    # A fifth more than it came to, as no two runs are the same.
    enough = vram(round(peak * 1.2))
    return f"It asked for {vram(asked)}: with {enough} it would find a GPU sooner."


@register.filter
def what_to_do(reason: str) -> str:
    """The second sentence of docs/reasons.md."""
    return ENDINGS[Reason(reason)].do if reason in list(Reason) else ""


@register.filter
def ends_badly(status: str) -> str:
    return "bad" if status == Status.FAILED else "muted"


# --- Times ---------------------------------------------------------------------------


@register.simple_tag
def ago(at: datetime) -> SafeString:
    seconds = max(0, int((timezone.now() - at).total_seconds()))
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return _time(at, f"{seconds // length} {unit} ago")
    return _time(at, f"{seconds} s ago")


@register.simple_tag
def clock(at: datetime, form: str = "%H:%M:%S") -> SafeString:
    """The time of day, with the date unless it is today's."""
    local = timezone.localtime(at)
    if local.date() != timezone.localdate():
        return _time(at, f"{local:%d %b} {local:%H:%M}")
    return _time(at, local.strftime(form))


@register.simple_tag
def ends_by(start: datetime, limit_s: int) -> SafeString:
    return clock(start + timedelta(seconds=limit_s), "%H:%M")


def _time(at: datetime, text: str) -> SafeString:
    exact = timezone.localtime(at).strftime("%a %d %b %Y %H:%M:%S %Z")
    utc = at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return format_html('<time datetime="{}" title="{}">{}</time>', utc, exact, text)


# --- What programs and events say ----------------------------------------------------


@register.filter
def readable(line: str) -> str:
    """A line of a log as a terminal would leave it, with nothing that could act.

    Colours are dropped, a progress bar shows its last state, and what is still a
    control character or turns the direction of writing is shown as a mark.
    """
    shown = _ANSI.sub("", line).rstrip("\r").rpartition("\r")[2]
    return NOT_ONE_LINE.sub(lambda found: _mark(found[0]), shown)


def _mark(character: str) -> str:
    return character if character == "\t" else "\ufffd"


@register.filter
def event_name(event: JobEvent) -> str:
    default = event.event_type.replace("_", " ").capitalize()
    return _TOLD.get(event.event_type, default)


@register.filter
def event_details(event: JobEvent) -> str:
    """Its sentence where it has one, else its values by name."""
    facts = dict(event.payload)
    text = facts.pop("text", "")
    told = [_fact(name, value) for name, value in facts.items() if value or value == 0]
    return "; ".join(filter(None, [", ".join(told), text]))


def _fact(name: str, value: Any) -> str:
    if value is True:
        return name.replace("_", " ")
    shown = ", ".join(map(str, value)) if isinstance(value, list) else value
    return f"{name.replace('_', ' ')} {shown}"
