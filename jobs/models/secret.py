from collections.abc import Iterable
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import models
from django.utils import timezone

from jobs import secrets
from jobs.models.job import Job

# Rows that one person may have.
MOST_SECRETS = 100


class SecretQuerySet(models.QuerySet["Secret"]):
    def of(self, owner: Any, names: Any) -> dict[str, "Secret"]:
        return {row.name: row for row in self.filter(owner=owner, name__in=names)}


class Secret(models.Model):
    """A value that its owner may set and nobody may read; jobs name it."""

    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="secrets"
    )
    name = models.CharField(max_length=64)
    sealed = models.TextField()
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(default=timezone.now)
    last_used_at = models.DateTimeField(null=True, blank=True)

    objects = SecretQuerySet.as_manager()

    class Meta:
        ordering = ["owner", "name"]
        constraints = [
            models.UniqueConstraint(fields=["owner", "name"], name="secret_name"),
        ]

    def __str__(self) -> str:
        return f"{self.name} of {self.owner}"


def refuse_missing(owner: Any, names: Iterable[str]) -> None:
    """Raise ValidationError if the person has no secret of one of these names."""
    wanted = set(names)
    if lacking := sorted(wanted - Secret.objects.of(owner, wanted).keys()):
        text = f"You have no secret {lacking[0]}. Set it first: PUT /api/v1/secrets/{lacking[0]}."
        raise ValidationError(text, "no_such_secret")


def sealed_for(job: Job) -> dict[str, str]:
    """By variable, as sealed now; those used are noted as such. Raises
    ValidationError if one is not there any more."""
    refuse_missing(job.owner, job.secrets.values())
    rows = Secret.objects.of(job.owner, job.secrets.values())
    used = Secret.objects.filter(pk__in=[row.pk for row in rows.values()])
    used.update(last_used_at=timezone.now())
    return {key: rows[name].sealed for key, name in job.secrets.items()}


def unsealed(sealed: dict[str, str]) -> dict[str, str]:
    """By variable. Raises secrets.Unreadable."""
    key = settings.SECRET_KEY
    return {name: secrets.unseal(text, key) for name, text in sealed.items()}
