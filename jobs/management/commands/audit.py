import json
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import Error
from django.utils import timezone

from jobs import audit, sealing
from jobs.models import AuditRecord
from jobs.sealing import Check, Flaw, exported
from jobs.spec.text import one_line

MOST_TOLD = 20
LOOK_EVERY_S = 0.5
# A record that commits late has an id below those that were shown already.
LATE = 1000


class Command(BaseCommand):
    help = "The audit trail: verify it, export it, follow it, and let its old part go."

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        verify = verbs.add_parser("verify", help="fails if anything was changed")
        verify.add_argument("--patience", type=float, default=5.0, metavar="SECONDS")
        export = verbs.add_parser("export", help="JSON lines, to be verified anywhere")
        export.add_argument("--output", type=Path, metavar="FILE")
        tail = verbs.add_parser("tail", help="the last records, and each that comes")
        tail.add_argument("-n", type=int, default=20, metavar="COUNT", dest="count")
        tail.add_argument("--once", action="store_true", help="do not follow")
        prune = verbs.add_parser("prune", help="delete the records before a time")
        prune.add_argument("--before", type=_time, required=True, metavar="TIME")
        renew = verbs.add_parser("renew", help="begin the anchor anew, and say why")
        renew.add_argument("--reason", required=True)

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        act: Callable[..., None] = getattr(self, f"_{verb}")
        try:
            act(options)
        except (Error, ValueError, OSError) as error:
            raise CommandError(f"It can not be read or written: {error}") from error
        except KeyboardInterrupt:
            self.stdout.write("")

    def _verify(self, options: dict[str, Any]) -> None:
        began = time.monotonic()
        check = Check()
        flaws = _that_stay(list(check.flaws()), options["patience"])
        for flaw in flaws[:MOST_TOLD]:
            self.stdout.write(one_line(f"{flaw.code}: {flaw.where}: {flaw.what}"))
        if flaws:
            raise CommandError(f"The audit trail is not intact: {len(flaws)} flaws.")
        took_s = time.monotonic() - began
        rate = check.seals / max(took_s, 0.001)
        self.stdout.write(
            f"Intact: {check.seals} records, {check.lines} lines of the anchor, "
            f"{rate:,.0f} records a second."
        )

    def _export(self, options: dict[str, Any]) -> None:
        if options["output"] is None:
            for line in exported():
                self.stdout.write(line)
            return
        with options["output"].open("x") as file:
            count = 0
            for line in exported():
                file.write(f"{line}\n")
                count += 1
        self.stdout.write(f"Written: {count} records.")

    def _tail(self, options: dict[str, Any]) -> None:
        if options["count"] < 0:
            raise CommandError("-n is the number of records to begin with, 0 or more.")
        for record in _following(options["count"], once=options["once"]):
            self.stdout.write(_line(record))
            self.stdout.flush()

    def _prune(self, options: dict[str, Any]) -> None:
        try:
            count = sealing.prune(options["before"], by=audit.console())
        except sealing.NotPrunable as refusal:
            raise CommandError(str(refusal)) from refusal
        self.stdout.write(f"Pruned: {count} records.")

    def _renew(self, options: dict[str, Any]) -> None:
        reason = options["reason"].strip()
        if not 0 < len(reason) <= 200:
            raise CommandError("--reason says in 1 to 200 characters why.")
        aside = sealing.renew(reason, by=audit.console())
        self.stdout.write(f"Begun anew. The old file: {aside or 'there was none'}.")


def _time(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise CommandError(
            f"{text!r} is no time: write 2026-01-31 or 2026-01-31T12:00:00+00:00."
        ) from None
    at = at.replace(tzinfo=UTC) if at.tzinfo is None else at
    if at > timezone.now():
        raise CommandError(f"{text} is still to come.")
    return at


def _that_stay(flaws: list[Flaw], patience_s: float) -> list[Flaw]:
    """What is on its way gets there while we look at the end of the trail again."""
    until = time.monotonic() + patience_s
    while any(flaw.is_passing for flaw in flaws) and time.monotonic() < until:
        time.sleep(LOOK_EVERY_S)
        again = set(Check(since=timezone.now() - timedelta(minutes=1)).flaws())
        flaws = [flaw for flaw in flaws if not flaw.is_passing or flaw in again]
    return flaws


def _following(count: int, *, once: bool) -> Iterator[AuditRecord]:
    last = list(AuditRecord.objects.order_by("-id")[:count])[::-1]
    yield from last
    newest = AuditRecord.objects.order_by("id").last()
    after = newest.pk if newest else 0
    seen = set(
        AuditRecord.objects.filter(pk__gt=after - LATE).values_list("pk", flat=True)
    )
    while not once:
        time.sleep(LOOK_EVERY_S)
        recent = AuditRecord.objects.filter(pk__gt=max(seen, default=0) - LATE)
        for record in recent.exclude(pk__in=seen).order_by("id"):
            yield record
            seen.add(record.pk)
        seen = set(sorted(seen)[-LATE:])


def _line(record: AuditRecord) -> str:
    details = json.dumps(record.details, ensure_ascii=False, sort_keys=True)
    where = record.address or "-"
    return one_line(
        f"{record.at:%Y-%m-%dT%H:%M:%SZ} {record.actor} {record.action} {record.target} "
        f"{where} {details}"
    )
