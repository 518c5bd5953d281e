from typing import Any

from django.contrib.auth.management.commands import createsuperuser

from jobs import audit
from jobs.models import User


class Command(createsuperuser.Command):
    """Django's, with the record of it."""

    def handle(self, *args: Any, **options: Any) -> None:
        before = set(
            User.objects.filter(is_superuser=True).values_list("pk", flat=True)
        )
        super().handle(*args, **options)
        for user in User.objects.filter(is_superuser=True).exclude(pk__in=before):
            after = {"is_staff": user.is_staff, "is_superuser": True}
            audit.change(
                "user.added", target=user, by=audit.console(), before={}, after=after
            )
