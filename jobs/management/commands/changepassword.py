from typing import Any

from django.contrib.auth.management.commands import changepassword

from jobs import audit
from jobs.models import User


class Command(changepassword.Command):
    """Django's, with the record of it."""

    def handle(self, *args: Any, **options: Any) -> str | None:
        before = dict(User.objects.values_list("pk", "password"))
        answer = super().handle(*args, **options)
        for user in User.objects.all():
            if before.get(user.pk) != user.password:
                audit.record("user.password_set", target=user, by=audit.console())
        return answer
