"""The secrets of an attempt: taken when it is launched, and masked in what comes out."""

from django.core.exceptions import ValidationError

from jobs import secrets
from jobs.models import Attempt
from jobs.models.secret import sealed_for, unsealed
from scheduler.execution.asked import asked_of
from scheduler.mounting import NotAllowed


def take_secrets(attempt: Attempt) -> dict[str, str]:
    """By variable. Kept, sealed, with the attempt until it ends: what was given is to be
    masked, whatever becomes of the secret meanwhile. Raises NotAllowed."""
    if not asked_of(attempt).secrets:
        return {}
    try:
        if not attempt.sealed:
            attempt.sealed = sealed_for(attempt.job)
            attempt.save(update_fields=["sealed"])
        return unsealed(attempt.sealed)
    except ValidationError as error:
        text = f"It needs a secret that is gone. {' '.join(error.messages)}"
        raise NotAllowed(text) from error
    except secrets.Unreadable as error:
        text = "It needs a secret that was sealed with another key. Set it again."
        raise NotAllowed(text) from error


def given_values(attempt: Attempt) -> list[str]:
    """What is to be masked in what this attempt says."""
    try:
        return list(unsealed(attempt.sealed).values())
    except secrets.Unreadable:
        return []
