"""The job list as CSV: what is seen there, with the same filters."""

import csv
from collections.abc import Iterator
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, StreamingHttpResponse
from django.utils import timezone
from django.views.decorators.http import require_GET

from jobs.forms import JobFilterForm
from jobs.models import Job, User

MOST_ROWS = 100_000
COLUMNS = (
    *("id", "name", "owner", "group", "status", "reason", "exit_code", "image"),
    *("model_name", "tier", "gpu_count", "min_vram_mb", "priority", "node_gpus"),
    *("created_at", "started_at", "finished_at"),
)
# A spreadsheet takes a cell that begins so for a formula (OWASP, CSV injection).
FORMULA = ("=", "+", "-", "@", "\t", "\r")


class _Echo:
    """A file for csv.writer that hands each line on."""

    def write(self, line: str) -> str:
        return line


@login_required
@require_GET
def job_csv(request: HttpRequest) -> StreamingHttpResponse:
    assert isinstance(request.user, User)
    form = JobFilterForm(request.GET, user=request.user)
    jobs = form.narrow(Job.objects.visible_to(request.user).select_related("owner"))
    answer = StreamingHttpResponse(lines(jobs), content_type="text/csv; charset=utf-8")
    name = f"jobs-{timezone.now():%Y%m%d-%H%M%S}.csv"
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer


def lines(jobs: Any) -> Iterator[str]:
    writer = csv.writer(_Echo())
    yield writer.writerow(COLUMNS)
    for job in jobs[:MOST_ROWS].iterator(chunk_size=1000):
        yield writer.writerow([inert(value) for value in _row(job)])


def _row(job: Job) -> Iterator[object]:
    for name in COLUMNS:
        if name == "owner":
            yield job.owner.email
        elif name == "node_gpus":
            yield " ".join(map(str, job.assigned_gpu_indices))
        elif name.endswith("_at"):
            at = getattr(job, name)
            yield at.isoformat(timespec="seconds") if at else ""
        else:
            yield getattr(job, name)


def inert(value: object) -> object:
    """A text that no spreadsheet computes: with a quote before what would begin it."""
    if isinstance(value, str) and value.startswith(FORMULA):
        return f"'{value}"
    return "" if value is None else value
