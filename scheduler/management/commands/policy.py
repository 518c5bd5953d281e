import json
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError

from jobs import audit, policies
from jobs.models import Job, RoutingPolicy
from jobs.routing import Policy, RoutingError, parse_yaml, to_yaml
from jobs.savings import Savings, savings
from jobs.spec.text import one_line
from scheduler import reservation

MOST_BYTES = 1024 * 1024


class Command(BaseCommand):
    help = "Routing policies: load, check, show, activate; replay and savings."

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        load = verbs.add_parser("load", help="a new version from a YAML file")
        load.add_argument("file", type=Path)
        load.add_argument("--activate", action="store_true", help="and let it go live")
        check = verbs.add_parser("check", help="whether a YAML file is a policy")
        check.add_argument("file", type=Path)
        show = verbs.add_parser("show", help="all of them, or one as YAML")
        show.add_argument("name", nargs="?")
        show.add_argument("version", nargs="?", type=int)
        activate = verbs.add_parser("activate", help="route new jobs by a version")
        activate.add_argument("name")
        activate.add_argument("version", type=int)
        activate.add_argument(
            "--because", default="", help="override its gate, and why"
        )
        retire = verbs.add_parser("retire", help="route no new jobs by it")
        retire.add_argument("name")
        replay = verbs.add_parser("replay", help="make a job's decisions again")
        replay.add_argument("job")
        saved = verbs.add_parser("savings", help="against everything on the largest")
        saved.add_argument("name")
        saved.add_argument("--days", type=int, default=30)

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        act: Callable[..., None] = getattr(self, f"_{verb}")
        try:
            act(options)
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from error
        except policies.GateRefused as refused:
            text = f"It does not go live: {refused} Override it with --because REASON."
            raise CommandError(text) from refused

    def _load(self, options: dict[str, Any]) -> None:
        row, is_new = policies.store(_read(options["file"]), by=audit.console())
        what = "is stored" if is_new else "says the same already"
        self.stdout.write(f"{row} {what}.")
        if options["activate"]:
            policies.activate(row, by=audit.console())
        if not row.is_active:
            self.stdout.write(
                f"It is not live: manage.py policy activate {row.name} {row.version}"
            )

    def _check(self, options: dict[str, Any]) -> None:
        policy = _read(options["file"])
        policies.check_tiers(policy)
        tiers = ", ".join(tier.name for tier in policy.tiers)
        self.stdout.write(f"{policy.name} is a policy, with the tiers {tiers}.")

    def _show(self, options: dict[str, Any]) -> None:
        if options["name"] is None:
            for row in RoutingPolicy.objects.prefetch_related("tiers"):
                tiers = " < ".join(tier.name for tier in row.tiers.all())
                mark = "live" if row.is_active else "    "
                self.stdout.write(f"{mark}  {row.name} {row.version}  {tiers}")
            return
        self.stdout.write(to_yaml(_row(options["name"], options["version"]).read()))

    def _activate(self, options: dict[str, Any]) -> None:
        row = _row(options["name"], options["version"])
        policies.activate(row, by=audit.console(), because=options["because"])
        self.stdout.write(f"{row} is live.")

    def _retire(self, options: dict[str, Any]) -> None:
        row = _row(options["name"], None)
        policies.retire(row, by=audit.console())
        self.stdout.write(f"No new job is routed by {row.name}.")

    def _replay(self, options: dict[str, Any]) -> None:
        job = _job(options["job"])
        rows = job.decisions.filter(policy__isnull=False).select_related("policy")
        different = 0
        for row in rows:
            found = reservation.replayed(row)
            different += bool(found)
            told = "the same again" if not found else json.dumps(found)
            self.stdout.write(one_line(f"{row.number}: {row.tier or 'none'}: {told}"))
        if different:
            raise CommandError(f"{different} decisions come out differently now.")

    def _savings(self, options: dict[str, Any]) -> None:
        self.stdout.write("\n".join(_lines(savings(options["name"], options["days"]))))


def _read(path: Path) -> Policy:
    try:
        with path.open("rb") as file:
            return parse_yaml(file.read(MOST_BYTES + 1).decode())
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{path} can not be read: {error}") from error
    except RoutingError as error:
        raise CommandError(f"{path}: {error}") from error


def _row(name: str, version: int | None) -> RoutingPolicy:
    """The version asked for, else the live one, else the newest."""
    rows = RoutingPolicy.objects.filter(name=name)
    if version is not None:
        rows = rows.filter(version=version)
    found = rows.order_by("-is_active", "-version").first()
    if found is None:
        known = ", ".join(
            sorted(set(RoutingPolicy.objects.values_list("name", flat=True)))
        )
        what = name if version is None else f"{name} version {version}"
        raise CommandError(f"There is no policy {what}. There are: {known or 'none'}.")
    return found


def _job(text: str) -> Job:
    try:
        return Job.objects.get(pk=UUID(text))
    except (ValueError, Job.DoesNotExist):
        raise CommandError(f"There is no job {text}.") from None


def _lines(found: Savings) -> list[str]:
    first = (
        f"{found.policy}: {found.jobs} jobs in {found.days} days, "
        f"{found.escalated} of them escalated ({found.escalation_rate:.0%})."
    )
    tiers = [
        f"  {tier.name}: {tier.jobs} jobs ({tier.share:.0%}), "
        f"{tier.gpu_seconds:,.0f} GPU-seconds"
        for tier in found.tiers
    ]
    return [first, *tiers, *found.sentences()]
