"""Begin the anchor anew, where it or the database is an older one by intention."""

from django.db import transaction
from django.utils import timezone

from jobs import audit
from jobs.models import AuditSeal
from jobs.sealing import anchor
from jobs.sealing.sealer import seal
from jobs.sealing.told import RENEWED


def renew(reason: str, *, by: object) -> str:
    """Put the file aside, and tell in the trail that and why; where it is then."""
    aside = anchor.put_aside(timezone.now())
    with transaction.atomic(durable=True):
        last = AuditSeal.objects.order_by("number").last()
        told = {
            "reason": reason,
            "aside": aside,
            "from": last.number + 1 if last else 1,
        }
        audit.record(RENEWED, target=anchor.NAME, by=by, **told)
    seal()
    return aside
