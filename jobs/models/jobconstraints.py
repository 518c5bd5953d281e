"""What the database refuses of a job's row, whoever writes it."""

from django.db import models
from django.db.models import F, Q

from jobs.models.bounds import MAX_GPUS, values
from jobs.status import TERMINAL, Status, Visibility

CONSTRAINTS = [
    models.CheckConstraint(
        name="job_status_known", condition=Q(status__in=values(Status))
    ),
    models.CheckConstraint(
        name="job_finished_when_terminal",
        condition=Q(status__in=values(TERMINAL), finished_at__isnull=False)
        | Q(~Q(status__in=values(TERMINAL)), finished_at__isnull=True),
    ),
    models.CheckConstraint(
        name="job_started_before_finished",
        condition=Q(started_at__isnull=True)
        | Q(finished_at__isnull=True)
        | Q(started_at__lte=F("finished_at")),
    ),
    models.CheckConstraint(
        name="job_running_has_started",
        condition=Q(started_at__isnull=False)
        | ~Q(status__in=values([Status.RUNNING, Status.SUCCEEDED])),
    ),
    # A NULL exit code would make the comparison NULL and pass: say both.
    models.CheckConstraint(
        name="job_succeeded_with_exit_0",
        condition=~Q(status=Status.SUCCEEDED.value)
        | Q(exit_code__isnull=False, exit_code=0),
    ),
    models.CheckConstraint(
        name="job_ended_with_reason",
        condition=~Q(status__in=values(TERMINAL)) | ~Q(reason=""),
    ),
    models.CheckConstraint(
        name="job_cancel_at_and_by",
        condition=Q(cancel_requested_at__isnull=True, cancel_requested_by__isnull=True)
        | Q(
            cancel_requested_at__isnull=False,
            cancel_requested_by__isnull=False,
        ),
    ),
    models.CheckConstraint(
        name="job_image",
        condition=~Q(image=""),
    ),
    models.CheckConstraint(
        name="job_model_by_a_policy",
        condition=Q(model_name="", policy__isnull=True, risk="")
        | (~Q(model_name="") & Q(policy__isnull=False) & ~Q(risk="")),
    ),
    models.CheckConstraint(
        name="job_sizes",
        condition=Q(
            gpu_count__range=(0, MAX_GPUS),
            timeout_s__gt=0,
            grace_s__gte=0,
            priority__range=(0, 100),
        )
        & (Q(min_vram_mb__isnull=True) | Q(min_vram_mb__gt=0)),
    ),
    models.CheckConstraint(
        name="job_share_says_how_much",
        condition=Q(share=False) | Q(min_vram_mb__isnull=False, gpu_count__gt=0),
    ),
    models.CheckConstraint(
        name="job_group_to_look_at_it",
        condition=Q(visibility=Visibility.OWNER.value)
        | (Q(visibility=Visibility.GROUP.value) & ~Q(group="")),
    ),
    models.CheckConstraint(
        name="job_held_at_and_by",
        condition=Q(held_at__isnull=True, held_by__isnull=True)
        | Q(held_at__isnull=False, held_by__isnull=False),
    ),
    models.CheckConstraint(
        name="job_task_of_an_array",
        condition=Q(array="", array_id__isnull=True, array_index__isnull=True)
        | (
            ~Q(array="")
            & Q(array_id__isnull=False, array_index__isnull=False)
            & Q(array_index__gte=0)
        ),
    ),
    models.UniqueConstraint(
        fields=["array_id", "array_index"], name="job_once_per_array_index"
    ),
    models.UniqueConstraint(
        fields=["owner", "idempotency_key"], name="job_once_per_key"
    ),
]
