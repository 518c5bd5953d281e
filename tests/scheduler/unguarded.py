"""Rows that the database would refuse, for tests of what finds them all the same."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection


@contextmanager
def unguarded(*tables: str) -> Iterator[None]:
    """Within it nothing but unique indexes refuses; every guard is back after it."""
    off = _off_on_postgresql if connection.vendor == "postgresql" else _off_on_sqlite
    with connection.cursor() as cursor, off(cursor, tables):
        yield


@contextmanager
def _off_on_sqlite(cursor: Any, tables: tuple[str, ...]) -> Iterator[None]:
    cursor.execute(
        "SELECT name, sql, tbl_name FROM sqlite_master WHERE type = 'trigger'"
    )
    triggers = [row for row in cursor.fetchall() if row[2] in tables]
    for name, _, _ in triggers:
        cursor.execute(f"DROP TRIGGER {name}")
    cursor.execute("PRAGMA ignore_check_constraints = ON")
    try:
        yield
    finally:
        cursor.execute("PRAGMA ignore_check_constraints = OFF")
    for _, sql, _ in triggers:
        cursor.execute(sql.replace("%", "%%"))


@contextmanager
def _off_on_postgresql(cursor: Any, tables: tuple[str, ...]) -> Iterator[None]:
    # What is still to be checked at the commit keeps a table from being altered.
    cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
    cursor.execute(
        "SELECT conrelid::regclass, conname, pg_get_constraintdef(oid) "
        "FROM pg_constraint WHERE contype = 'c' AND conrelid::regclass::text = ANY(%s)",
        [list(tables)],
    )
    checks = cursor.fetchall()
    for table, name, _ in checks:
        cursor.execute(f"ALTER TABLE {table} DROP CONSTRAINT {name}")
    cursor.execute("SET LOCAL session_replication_role = replica")
    yield
    cursor.execute("SET LOCAL session_replication_role = origin")
    for table, name, text in checks:
        text = text.removesuffix(" NOT VALID").replace("%", "%%")
        cursor.execute(f"ALTER TABLE {table} ADD CONSTRAINT {name} {text} NOT VALID")
