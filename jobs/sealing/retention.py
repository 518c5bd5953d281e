"""The one way out of the trail, which leaves a record of itself in it."""

from datetime import datetime

from django.db import connection, transaction

from jobs import audit
from jobs.models import AuditRecord, AuditSeal, UnsealedRecord
from jobs.sealing.checking import PRUNED, Check
from jobs.sealing.sealer import seal

AT_ONCE = 20_000


class NotPrunable(Exception):
    """It would hide something: the text says what, and what to do."""


def prune(before: datetime, *, by: object) -> int:
    """Delete the beginning of the chain, up to the first record of that time or later;
    how many records that were. The newest seal always stays."""
    seal()
    _check(before)
    count = 0
    while cut := _prune_some(before, by):
        count += cut
    if count:
        seal()
    return count


def _check(before: datetime) -> None:
    waiting = UnsealedRecord.objects.values("record_id")
    count = AuditRecord.objects.filter(pk__in=waiting, at__lt=before).count()
    if count:
        text = f"{count} records before that date wait for their seal: try again soon."
        raise NotPrunable(text)
    flaw = next((each for each in Check().flaws() if not each.is_passing), None)
    if flaw is not None:
        text = f"{flaw.where}: {flaw.what} Pruning would hide it: see audit verify."
        raise NotPrunable(text)


@transaction.atomic(durable=True)
def _prune_some(before: datetime, by: object) -> int:
    up_to = _cut(before)
    if up_to is None:
        return 0
    seals = AuditSeal.objects.filter(number__lte=up_to.number)
    count = seals.count()
    with audit.purge_door("audit"), connection.cursor() as cursor:
        cursor.execute(
            "DELETE FROM jobs_auditrecord WHERE id IN "
            "(SELECT record_id FROM jobs_auditseal WHERE number <= %s)",
            [up_to.number],
        )
        cursor.execute("DELETE FROM jobs_auditseal WHERE number <= %s", [up_to.number])
    audit.record(
        PRUNED,
        target="audit",
        by=by,
        before=before.isoformat(),
        records=count,
        up_to=up_to.number,
        hash=up_to.hash,
    )
    return count


def _cut(before: datetime) -> AuditSeal | None:
    """The last seal to go, of at most so many."""
    kept = AuditRecord.objects.filter(at__gte=before).values("pk")
    first = AuditSeal.objects.order_by("number").first()
    last = AuditSeal.objects.order_by("number").last()
    if first is None or last is None:
        return None
    stays = AuditSeal.objects.filter(record_id__in=kept).order_by("number").first()
    end = min(stays.number if stays else last.number, first.number + AT_ONCE)
    return AuditSeal.objects.filter(number=end - 1).first()
