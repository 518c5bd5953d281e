import enum
import uuid
from collections.abc import Iterable

from django.db import models
from django.utils import timezone
from knox.models import AbstractAuthToken

PREFIX = "gpujobs_"


class Scope(enum.StrEnum):
    """What a token may be used for; each includes those before it."""

    READ = "read"
    SUBMIT = "submit"  # and change what is the person's own
    OPERATE = "operate"  # and all that its person may as an operator


class ApiToken(AbstractAuthToken):
    """A personal token: only its digest is kept (knox's model, with a name)."""

    # Its name in addresses; the digest of knox's own key is for nobody to read.
    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    digest = models.CharField(max_length=128, unique=True)
    name = models.CharField(max_length=100)
    scopes = models.JSONField(default=list)
    last_used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created"]

    def __str__(self) -> str:
        return f"{self.name} of {self.user}"

    @property
    def is_expired(self) -> bool:
        return self.expiry is not None and self.expiry <= timezone.now()

    def covers(self, scope: Scope) -> bool:
        return _reach(self.scopes) >= _reach([scope])


def _reach(scopes: Iterable[str]) -> int:
    return max((list(Scope).index(Scope(scope)) for scope in scopes), default=-1)
