from django.conf import settings
from django.contrib.auth.models import Group
from django.core.validators import MinValueValidator
from django.db import models
from django.db.models import Q

from jobs.models.user import User

_AT_LEAST_0 = [MinValueValidator(0)]


class QuotaQuerySet(models.QuerySet["Quota"]):
    def limits(self) -> tuple[dict[str, "Quota"], dict[str, "Quota"], "Quota | None"]:
        """By a user's e-mail address, by a group's name, and of every other user."""
        users: dict[str, Quota] = {}
        groups: dict[str, Quota] = {}
        default: Quota | None = None
        for quota in self.select_related("user", "group"):
            if quota.user is not None:
                users[quota.user.email] = quota
            elif quota.group is not None:
                groups[quota.group.name] = quota
            else:
                default = quota
        return users, groups, default

    def concerning(self, user: User, group: str) -> "QuotaQuerySet":
        """The rows that a job of `user` accounted to `group` may meet."""
        default = Q(user__isnull=True, group__isnull=True)
        return self.filter(default | Q(user=user) | Q(group__name=group))


class Quota(models.Model):
    """What a user, or all jobs of a group, may have at once; null is no limit.

    The row with neither user nor group is for every user who has no own.
    """

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, null=True, blank=True
    )
    group = models.OneToOneField(Group, on_delete=models.CASCADE, null=True, blank=True)
    running_jobs = models.IntegerField(null=True, blank=True, validators=_AT_LEAST_0)
    gpus = models.IntegerField(null=True, blank=True, validators=_AT_LEAST_0)
    vram_mb = models.IntegerField(null=True, blank=True, validators=_AT_LEAST_0)
    queued_jobs = models.IntegerField(null=True, blank=True, validators=_AT_LEAST_0)
    # In the last 30 days, what runs now included.
    gpu_hours = models.IntegerField(null=True, blank=True, validators=_AT_LEAST_0)
    # How large a part of the hardware is fair: one with 3 may use thrice as much.
    shares = models.PositiveIntegerField(default=1, validators=[MinValueValidator(1)])

    objects = QuotaQuerySet.as_manager()

    class Meta:
        ordering = ["id"]
        constraints = [
            models.CheckConstraint(
                name="quota_of_user_or_group",
                condition=Q(user__isnull=True) | Q(group__isnull=True),
                violation_error_message="Choose a user or a group, not both.",
            ),
            models.UniqueConstraint(
                models.Value(1),
                name="quota_one_default",
                condition=Q(user__isnull=True, group__isnull=True),
                violation_error_message="There is a quota for every user already: change that one.",
            ),
            models.CheckConstraint(name="quota_shares", condition=Q(shares__gte=1)),
        ]

    def __str__(self) -> str:
        return str(self.user or self.group or "every user")
