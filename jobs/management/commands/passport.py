from pathlib import Path
from typing import Any

from django.core.management import BaseCommand, CommandError, CommandParser

from jobs.passport import NoPassport, public_key, verify

MOST_BYTES = 64 * 1024 * 1024


class Command(BaseCommand):
    help = "Verify a job's passport, or show the public key that signs them."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        verbs.add_parser("key", help="The public key, to be given to who verifies.")
        checked = verbs.add_parser("verify", help="Exits with 1 if it is not genuine.")
        checked.add_argument("file", type=Path)
        checked.add_argument("--key", help="Of the site that signed it; else this one.")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["verb"] == "key":
            self.stdout.write(public_key())
            return
        try:
            told = verify(_text(options["file"]), options["key"] or public_key())
        except NoPassport as error:
            raise CommandError(str(error)) from error
        job = told["job"]
        self.stdout.write(
            f"Genuine: job {job['id']} of {job['owner']}, {job['status']}, "
            f"on {', '.join(job['gpu_uuids']) or 'no GPU'}."
        )


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MOST_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{path} can not be read: {error}") from error
