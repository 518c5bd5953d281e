"""Where a job may run, and when: labels of nodes, a time to begin, other jobs."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from django.core.exceptions import ValidationError
from django.utils import timezone

from jobs.spec import array
from jobs.spec.text import shown
from jobs.status import Condition

MAX_LABELS = 20
# What goes with a spec and is no field of a job.
TERMS = ("depends_on", "hold")
MAX_PARENTS = 100
# Rows that one submission may make: tasks of its array times jobs it waits for.
MAX_DEPENDENCIES = 10_000
FARTHEST_BEGIN = timedelta(days=366)
# Before it, a time may leave the calendar in somebody's time zone.
EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
_LABEL = re.compile(r"[A-Za-z0-9._/-]{1,63}")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


class Parent(NamedTuple):
    """A job, or an array by its id, that another job waits for."""

    job_id: UUID
    condition: Condition = Condition.AFTER_OK


def check_labels(value: Any) -> None:
    if not isinstance(value, dict):
        raise ValidationError(
            'Give an object of labels, for example {"zone": "lab"}.', "bad_labels"
        )
    if len(value) > MAX_LABELS:
        raise ValidationError(f"At most {MAX_LABELS} labels.", "too_many_labels")
    for part in [*value.keys(), *value.values()]:
        if not isinstance(part, str) or not _LABEL.fullmatch(part):
            raise ValidationError(
                f"{shown(part)} is no label: names and values are texts of 1 to 63 "
                "letters, digits, '.', '_', '/' or '-'.",
                "bad_label",
            )


def check_begin(value: datetime) -> None:
    """The past is taken for now; what is far ahead more often is a mistyped year."""
    if value < EARLIEST:
        raise ValidationError("Give a time after 1970, or none for now.", "min_value")
    if value > timezone.now() + FARTHEST_BEGIN:
        raise ValidationError("Give a time within a year from now.", "max_value")


def clean_parents(value: Any) -> list[Parent]:
    if not isinstance(value, list):
        raise ValidationError("Give a list of jobs.", "bad_depends_on")
    if len(value) > MAX_PARENTS:
        text = f"A job waits for at most {MAX_PARENTS} others."
        raise ValidationError(text, "too_many_parents")
    parents = [_parent(item) for item in value]
    seen: set[UUID] = set()
    for parent in parents:
        if parent.job_id in seen:
            text = f"{parent.job_id} is there twice. Give each job once."
            raise ValidationError(text, "doubled_parent")
        seen.add(parent.job_id)
    return parents


def _parent(item: Any) -> Parent:
    if isinstance(item, str):
        item = {"job_id": item}
    if (
        not isinstance(item, Mapping)
        or not {"job_id"} <= item.keys() <= {"job_id", "condition"}
        or item.get("condition", Condition.AFTER_OK) not in list(Condition)
    ):
        raise ValidationError(
            'Write each as a job\'s id, or as {"job_id": id, "condition": "after_ok" or '
            '"after_any"}.',
            "bad_depends_on",
        )
    job_id = item["job_id"]
    if not isinstance(job_id, str) or not _UUID.fullmatch(job_id):
        raise ValidationError(f"{shown(job_id)} is no job's id.", "bad_job_id")
    return Parent(UUID(job_id), Condition(item.get("condition", Condition.AFTER_OK)))


def placing_errors(data: Mapping[str, Any]) -> dict[str, ValidationError]:
    """What of a cleaned spec and its parents does not go together."""
    parents, tasks = data.get("depends_on") or [], data.get("array")
    if tasks and len(parents) * len(array.parse(tasks).indices) > MAX_DEPENDENCIES:
        most = MAX_DEPENDENCIES // len(array.parse(tasks).indices)
        text = f"Each task of so large an array may wait for at most {most} jobs."
        return {"depends_on": ValidationError(text, "too_many_parents")}
    return {}
