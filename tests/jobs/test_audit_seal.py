"""Every committed audit record has one seal, soon, and the seals are one chain."""

import fcntl
import json
import multiprocessing
import os
import random
import signal
import syslog
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.db import (
    IntegrityError,
    OperationalError,
    connection,
    connections,
    transaction,
)
from django.utils import timezone

from jobs import audit
from jobs.models import AuditRecord, AuditSeal, UnsealedRecord
from jobs.sealing import Check, anchor, renew, rows, seal, sealer
from tests.factories import make_job

pytestmark = pytest.mark.django_db

EACH = ["jobs_auditrecord", "jobs_auditseal"]


def write(count: int, **details: Any) -> None:
    audit.record_each("job.noted", targets=range(count), by="alice", **details)


def flaws() -> list[str]:
    return [flaw.code for flaw in Check().flaws()]


def sql(statement: str, *parameters: Any) -> int:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return int(cursor.rowcount)


def sql_now(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


class TestSealing:
    def test_each_record_gets_one_seal_that_goes_on_from_the_one_before(self) -> None:
        make_job()
        write(3)
        assert seal() == 4
        seals = list(AuditSeal.objects.all())
        assert [each.number for each in seals] == [1, 2, 3, 4]
        assert [each.record_id for each in seals] == list(
            AuditRecord.objects.values_list("pk", flat=True)
        )
        hashes = [each.hash for each in seals]
        assert [each.previous for each in seals] == ["0" * 64, *hashes[:-1]]
        assert flaws() == []

    def test_twice_is_as_once(self) -> None:
        write(3)
        assert [seal(), seal()] == [3, 0]
        assert AuditSeal.objects.count() == 3
        assert not UnsealedRecord.objects.exists()

    def test_nothing_to_seal_is_no_sealing(self) -> None:
        assert seal() == 0
        assert flaws() == []
        assert anchor.path().read_bytes() == b""

    def test_more_than_are_sealed_at_once(self, monkeypatch: Any) -> None:
        monkeypatch.setattr(sealer, "AT_ONCE", 2)
        write(5)
        assert seal() == 5
        assert list(
            AuditSeal.objects.filter(is_anchored=True).values_list("number", flat=True)
        ) == [2, 4, 5]
        assert len(anchor.path().read_text().splitlines()) == 3
        assert flaws() == []

    def test_while_another_seals_nobody_does(self) -> None:
        write(1)
        with anchor.path().open("ab") as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            assert seal() == 0
        assert seal() == 1

    def test_a_record_that_was_inserted_past_our_code_waits_too(self) -> None:
        write(1)
        sql(
            "INSERT INTO jobs_auditrecord (actor, action, target, details, address, at) "
            "SELECT 'eve', action, target, details, address, at FROM jobs_auditrecord"
        )
        assert seal() == 2
        assert flaws() == []

    def test_a_clock_that_is_set_back_keeps_nothing_from_being_sealed(self) -> None:
        write(1)
        seal()
        with time_machine.travel(timezone.now() - timedelta(days=400)):
            write(1)
            assert seal() == 1
            assert flaws() == []


@pytest.mark.django_db(transaction=True)
class TestCommits:
    def test_what_was_rolled_back_is_not_sealed(self) -> None:
        with transaction.atomic():
            write(2)
            transaction.set_rollback(True)
        write(1)
        assert seal() == 1
        assert flaws() == []

    def test_it_is_refused_within_a_transaction(self) -> None:
        write(1)
        with transaction.atomic(), pytest.raises(RuntimeError, match="durable"):
            seal()
        assert not AuditSeal.objects.exists()

    def test_a_record_that_commits_late_is_sealed_later(self) -> None:
        early = connections.create_connection("default")
        try:
            with early.cursor() as cursor:
                cursor.execute("BEGIN")
                cursor.execute(
                    "INSERT INTO jobs_auditrecord"
                    " (actor, action, target, details, address, at)"
                    " VALUES ('eve', 'late', 'x', '{}', '', CURRENT_TIMESTAMP)"
                )
                if connection.vendor == "postgresql":
                    write(2)
                    assert seal() == 2
                else:  # one writer: nobody gets a later id and commits earlier
                    sql_now("PRAGMA busy_timeout = 0")
                    with pytest.raises(OperationalError, match="locked"):
                        write(2)
                    sql_now("PRAGMA busy_timeout = 20000")
                cursor.execute("COMMIT")
        finally:
            early.close()
        assert seal() == 1
        late = AuditRecord.objects.get(action="late")
        assert late.pk == min(AuditRecord.objects.values_list("pk", flat=True))
        assert AuditSeal.objects.latest("number").record_id == late.pk
        assert flaws() == []


class TestDeath:
    """The sealer may be killed at any step: the next one finds what was left."""

    def test_between_the_commit_and_the_line(self, monkeypatch: Any) -> None:
        write(2)
        seal()
        write(2)
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", self._die)
            patch.setattr(os, "write", self._die)
            with pytest.raises(OSError, match="full"):
                seal()
        assert flaws() == ["anchor_cut"]
        assert [flaw.is_passing for flaw in Check().flaws()] == [True]
        seal()
        assert flaws() == []

    @staticmethod
    def _die(*_: Any) -> None:
        raise OSError("The disk is full.")

    def test_nothing_more_is_sealed_before_the_line_is_written(
        self, monkeypatch: Any
    ) -> None:
        write(1)
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", self._die)
            for _ in range(3):
                with pytest.raises(OSError, match="full"):
                    seal()
                write(1)
        assert AuditSeal.objects.count() == 1
        seal()
        assert flaws() == []

    @pytest.mark.parametrize("kept", [0, 1, 20, -1])
    def test_in_the_middle_of_the_line(self, kept: int) -> None:
        write(2)
        seal()
        before = anchor.path().stat().st_size
        write(2)
        seal()
        whole = anchor.path().read_bytes()
        line = whole[before:]
        os.truncate(anchor.path(), before + len(line[:kept]))
        assert "anchor_cut" in flaws()
        seal()
        assert anchor.path().read_bytes() == whole
        assert flaws() == []

    def test_before_the_very_first_line(self) -> None:
        write(2)
        seal()
        whole = anchor.path().read_bytes()
        anchor.path().unlink()
        seal()
        assert anchor.path().read_bytes() == whole


@pytest.mark.django_db(transaction=True)
def test_sealers_that_are_killed_one_after_another_seal_each_record_once(
    monkeypatch: Any,
) -> None:
    monkeypatch.setattr(sealer, "AT_ONCE", 1)
    write(400)
    chance, deaths = random.Random(7), 0
    processes = multiprocessing.get_context("fork")
    while UnsealedRecord.objects.exists():
        connections.close_all()  # of a fork each has its own
        child = processes.Process(target=seal)
        child.start()
        child.join(chance.uniform(0.02, 0.1))
        child.kill()
        child.join()
        deaths += child.exitcode == -signal.SIGKILL
    assert deaths > 3
    seal()
    assert AuditSeal.objects.count() == 400
    assert flaws() == []


class TestText:
    """What is hashed is the same on both databases, whatever they make of it."""

    @pytest.mark.parametrize(
        ("details", "text"),
        [
            ({}, "{}"),
            ({"b": 1, "a": [True, None]}, '{"a":[true,null],"b":1}'),
            ({"bb": 1, "c": 1}, '{"bb":1,"c":1}'),
            ({"f": 0.1}, '{"f":0.1}'),
            ({"f": 1.0}, '{"f":1.0}'),
            ({"f": 1e16}, '{"f":10000000000000000}'),
            ({"f": [1e-7, {"g": -2.5e-9}]}, '{"f":[0.0000001,{"g":-0.0000000025}]}'),
            ({"f": -0.0}, '{"f":0.0}'),
            ({"f": 10**30}, '{"f":1000000000000000000000000000000}'),
            (
                {"é": '日本 \u2028 \x1b "\\'},
                r'{"\u00e9":"\u65e5\u672c \u2028 \u001b \"\\"}',
            ),
            ({"s": "\U0001f600"}, r'{"s":"\ud83d\ude00"}'),
        ],
    )
    def test_details(self, details: dict[str, Any], text: str) -> None:
        write(1, **details)
        (record,) = rows.unsealed(1)
        sealed = rows.seal_text(1, "x", "now", True, record)
        assert sealed.endswith(f'"details":{text}}}}}')
        assert json.loads(sealed)["record"]["details"] == details

    @pytest.mark.parametrize("microsecond", [0, 1, 100_000, 120_000, 999_999])
    def test_times_have_six_digits(self, microsecond: int) -> None:
        at = datetime(2026, 3, 29, 2, 30, 1, microsecond, tzinfo=UTC)
        AuditRecord.objects.create(actor="a", action="b", target="c", at=at)
        (record,) = rows.unsealed(1)
        assert rows.time_text(record[1]) == f"2026-03-29T02:30:01.{microsecond:06}Z"
        assert rows.iso(at) == rows.time_text(record[1])

    def test_the_chain_has_the_same_hashes_on_both_databases(self) -> None:
        at = datetime(2026, 12, 1, 12, 0, 0, 120_000, tzinfo=UTC)
        AuditRecord.objects.create(
            pk=7, actor="é", action="x", target="y\n", details={"f": 1e-9}, at=at
        )
        with time_machine.travel(at, tick=False):
            seal()
        assert AuditSeal.objects.get().hash == (
            "69608ce6fd9e4ab4beb3588fb1fa57af6baeb21345e2d09173752f96cc039510"
        )

    @pytest.mark.parametrize(
        "stored",
        ['{"a":1}', '{"a": 1.00}', '{"a": 1e0}', '{"a": 2, "a": 1}', "{ }", "[", b"{}"],
    )
    def test_another_form_of_the_same_has_another_text(
        self, monkeypatch: Any, stored: Any
    ) -> None:
        monkeypatch.setattr(rows, "IS_SQLITE", True)  # jsonb has but one form
        plain = rows.seal_text(1, "x", "now", True, (1, "", "", "", "", "", '{"a": 1}'))
        other = rows.seal_text(1, "x", "now", True, (1, "", "", "", "", "", stored))
        assert json.loads(other) != json.loads(plain)


class TestGuards:
    @pytest.fixture(autouse=True)
    def _trail(self) -> None:
        write(3)
        seal()

    @pytest.mark.parametrize("table", EACH)
    @pytest.mark.parametrize(
        "statement",
        [
            "UPDATE {} SET {} = {}",
            "DELETE FROM {}",
            "INSERT OR REPLACE INTO {} SELECT * FROM {}"
            if connection.vendor == "sqlite"
            else "TRUNCATE {}",
        ],
    )
    def test_nothing_is_changed_deleted_or_replaced(
        self, table: str, statement: str
    ) -> None:
        column = {"jobs_auditrecord": "target", "jobs_auditseal": "hash"}[table]
        names = [table, table] if "REPLACE" in statement else [table, column, column]
        with pytest.raises(IntegrityError):
            sql(statement.format(*names))
        assert flaws() == []

    @pytest.mark.parametrize(
        ("number", "record_id", "previous"),
        [
            pytest.param(5, 4, "head", id="a number left out"),
            pytest.param(3, 4, "before", id="a second of that number"),
            pytest.param(4, 4, "before", id="not from the one before"),
            pytest.param(4, 3, "head", id="a second seal of a record"),
            pytest.param(4, 9999, "head", id="of no record"),
            pytest.param(1, 4, "start", id="a second beginning"),
            pytest.param(0, 4, "start", id="before the beginning"),
        ],
    )
    def test_a_seal_that_is_no_link_is_refused(
        self, number: int, record_id: int, previous: str
    ) -> None:
        write(1)
        ids = list(AuditRecord.objects.values_list("pk", flat=True))
        hashes = list(AuditSeal.objects.values_list("hash", flat=True))
        named = {"head": hashes[2], "before": hashes[1], "start": "0" * 64}
        with pytest.raises(IntegrityError), transaction.atomic():
            AuditSeal.objects.create(
                number=number,
                record_id=ids[record_id - 1] if record_id < 9 else record_id,
                previous=named[previous],
                hash="f" * 64,
                sealed_at=timezone.now(),
                is_anchored=True,
            )

    @pytest.mark.parametrize("key", ["number", "record_id"])
    def test_nor_is_it_replaced_by_either_key(self, key: str) -> None:
        other = {"number": "record_id", "record_id": "number"}[key]
        verb, end = "INSERT OR REPLACE", ""
        if connection.vendor == "postgresql":
            verb, end = "INSERT", f" ON CONFLICT ({key}) DO UPDATE SET hash = 'x'"
        with pytest.raises(IntegrityError):
            sql(
                f"{verb} INTO jobs_auditseal ({key}, {other}, previous, hash,"
                f" sealed_at, is_anchored) SELECT {key}, {other} + 1000, previous,"
                f" hash, sealed_at, is_anchored FROM jobs_auditseal WHERE true{end}"
            )


class TestAnchor:
    def test_it_is_for_us_and_our_group(self) -> None:
        write(1)
        seal()
        assert anchor.path().stat().st_mode & 0o777 == 0o640

    def test_each_sealing_is_told_to_the_systems_log(self, monkeypatch: Any) -> None:
        told: list[str] = []
        monkeypatch.setattr(syslog, "syslog", lambda _, text: told.append(text))
        write(2)
        seal()
        assert told == [anchor.path().read_text().strip()]
        assert told[0].startswith(f"2 {AuditSeal.objects.get(number=2).hash} ")

    def test_it_is_begun_anew_with_a_reason_that_stays(self) -> None:
        write(2)
        seal()
        write(2)
        seal()
        anchor.path().write_bytes(anchor.path().read_bytes()[:50])
        assert flaws() != []
        aside = renew("The disk of var was lost.", by="root on the console")
        assert anchor.path().with_name(aside).stat().st_size == 50
        record = AuditRecord.objects.get(action="audit.anchor_renewed")
        assert record.actor == "root on the console"
        assert record.details["reason"] == "The disk of var was lost."
        assert AuditSeal.objects.filter(record_id=record.pk).exists()
        assert flaws() == []

    def test_without_any_file_too(self) -> None:
        write(2)
        seal()
        anchor.path().unlink()
        assert renew("It was never backed up.", by="root") == ""
        assert flaws() == []
