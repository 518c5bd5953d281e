import base64
import json
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from scheduler.models import DecisionRecord
from scheduler.reservation import Replay, replay


class Command(BaseCommand):
    help = (
        "Decide once more what a recorded scheduling pass decided, from its own inputs. "
        "Fails if anything comes out differently. --export writes the record to a file, "
        "which --file replays on any machine."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("id", nargs="?", type=int, help="the decision's number")
        parser.add_argument("--file", type=Path, help="a record that was exported")
        parser.add_argument("--export", type=Path, help="write the record here")

    def handle(self, *args: Any, **options: Any) -> None:
        if (options["id"] is None) == (options["file"] is None):
            raise CommandError("Give the number of a decision, or --file.")
        record = _read(options["file"]) if options["file"] else _row(options["id"])
        if options["export"]:
            self._export(options["export"], record)
            return
        self._report(_replay(record))

    def _export(self, path: Path, record: dict[str, Any]) -> None:
        try:
            path.write_text(json.dumps(record))
        except OSError as error:
            raise CommandError(f"It can not be written: {error}") from error
        self.stdout.write(f"Written to {path}.")

    def _report(self, made: Replay) -> None:
        for job_id, placed in made.outcome["placed"].items():
            gpus = ", ".join(placed["gpus"]) or "no GPU"
            self.stdout.write(f"{job_id} -> {placed['node']}: {gpus}")
        for job_id, wait in made.outcome["waits"].items():
            self.stdout.write(f"{job_id} waits, {wait['reason']}: {wait['text']}")
        if not made.is_intact:
            raise CommandError("The inputs were changed: they have another hash.")
        if made.differences:
            raise CommandError(
                "It came out differently.\n" + "\n".join(made.differences)
            )
        self.stdout.write("The same as recorded.")


def _row(number: int) -> dict[str, Any]:
    row = DecisionRecord.objects.filter(pk=number).first()
    if row is None:
        kept = DecisionRecord.objects.values_list("pk", flat=True)
        known = (
            f"Kept are {kept.last()} to {kept.first()}." if kept else "None is kept."
        )
        raise CommandError(f"There is no decision {number}. {known}")
    return {
        "inputs": base64.b64encode(bytes(row.inputs)).decode(),
        "inputs_hash": row.inputs_hash,
        "outcome": row.outcome,
    }


def _read(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text())
        return {name: record[name] for name in ("inputs", "inputs_hash", "outcome")}
    except (OSError, ValueError, LookupError, TypeError) as error:
        text = f"{path} is no record that --export has written: {error}"
        raise CommandError(text) from error


def _replay(record: dict[str, Any]) -> Replay:
    try:
        inputs = base64.b64decode(record["inputs"])
        return replay(inputs, record["inputs_hash"], record["outcome"])
    except (ValueError, TypeError) as error:
        raise CommandError(f"It can not be replayed: {error}") from error
