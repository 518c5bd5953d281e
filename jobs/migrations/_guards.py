"""Triggers by which the database refuses the illegal.

SQLite rebuilds a table for most changes of its columns: its triggers are lost, and a
trigger of another table that names it makes the rebuild fail. A migration that
alters a guarded table therefore starts with `suspend` and ends with `resume`.
PostgreSQL keeps its triggers, so there both do nothing.
"""

from collections.abc import Callable
from typing import Any

from django.db import migrations

_GUARDS = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND name LIKE 'guard_%%'"


def run(statements: dict[str, list[str]]) -> Callable[[Any, Any], None]:
    """A RunPython function that executes the statements of the database's vendor."""

    def install(apps: Any, schema_editor: Any) -> None:
        for statement in statements[schema_editor.connection.vendor]:
            schema_editor.execute(statement, params=None)

    return install


def _suspend(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor != "sqlite":
        return
    with schema_editor.connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE guard_shelf AS {_GUARDS}")
        cursor.execute("SELECT name FROM guard_shelf")
        for (name,) in cursor.fetchall():
            cursor.execute(f"DROP TRIGGER {name}")


def _resume(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor != "sqlite":
        return
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT sql FROM guard_shelf")
        for (sql,) in cursor.fetchall():
            cursor.execute(sql.replace("%", "%%"))
        cursor.execute("DROP TABLE guard_shelf")


def suspend() -> migrations.RunPython:
    return migrations.RunPython(_suspend, _resume)


def resume() -> migrations.RunPython:
    return migrations.RunPython(_resume, _suspend)
