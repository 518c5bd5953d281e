from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import models

from jobs.hostpolicy import (
    HostPolicy,
    HostPolicyError,
    host_policy,
    narrowed,
    said,
)


def _check(text: str) -> None:
    try:
        said(text)
    except HostPolicyError as error:
        raise ValidationError(str(error), "bad_policy") from None


class SitePolicy(models.Model):
    """What the site allows less than its hosts do: one row, in the words of their file."""

    text = models.TextField(
        "less than the hosts allow",
        blank=True,
        max_length=20_000,
        validators=[_check],
        help_text="As in policy.toml, for example timeout_s = 86400. What is not said stays as the host has it.",
    )

    class Meta:
        verbose_name_plural = "site policy"
        constraints = [
            models.UniqueConstraint(models.Value(1), name="site_policy_one"),
        ]

    def __str__(self) -> str:
        return "What the site allows"


def allowed() -> HostPolicy:
    """By this host's file and, within it, by the site's row. Raises HostPolicyError."""
    policy = host_policy(settings.POLICY_FILE)
    rows = SitePolicy.objects.values_list("text", flat=True)
    return narrowed(policy, said("\n".join(rows)))


def told_allowed() -> HostPolicy:
    """The same, for who submits."""
    try:
        return allowed()
    except HostPolicyError as error:
        text = f"Nothing can be submitted until an operator has mended this: {error}"
        raise ValidationError(text, "policy_unreadable") from error
