"""Whoever changes the trail past its guards, or the file beside it, is found out."""

import io
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, transaction

from jobs import audit
from jobs.models import AuditRecord, AuditSeal
from jobs.sealing import Check, anchor, seal
from tests.scheduler.unguarded import unguarded

pytestmark = pytest.mark.django_db

IS_SQLITE = connection.vendor == "sqlite"
TABLES = ("jobs_auditrecord", "jobs_auditseal")
SEALINGS, AT_ONCE = 6, 8
# A change and a look at PostgreSQL take some milliseconds.
CHANGES = 10_000 if IS_SQLITE else 1_000

TEXTS = {
    "jobs_auditrecord": ["actor", "action", "target", "address", "details", "at"],
    "jobs_auditseal": ["previous", "hash", "sealed_at"],
}
KEY = {"jobs_auditrecord": "id", "jobs_auditseal": "number"}


def run(statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return cursor.fetchall() if cursor.description else []


@pytest.fixture
def trail() -> None:
    """Some sealings of records like those of jobs."""
    for sealing in range(SEALINGS):
        for number in range(AT_ONCE):
            audit.record(
                "job.failed",
                target=f"6f1c1f0e-{sealing}-{number}",
                by="Zo\u00eb <zoe@example.org>",
                reason="nonzero_exit",
                text=f"It ended with \u201c{number}\u201d.",
                exit_code=number,
                mean=[number / 7, 1e-7 * number, None, True],
            )
        seal()
    assert codes() == []


def codes() -> list[str]:
    return [flaw.code for flaw in Check().flaws()]


@contextmanager
def undone(rows: bool = True) -> Iterator[None]:
    """A change of rows and file that is as if it had never been afterwards."""
    file = anchor.path().read_bytes()
    mark = transaction.savepoint()
    try:
        yield
    finally:
        transaction.savepoint_rollback(mark)
        if not anchor.path().exists() or anchor.path().read_bytes() != file:
            anchor.path().write_bytes(file)


# --- Single changes at random --------------------------------------------------------

Change = Callable[[random.Random], object]


def any_row(chance: random.Random) -> tuple[str, str, int]:
    table = chance.choice(TABLES)
    ids = run(f"SELECT {KEY[table]} FROM {table} ORDER BY 1")
    return table, KEY[table], chance.choice(ids)[0]


def a_byte_of_a_row(chance: random.Random) -> None:
    table, key, pk = any_row(chance)
    column = chance.choice(TEXTS[table])
    if IS_SQLITE:
        ((stored,),) = run(
            f"SELECT CAST({column} AS BLOB) FROM {table} WHERE {key} = %s", pk
        )
        changed = bytes_with_one_other(stored or b"x", chance)
        value = f"CAST(x'{changed.hex()}' AS TEXT)"
        run(f"UPDATE {table} SET {column} = {value} WHERE {key} = %s", pk)
        return
    read = f"SELECT {column}::text FROM {table} WHERE {key} = %s"
    ((stored,),) = run(read, pk)
    kind = {"details": "jsonb", "at": "timestamptz", "sealed_at": "timestamptz"}
    other = text_with_one_other(stored or "x", chance)
    cast = kind.get(column, "text")
    run(f"UPDATE {table} SET {column} = %s::{cast} WHERE {key} = %s", other, pk)
    if run(read, pk) == [(stored,)]:
        raise DatabaseError("It is stored as it was: +0 for +00, or such.")


def bytes_with_one_other(stored: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(stored))
    other = (stored[place] + chance.randrange(1, 256)) % 256
    return stored[:place] + bytes([other]) + stored[place + 1 :]


def text_with_one_other(stored: str, chance: random.Random) -> str:
    place = chance.randrange(len(stored))
    other = chance.choice([c for c in "0123456789abcXYZ \u00e9" if c != stored[place]])
    return stored[:place] + other + stored[place + 1 :]


def a_number_of_a_row(chance: random.Random) -> None:
    table, key, pk = any_row(chance)
    column = chance.choice([key, "record_id"] if key == "number" else [key])
    by = chance.choice([-1, 1, 1000, -pk, 2**40])
    run(f"UPDATE {table} SET {column} = {column} + %s WHERE {key} = %s", by, pk)


def a_flag(chance: random.Random) -> None:
    pk = chance.choice(run("SELECT number FROM jobs_auditseal"))[0]
    change = "is_anchored + 1" if IS_SQLITE else "NOT is_anchored"
    run(f"UPDATE jobs_auditseal SET is_anchored = {change} WHERE number = %s", pk)


def a_row_less(chance: random.Random) -> None:
    table, key, pk = any_row(chance)
    run(f"DELETE FROM {table} WHERE {key} = %s", pk)


def a_row_more(chance: random.Random) -> None:
    table, key, pk = any_row(chance)
    columns = ", ".join(each for each in TEXTS[table] if each not in (key,))
    if key == "id":
        run(
            f"INSERT INTO {table} (id, {columns}) "
            f"SELECT id + 500, {columns} FROM {table} WHERE id = %s",
            pk,
        )
    else:
        run(
            f"INSERT INTO {table} (number, record_id, is_anchored, {columns}) SELECT "
            f"number + 500, record_id + 500, is_anchored, {columns} FROM {table} "
            "WHERE number = %s",
            pk,
        )


def a_pair_less(chance: random.Random) -> None:
    pk = chance.choice(run("SELECT record_id FROM jobs_auditseal"))[0]
    run("DELETE FROM jobs_auditseal WHERE record_id = %s", pk)
    run("DELETE FROM jobs_auditrecord WHERE id = %s", pk)


def two_records_swapped(chance: random.Random) -> None:
    one, other = chance.sample(run("SELECT id FROM jobs_auditrecord"), 2)
    run("UPDATE jobs_auditrecord SET id = -1 WHERE id = %s", *one)
    run("UPDATE jobs_auditrecord SET id = %s WHERE id = %s", *one, *other)
    run("UPDATE jobs_auditrecord SET id = %s WHERE id = -1", *other)


def two_seals_swapped(chance: random.Random) -> None:
    one, other = chance.sample(run("SELECT number FROM jobs_auditseal"), 2)
    run("UPDATE jobs_auditseal SET number = -1 WHERE number = %s", *one)
    run("UPDATE jobs_auditseal SET number = %s WHERE number = %s", *one, *other)
    run("UPDATE jobs_auditseal SET number = %s WHERE number = -1", *other)


def the_end_cut(chance: random.Random) -> None:
    keep = chance.randrange(SEALINGS * AT_ONCE)
    run(
        "DELETE FROM jobs_auditrecord WHERE id IN"
        " (SELECT record_id FROM jobs_auditseal WHERE number > %s)",
        keep,
    )
    run("DELETE FROM jobs_auditseal WHERE number > %s", keep)


def a_byte_of_the_file(chance: random.Random) -> None:
    path = anchor.path()
    path.write_bytes(bytes_with_one_other(path.read_bytes(), chance))


def the_file_cut(chance: random.Random) -> None:
    whole = anchor.path().read_bytes()
    anchor.path().write_bytes(whole[: chance.randrange(len(whole))])


def lines_changed(chance: random.Random) -> None:
    lines = anchor.path().read_bytes().splitlines(keepends=True)
    what = chance.choice(["dropped", "swapped", "twice", "appended", "head"])
    place = chance.randrange(len(lines) - 1)
    if what == "dropped":
        del lines[place]
    elif what == "swapped":
        lines[place], lines[place + 1] = lines[place + 1], lines[place]
    elif what == "head":
        del lines[: place + 1]
    else:
        at = place if what == "twice" else len(lines)
        lines.insert(at, lines[place])
    anchor.path().write_bytes(b"".join(lines))


KINDS: list[Change] = [
    *[a_byte_of_a_row] * 8,
    *[a_byte_of_the_file] * 5,
    *(a_number_of_a_row, a_flag, a_row_less, a_row_more, a_pair_less),
    *(two_records_swapped, two_seals_swapped, the_end_cut),
    *(the_file_cut, lines_changed),
]


@pytest.mark.usefixtures("trail")
def test_every_single_change_is_found() -> None:
    chance, made, overlooked = random.Random(20261201), 0, []
    with unguarded(*TABLES):
        while made < CHANGES:
            kind = chance.choice(KINDS)
            state = chance.getstate()
            with undone():
                try:
                    with transaction.atomic():
                        kind(chance)
                except DatabaseError:
                    continue  # what no database can hold is no change
                made += 1
                if not codes():
                    overlooked.append((kind, state[1][-1]))
    assert made == CHANGES
    assert overlooked == []
    assert codes() == []


# --- What is said of each ------------------------------------------------------------


def verify() -> tuple[int, str]:
    out = io.StringIO()
    try:
        call_command("audit", "verify", patience=0, stdout=out)
    except CommandError as error:
        return error.returncode, f"{out.getvalue()}{error}"
    return 0, out.getvalue()


def drop_lines(start: int, end: int | None) -> None:
    lines = anchor.path().read_bytes().splitlines(keepends=True)
    anchor.path().write_bytes(
        b"".join([*lines[:start], *lines[end:]] if end else lines[:start])
    )


def seal_of(number: int) -> int:
    return AuditSeal.objects.get(number=number).record_id


SAID: dict[str, tuple[Callable[[], object], str]] = {
    "changed": (
        lambda: run(
            "UPDATE jobs_auditrecord SET actor = 'eve' WHERE id = %s", seal_of(5)
        ),
        "It is not what seal 5 is of",
    ),
    "missing record": (
        lambda: run("DELETE FROM jobs_auditrecord WHERE id = %s", seal_of(5)),
        "missing: seal 5: Audit record",
    ),
    "missing seals": (
        lambda: run("DELETE FROM jobs_auditseal WHERE number IN (5, 6)"),
        "missing: seal 7: The seals after 4 and before it are missing.",
    ),
    "inserted": (
        lambda: run(
            "INSERT INTO jobs_auditrecord (actor, action, target, details, address, at)"
            " VALUES ('eve', 'x', 'y', '{}', '', CURRENT_TIMESTAMP)"
        ),
        "It has no seal and waits for none",
    ),
    "reordered": (lambda: two_seals_swapped(random.Random(1)), "reordered: seal "),
    "head cut": (
        lambda: run("DELETE FROM jobs_auditseal WHERE number < 9"),
        "missing: seal 9: The seals before it are missing, and no record says",
    ),
    "tail cut": (
        lambda: the_end_cut(random.Random(1)),
        "cut_tail: audit.anchor line ",
    ),
    "emptied": (
        lambda: [run(f"DELETE FROM {table}") for table in TABLES],
        "It tells of seal 8, and the table ends with 0",
    ),
    "anchor altered": (
        lambda: a_byte_of_the_file(random.Random(1)),
        "anchor_altered: audit.anchor line ",
    ),
    "anchor cut": (
        lambda: drop_lines(3, None),
        "It has no line of the sealings that ended with seal 32, 40, 48.",
    ),
    "anchor emptied": (
        lambda: anchor.path().write_bytes(b""),
        "It is missing or empty, and had the sealings that ended with seal 8, 16,",
    ),
    "anchor missing": (
        lambda: anchor.path().unlink(),
        "It is missing or empty, and had the sealings that ended with seal 8, 16,",
    ),
}


@pytest.mark.usefixtures("trail")
@pytest.mark.parametrize("what", SAID)
def test_it_is_said_what_is_wrong_and_where(what: str) -> None:
    act, text = SAID[what]
    assert verify()[0] == 0
    with unguarded(*TABLES):
        act()
    status, said = verify()
    assert status == 1
    assert text in said
    assert "The audit trail is not intact" in said


@pytest.mark.usefixtures("trail")
def test_sealing_on_hides_no_cut_of_the_table_and_none_of_the_file() -> None:
    with unguarded(*TABLES):
        run(
            "DELETE FROM jobs_auditrecord WHERE id IN"
            " (SELECT record_id FROM jobs_auditseal WHERE number > 30)"
        )
        run("DELETE FROM jobs_auditseal WHERE number > 30")
    for _ in range(3):
        audit.record("job.noted", target=1, by="eve")
        seal()
    assert "cut_tail" in codes()


@pytest.mark.usefixtures("trail")
@pytest.mark.parametrize("keep", [0, 1, 4])
def test_nor_a_cut_of_the_file(keep: int) -> None:
    drop_lines(keep, None)
    for _ in range(3):
        audit.record("job.noted", target=1, by="eve")
        seal()
    assert codes() == ["anchor_cut"]


@pytest.mark.usefixtures("trail")
def test_a_chain_that_was_computed_anew_does_not_match_the_file(tmp_path: Path) -> None:
    told = anchor.path().read_bytes()
    targets = list(AuditRecord.objects.values_list("target", flat=True))
    with unguarded(*TABLES):
        for table in TABLES:
            run(f"DELETE FROM {table}")
    audit.record_each("job.succeeded", targets=targets, by="eve")
    anchor.path().unlink()
    seal()
    assert codes() == []
    anchor.path().write_bytes(told)
    assert set(codes()) >= {"anchor_differs"}


def test_what_waits_for_long_is_said_and_what_is_new_is_not() -> None:
    audit.record("job.noted", target=1, by="alice")
    assert verify()[0] == 0
    with unguarded(*TABLES):
        run("UPDATE jobs_auditrecord SET at = '2026-01-01 00:00:00'")
    status, said = verify()
    assert (status, "not_sealed: record" in said) == (1, True)
    seal()
    assert verify()[0] == 0


def test_a_record_that_went_before_it_was_sealed_is_said() -> None:
    audit.record("job.noted", target=1, by="alice")
    with unguarded(*TABLES):
        run("DELETE FROM jobs_auditrecord")
    seal()
    assert "It was deleted before it was sealed." in verify()[1]
