"""Whether records and seals still say what was sealed, and where they do not."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from django.db import connection
from django.utils import timezone

from jobs.models import AuditSeal
from jobs.sealing import anchor, rows
from jobs.sealing.flaws import Flaw
from jobs.sealing.told import Told

# A record that waits for longer is not about to be sealed.
SEALED_WITHIN = timedelta(seconds=5)
# A look at the tail is at no more than so many seals.
TAIL = 20_000
# What retention writes of itself: up to which seal it cut, and the hash there.
PRUNED = "audit.pruned"
MOST_WAITING = 100


class Check:
    """One look at the trail. `seals` and `lines` count what was looked at."""

    def __init__(self, *, since: datetime | None = None) -> None:
        """With `since` only what was sealed after it, at most the last 20,000."""
        self.seals = self.lines = 0
        self._is_whole = since is None
        self._size, self._last = _ends()
        if self._size == 0 and self._last:  # or else it was made in this moment
            self._size, self._last = _ends()
        self._first = 1 if since is None else self._first_since(since)

    def _first_since(self, since: datetime) -> int:
        seals = AuditSeal.objects.filter(number__gt=self._last - TAIL)
        recent = seals.filter(sealed_at__gte=since).order_by("number")
        return recent.values_list("number", flat=True).first() or self._last

    def flaws(self) -> Iterator[Flaw]:
        """In the order of the chain."""
        before: tuple[int, str] | None = None
        told: Told | None = None
        for row in rows.sealed(self._first, self._last):
            self.seals += 1
            number, hash_ = row[0], row[3]
            told = told or Told(self._lines(), first=number)
            if before is None or (number - 1, row[2]) != before:
                yield from self._link(before, number, row[2])
            if not _is_as_sealed(row):
                yield _changed(row)
            if row[5]:
                yield from told.meet(number, hash_, rows.time_text(row[4]))
            before = (number, hash_)
        told = told or Told(self._lines(), first=0)
        yield from told.rest(before[0] if before else 0)
        self.lines = told.count
        yield from _waiting()
        if self._is_whole:
            yield from _never_waited()

    def _lines(self) -> Iterator[anchor.Line]:
        seals = self._last - self._first + 2
        last_bytes = None if self._is_whole else seals * anchor.MOST_BYTES
        return anchor.lines(self._size, last_bytes)

    def _link(
        self, before: tuple[int, str] | None, number: int, previous: Any
    ) -> Iterator[Flaw]:
        if before is None:
            if self._is_whole:
                yield from _start(number, previous)
        elif number != before[0] + 1:
            what = f"The seals after {before[0]} and before it are missing."
            yield Flaw(code="missing", where=f"seal {number}", what=what)
        else:
            what = f"It does not go on from seal {before[0]}: one of them was changed."
            yield Flaw(code="reordered", where=f"seal {number}", what=what)


def _ends() -> tuple[int, int]:
    """The size of the anchor and the number of the last seal, of one moment."""
    with anchor.still() as size:
        numbers = AuditSeal.objects.order_by("number").values_list("number", flat=True)
        return size, numbers.last() or 0


def _start(number: int, previous: Any) -> Iterator[Flaw]:
    """The chain starts with 1, or where retention cut it and said so."""
    if (number, previous) == (1, rows.START):
        return
    cuts = [(cut.get("up_to"), cut.get("hash")) for cut in rows.details_of(PRUNED)]
    if (number - 1, previous) not in cuts:
        what = (
            "The seals before it are missing, and no record says that they were pruned."
        )
        yield Flaw(code="missing", where=f"seal {number}", what=what)


def _is_as_sealed(row: tuple[Any, ...]) -> bool:
    number, _, previous, hash_, sealed_at, is_anchored = row[:6]
    # SQLite has no booleans: there any other number would read as true.
    if row[6] is None or is_anchored not in (0, 1):
        return False
    at = rows.time_text(sealed_at)
    text = rows.seal_text(number, previous, at, is_anchored == 1, row[6:])
    return rows.hash_of(text) == hash_


def _changed(row: tuple[Any, ...]) -> Flaw:
    number, record_id = row[:2]
    if row[6] is None:
        what = f"Audit record {record_id} is missing, of which it is."
        return Flaw(code="missing", where=f"seal {number}", what=what)
    what = f"It is not what seal {number} is of: it or its seal was changed."
    return Flaw(code="changed", where=f"record {record_id}", what=what)


def _waiting() -> Iterator[Flaw]:
    now = timezone.now()
    lately = (rows.iso(now - SEALED_WITHIN), rows.iso(now))
    for waits, pk, at in rows.waiting(MOST_WAITING):
        where = f"record {waits}"
        if pk is None:
            what = "It was deleted before it was sealed."
            yield Flaw(code="missing", where=where, what=what)
        elif not lately[0] <= str(at) <= lately[1]:
            what = "It waits for its seal. See that manage.py cluster runs."
            yield Flaw(code="not_sealed", where=where, what=what, is_passing=True)


_NEVER_WAITED = """
    SELECT r.id FROM jobs_auditrecord r
    LEFT JOIN jobs_auditseal s ON s.record_id = r.id
    LEFT JOIN jobs_unsealedrecord u ON u.record_id = r.id
    WHERE s.number IS NULL AND u.record_id IS NULL ORDER BY r.id LIMIT 100
"""


def _never_waited() -> Iterator[Flaw]:
    with connection.cursor() as cursor:
        cursor.execute(_NEVER_WAITED)
        inserted = [pk for (pk,) in cursor.fetchall()]
    for pk in inserted:
        what = "It has no seal and waits for none: it was put there past the triggers."
        yield Flaw(code="inserted", where=f"record {pk}", what=what)
