"""What the first page of the admin says of the invariants."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django import template
from django.utils import timezone

from scheduler.models import Node, Verification

register = template.Library()

# The supervisors check every minute.
OLD = timedelta(minutes=3)
MOST_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Of one node. `text` is a sentence; `kind` a class of the admin's messages."""

    node: str
    kind: str
    text: str
    findings: list[dict[str, Any]]


@register.inclusion_tag("scheduler/_verification.html")
def verification() -> dict[str, Any]:
    rows = {row.node: row for row in Verification.objects.all()}
    names = {*rows, *Node.objects.values_list("name", flat=True)}
    now = timezone.now()
    return {"nodes": [_told(name, rows.get(name), now) for name in sorted(names)]}


def _told(node: str, row: Verification | None, now: datetime) -> Told:
    if row is None:
        text = f"The invariants were never checked on {node}: start its supervisor."
        return Told(node=node, kind="warning", text=text, findings=[])
    wrong = [each for each in row.findings if not each["is_information"]]
    when = f"checked {_ago(now - row.at)} ago on {node}"
    if wrong:
        how_many = "1 finding" if len(wrong) == 1 else f"{len(wrong)} findings"
        kind, text = "error", f"{how_many} against the invariants, {when}."
    else:
        kind, text = "success", f"All invariants hold, {when}."
    # Either way: a clock that was set back must not make it new for hours.
    if abs(now - row.at) > OLD:
        kind = "error" if wrong else "warning"
        text += " That is too long ago: see whether its supervisor runs."
    return Told(node=node, kind=kind, text=text, findings=row.findings[:MOST_SHOWN])


def _ago(age: timedelta) -> str:
    seconds = abs(int(age.total_seconds()))
    if seconds < 120:
        return f"{seconds} s"
    minutes = seconds // 60
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h"
