"""What of a job's page needs the hardware."""

import json
from dataclasses import dataclass
from typing import Any

from django import template

from jobs.models import Job
from scheduler import reservation
from scheduler.api.jobs import moment
from scheduler.bars import Part, parts
from scheduler.placement import Line
from scheduler.placement.forecast import Certainty

register = template.Library()

_SURE = {
    Certainty.NOW: "With the next pass, within seconds.",
    Certainty.LATEST: (
        "At the latest, by the limits of what runs; sooner if that ends early. A more "
        "urgent job may still come first."
    ),
    Certainty.ESTIMATE: (
        "If all ahead of it run to their limits. Sooner if they end early, later if "
        "others pass it meanwhile."
    ),
    Certainty.UNKNOWN: "Nothing guarantees a time, so none is made up.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    line: Line
    parts: list[Part]
    # From where on it must be free for this job; None where it asks for no size.
    ask: float | None


_KINDS = {
    "exit_code": "exit code 0",
    "artifact": "a file {artifact}",
    "json_schema": "{path} meets a JSON Schema",
    "pattern": "a pattern in {path}",
    "number": "{number} in {path} is within its bounds",
    "container": "a container of {container} looks at it",
}


@register.filter
def validator(told: dict[str, Any]) -> str:
    """A validator as its document has it, in words."""
    word = next((word for word in _KINDS if word in told), "")
    return _KINDS[word].format_map(told) if word else ""


@register.filter
def as_json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


@register.inclusion_tag("scheduler/_explain.html")
def explain(job: Job) -> dict[str, Any]:
    said = reservation.explain(job)
    found = said.explained
    return {
        "job": job,
        "said": said,
        "explained": found,
        "starts_at": moment(found.expected.at) if found else None,
        "sure": _SURE[found.expected.certainty] if found else "",
        "rows": [_row(line, job) for line in found.lines] if found else [],
    }


def _row(line: Line, job: Job) -> Row:
    gpu = line.gpu
    usable = max(1, gpu.usable_mb)
    bar = parts(
        gpu.usable_mb,
        measured_mb=gpu.measured_mb,
        need_mb=gpu.need_mb,
        foreign_mb=gpu.foreign_mb,
    )
    wanted = job.min_vram_mb
    fits = wanted is not None and wanted <= usable
    ask = round(100 * (1 - (wanted or 0) / usable), 1) if fits else None
    return Row(line=line, parts=[part for part in bar if part.mb], ask=ask)
