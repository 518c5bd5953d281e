"""A person's secrets as they are written and removed. Read they are by jobs alone."""

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from jobs import audit, secrets
from jobs.models import Secret, User
from jobs.models.secret import MOST_SECRETS

# A private key has some thousands.
MOST_BYTES = 8192


def check_value(value: str) -> None:
    size = len(value.encode(errors="surrogatepass"))
    if not secrets.LEAST_BYTES <= size <= MOST_BYTES:
        text = (
            f"It has {size:,} bytes; a secret has {secrets.LEAST_BYTES} to "
            f"{MOST_BYTES:,}: a shorter one could not be masked in logs."
        )
        raise ValidationError(text, "bad_size")


@transaction.atomic
def write_secret(owner: User, name: str, value: str) -> tuple[Secret, bool]:
    """The row, and whether it is new. Raises ValidationError of the name if there are
    too many."""
    # The owner's row is held, so that two at once can not pass the limit together.
    User.objects.select_for_update(no_key=True).get(pk=owner.pk)
    others = Secret.objects.filter(owner=owner).exclude(name=name)
    if others.count() >= MOST_SECRETS:
        text = f"A person has at most {MOST_SECRETS} secrets. Remove one first."
        raise ValidationError({"name": ValidationError(text, "too_many_secrets")})
    row, is_new = Secret.objects.update_or_create(
        owner=owner,
        name=name,
        defaults={
            "sealed": secrets.seal(value, settings.SECRET_KEY),
            "updated_at": timezone.now(),
        },
    )
    audit.record("secret.written", target=name, by=owner, is_new=is_new)
    return row, is_new


@transaction.atomic
def remove_secret(owner: User, name: str) -> bool:
    """False if there is none of that name."""
    gone, _ = Secret.objects.filter(owner=owner, name=name).delete()
    if gone:
        audit.record("secret.deleted", target=name, by=owner)
    return bool(gone)
