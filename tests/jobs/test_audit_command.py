"""manage.py audit: verify, export, tail, prune and renew, as an operator types them."""

import io
import json
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import time_machine
from django.core.management import CommandError, call_command
from django.utils import timezone

from jobs import audit
from jobs.models import AuditRecord, AuditSeal
from jobs.sealing import Check, anchor, seal
from tests.scheduler.unguarded import unguarded

pytestmark = pytest.mark.django_db

ROOT = Path(__file__).resolve().parents[2]


def run(*words: str) -> str:
    out = io.StringIO()
    call_command("audit", *words, stdout=out)
    return out.getvalue()


def write(count: int, days_ago: float = 0, **details: Any) -> None:
    with time_machine.travel(timezone.now() - timedelta(days=days_ago)):
        audit.record_each("job.noted", targets=range(count), by="alice", **details)


def day(days_ago: float) -> str:
    return (timezone.now() - timedelta(days=days_ago)).isoformat()


def is_intact() -> bool:
    return list(Check().flaws()) == []


class TestVerify:
    def test_it_says_how_much_it_looked_at(self) -> None:
        write(3)
        seal()
        assert "Intact: 3 records, 1 lines of the anchor" in run("verify")

    def test_nothing_yet_is_intact(self) -> None:
        assert "Intact: 0 records" in run("verify")


class TestExport:
    def test_each_line_is_a_seal_with_its_record(self, tmp_path: Path) -> None:
        write(2, text="caf\u00e9 \x1b[2J \u2028", share=0.25)
        seal()
        lines = [json.loads(line) for line in run("export").splitlines()]
        assert [line["hash"] for line in lines] == list(
            AuditSeal.objects.values_list("hash", flat=True)
        )
        record = lines[0]["sealed"]["record"]
        assert (record["actor"], record["action"]) == ("alice", "job.noted")
        assert record["details"] == {"text": "caf\u00e9 \x1b[2J \u2028", "share": 0.25}
        run("export", "--output", str(tmp_path / "trail"))
        assert (tmp_path / "trail").read_text() == run("export")

    def test_a_file_that_is_there_is_kept(self, tmp_path: Path) -> None:
        (tmp_path / "trail").write_text("mine")
        with pytest.raises(CommandError, match="File exists"):
            run("export", "--output", str(tmp_path / "trail"))
        assert (tmp_path / "trail").read_text() == "mine"

    @pytest.mark.parametrize("spoil", [None, "actor", "order", "hash"])
    def test_the_program_of_the_manual_verifies_it_anywhere(
        self, spoil: str | None
    ) -> None:
        manual = (ROOT / "docs/operations.md").read_text()
        (program,) = re.findall(r"```python\n(.*?)```", manual, re.DOTALL)
        write(5, share=1e-9)
        seal()
        lines = run("export").splitlines()
        if spoil == "actor":
            lines[2] = lines[2].replace("alice", "alicf")
        elif spoil == "order":
            lines[1], lines[2] = lines[2], lines[1]
        elif spoil == "hash":
            del lines[2]
        done = subprocess.run(
            [sys.executable, "-c", program],
            input="".join(f"{line}\n" for line in lines),
            capture_output=True,
            text=True,
        )
        assert (done.returncode == 0) is (spoil is None), done.stderr
        if spoil is None:
            assert AuditSeal.objects.get(number=5).hash in done.stdout


class TestTail:
    def test_the_last_records_with_the_newest_at_the_end(self) -> None:
        write(30)
        lines = run("tail", "--once", "-n", "3").splitlines()
        assert [line.split()[3] for line in lines] == ["27", "28", "29"]
        assert len(run("tail", "--once").splitlines()) == 20
        assert run("tail", "--once", "-n", "0") == ""

    def test_what_would_move_the_cursor_is_written_out(self) -> None:
        audit.record("x", target="a\x1b[2J\nb\u202e\x9b", by="eve\r", text="\x07\u2028")
        (line,) = run("tail", "--once").splitlines()
        assert line.isprintable()
        assert r"eve\r x a\x1b[2J\nb\u202e\x9b" in line

    def test_fewer_than_none_is_refused(self) -> None:
        with pytest.raises(CommandError, match="0 or more"):
            run("tail", "--once", "-n", "-1")


class TestPrune:
    def test_what_is_older_goes_and_a_record_of_it_stays(self) -> None:
        write(5, days_ago=400)
        write(3, days_ago=10)
        seal()
        old = AuditSeal.objects.get(number=5)
        assert run("prune", "--before", day(365)) == "Pruned: 5 records.\n"
        told = AuditRecord.objects.get(action="audit.pruned")
        assert (told.details["up_to"], told.details["hash"]) == (5, old.hash)
        assert told.details["records"] == 5
        assert told.actor.endswith("on the console")
        assert AuditRecord.objects.count() == 4
        assert AuditSeal.objects.first().number == 6  # type: ignore[union-attr]
        assert is_intact()
        assert run("verify").startswith("Intact: 4 records")

    def test_twice_is_as_once(self) -> None:
        write(5, days_ago=400)
        write(1)
        before = day(365)
        run("prune", "--before", before)
        assert run("prune", "--before", before) == "Pruned: 0 records.\n"
        assert AuditRecord.objects.filter(action="audit.pruned").count() == 1

    def test_again_and_again(self) -> None:
        for days_ago in (40, 30, 20, 10):
            write(3, days_ago=days_ago)
            seal()
        for days_ago in (35, 25, 15):
            run("prune", "--before", day(days_ago))
            write(1)
            seal()
            assert is_intact()
        assert AuditRecord.objects.filter(action="job.noted").count() == 6

    def test_what_was_sealed_after_something_newer_stays(self) -> None:
        write(2, days_ago=40)
        write(1, days_ago=1)
        seal()
        write(1, days_ago=40)
        run("prune", "--before", day(30))
        assert AuditRecord.objects.filter(action="job.noted").count() == 2
        assert is_intact()

    def test_the_newest_always_stays(self) -> None:
        write(3, days_ago=40)
        run("prune", "--before", day(0))
        assert AuditSeal.objects.first().number == 3  # type: ignore[union-attr]
        assert is_intact()

    def test_what_is_not_sealed_keeps_it_all(self) -> None:
        write(3, days_ago=40)
        with (
            anchor.held(),
            pytest.raises(CommandError, match="3 records before that date wait"),
        ):
            run("prune", "--before", day(30))
        assert AuditRecord.objects.count() == 3

    def test_it_hides_no_change(self) -> None:
        write(3, days_ago=40)
        seal()
        with unguarded("jobs_auditrecord"):
            AuditRecord.objects.filter(target="1").update(actor="eve")
        with pytest.raises(CommandError, match="Pruning would hide it"):
            run("prune", "--before", day(30))
        assert AuditRecord.objects.count() == 3

    def test_a_head_that_was_cut_with_a_false_record_is_found(self) -> None:
        write(5)
        seal()
        with unguarded("jobs_auditrecord", "jobs_auditseal"):
            AuditRecord.objects.filter(target__lt="3").delete()
            AuditSeal.objects.filter(number__lt=4).delete()
        audit.record("audit.pruned", target="audit", by="eve", up_to=3, hash="f" * 64)
        seal()
        assert [flaw.code for flaw in Check().flaws()] == ["missing"]

    @pytest.mark.parametrize(
        ("before", "text"),
        [
            ("", "is no time"),
            ("yesterday", "is no time"),
            ("2026-13-01", "is no time"),
            ("9" * 400, "is no time"),
            ("2026-01-01\x00", "is no time"),
            ("-1", "is no time|expected one argument"),
            ("2999-01-01", "still to come"),
        ],
    )
    def test_a_time_that_is_none_is_refused(self, before: str, text: str) -> None:
        with pytest.raises(CommandError, match=text):
            run("prune", "--before", before)


class TestRenew:
    @pytest.mark.parametrize("reason", ["", "  ", "x" * 201])
    def test_it_needs_a_reason(self, reason: str) -> None:
        with pytest.raises(CommandError, match="1 to 200 characters"):
            run("renew", "--reason", reason)

    def test_after_an_older_database_came_back(self) -> None:
        write(4)
        seal()
        newer = anchor.path().read_bytes()
        with unguarded("jobs_auditrecord", "jobs_auditseal"):
            AuditSeal.objects.filter(number__gt=2).delete()
            AuditRecord.objects.filter(target__gt="1").delete()
        with pytest.raises(CommandError, match="not intact"):
            run("verify", "--patience", "0")
        said = run("renew", "--reason", "The backup of Monday.")
        (aside,) = anchor.path().parent.glob("audit.anchor.*")
        assert aside.name in said
        assert aside.read_bytes() == newer
        assert "Intact: 3 records" in run("verify")


@pytest.mark.parametrize("words", [[], ["destroy"], ["tail", "-n", "many"], ["renew"]])
def test_other_words_are_refused(words: list[str]) -> None:
    with pytest.raises(CommandError, match="Error: "):
        run(*words)
