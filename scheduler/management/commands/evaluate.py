from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError

from jobs import audit, policies
from jobs.exceptions import GpuJobsError
from jobs.models import RoutingPolicy, SuiteRun, User
from jobs.routing import RoutingError
from jobs.routing.suite import Suite, parse_suite
from jobs.spec.text import one_line
from scheduler import suites

MOST_BYTES = 4 * 1024 * 1024


class Command(BaseCommand):
    help = "Run an evaluation suite through a policy's version, as real jobs."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("policy")
        parser.add_argument("version", type=int)
        parser.add_argument("--suite", type=Path, required=True, metavar="FILE")
        parser.add_argument(
            "--as", dest="email", metavar="EMAIL", help="whose jobs and quota they are"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        row = RoutingPolicy.objects.filter(
            name=options["policy"], version=options["version"]
        ).first()
        if row is None:
            raise CommandError(
                f"There is no {options['policy']} version {options['version']}. "
                "See: manage.py policy show."
            )
        suite, written = _suite(options["suite"])
        try:
            made = suites.run(
                suite,
                written,
                row,
                owner=_owner(options["email"]),
                by=audit.console(),
                tell=self.stdout.write,
            )
        except (GpuJobsError, ValidationError) as error:
            told = getattr(error, "messages", [str(error)])
            raise CommandError(" ".join(told)) from error
        self._tell(row, made)

    def _tell(self, row: RoutingPolicy, made: SuiteRun) -> None:
        for case in made.cases:
            mark = "pass" if case["passed"] else "FAIL"
            line = f"{mark}  {case['case']}  {case['tier']}  {case['why_not']}"
            self.stdout.write(one_line(line.rstrip()))
        for item, value in sorted(made.scores.items()):
            self.stdout.write(one_line(f"{item}: {value:.3f}"))
        refused = policies.refusals(row)
        self.stdout.write(" ".join(refused) or f"{row} may go live.")


def _suite(path: Path) -> tuple[Suite, str]:
    try:
        with path.open("rb") as file:
            written = file.read(MOST_BYTES + 1).decode()
        return parse_suite(written), written
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{path} can not be read: {error}") from error
    except RoutingError as error:
        raise CommandError(f"{path}: {error}") from error


def _owner(email: str | None) -> User:
    if email is None:
        return suites.account()
    try:
        return User.objects.get(email=email)
    except User.DoesNotExist:
        raise CommandError(f"There is no account {email}.") from None
