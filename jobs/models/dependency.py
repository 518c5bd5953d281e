from django.db import models
from django.db.models import Q

from jobs.models.bounds import choices
from jobs.models.job import Job
from jobs.status import Condition


class JobDependency(models.Model):
    """`job` starts only after another job, or every task of an array, has ended.

    Given once, at submission, to jobs that exist: a cycle can not be written.
    """

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="dependencies")
    # Of a job or of an array. No foreign key: a parent that ended may be deleted.
    parent_id = models.UUIDField()
    condition = models.CharField(max_length=20, choices=choices(Condition))
    # The status that the parent ended with, once it has; of an array, the worst.
    outcome = models.CharField(max_length=20, blank=True)
    # The worst that those of the parent's jobs had ended with which are deleted.
    deleted_outcome = models.CharField(max_length=20, blank=True)

    class Meta:
        ordering = ["id"]
        verbose_name_plural = "job dependencies"
        constraints = [
            models.UniqueConstraint(
                fields=["job", "parent_id"], name="dependency_once_per_parent"
            ),
            models.CheckConstraint(
                name="dependency_not_of_itself", condition=~Q(parent_id=models.F("job"))
            ),
        ]
        indexes = [
            models.Index(
                fields=["parent_id"],
                name="dependency_open",
                condition=Q(outcome=""),
            )
        ]

    def __str__(self) -> str:
        return f"{self.condition}:{self.parent_id}"
