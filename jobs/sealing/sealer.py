"""Seal what was committed. One sealer at a time, never in a transaction of others."""

from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils import timezone

from jobs.models import AuditSeal, UnsealedRecord
from jobs.sealing import anchor, rows

AT_ONCE = 1000


def seal() -> int:
    """Seal every committed record that has none; how many that were.

    A sealing is committed first and anchored then. Whoever dies between the two has
    kept a line from the file: the next sealer finds that, and writes the same line
    before it seals anything. So at most one sealing is ever without its line.
    """
    count = 0
    with anchor.held() as fd:
        if fd is None:
            return 0
        _catch_up(fd)
        while links := _seal_some():
            _anchor(fd, links[-1])
            count += len(links)
    return count


@transaction.atomic(durable=True)
def _seal_some() -> list[AuditSeal]:
    # Read first, written only if there is something: most looks find nothing.
    records = rows.unsealed(AT_ONCE)
    if not records:
        return []
    head = AuditSeal.objects.order_by("number").last()
    links = _chain(head, records, timezone.now())
    AuditSeal.objects.bulk_create(links)
    UnsealedRecord.objects.filter(pk__in=[link.record_id for link in links]).delete()
    return links


def _chain(
    head: AuditSeal | None, records: list[tuple[Any, ...]], now: datetime
) -> list[AuditSeal]:
    number, previous = (head.number, head.hash) if head else (0, rows.START)
    links: list[AuditSeal] = []
    for record in records:
        number += 1
        is_last = len(links) + 1 == len(records)
        text = rows.seal_text(number, previous, rows.iso(now), is_last, record)
        link = AuditSeal(
            number=number,
            record_id=record[0],
            previous=previous,
            hash=rows.hash_of(text),
            sealed_at=now,
            is_anchored=is_last,
        )
        links.append(link)
        previous = link.hash
    return links


def _anchor(fd: int, link: AuditSeal) -> None:
    last, torn = anchor.end_of(fd)
    before = last.check if last else anchor.START
    at = rows.iso(link.sealed_at)
    anchor.append(fd, anchor.text_of(link.number, link.hash, at, before), torn=torn)


def _catch_up(fd: int) -> None:
    """Write the line of the last sealing, if it is the only one that is missing."""
    anchored = AuditSeal.objects.filter(is_anchored=True).order_by("-number")
    newest, older = [*anchored[:2], None, None][:2]
    last, _ = anchor.end_of(fd)
    told = last.number if last else 0
    if newest is None or told >= newest.number:
        return
    # Else somebody cut the file: what is missing shows for as long as it is not told.
    if told == (older.number if older else 0):
        _anchor(fd, newest)
