"""Which triggers and constraints a database must have, and which it has."""

from collections import defaultdict

from django.apps import apps
from django.db import connection

_APPEND_ONLY = {
    "jobs_jobevent": "jobevent",
    "jobs_auditrecord": "auditrecord",
    "jobs_auditseal": "auditseal",
}
# Beside these: what is inserted waits for its seal, and a seal goes on from another.
_INSERTS = {
    "sqlite": {
        "jobs_auditrecord": {"guard_auditrecord_waits"},
        "jobs_auditseal": {"guard_auditseal_link"},
    },
    "postgresql": {
        "jobs_auditrecord": {"guard_waits"},
        "jobs_auditseal": {"guard_link"},
    },
}
# As the migrations make them; a test compares both with a database.
TRIGGERS: dict[str, dict[str, set[str]]] = {
    "sqlite": {
        "jobs_job": {"guard_job_moves", "guard_job_terminal", "guard_job_ends"},
        "jobs_attempt": {"guard_attempt_ended", "guard_attempt_holds"},
        "jobs_routingpolicy": {"guard_policy_frozen", "guard_policy_kept"},
        "jobs_modeltier": {
            f"guard_tier_{verb}" for verb in ("insert", "update", "delete")
        },
        "scheduler_allocation": {
            "guard_allocation_open",
            "guard_allocation_update",
            "guard_allocation_delete",
        },
        **{
            table: {f"guard_{name}_{verb}" for verb in ("update", "delete", "replace")}
            | _INSERTS["sqlite"].get(table, set())
            for table, name in _APPEND_ONLY.items()
        },
    },
    "postgresql": {
        "jobs_job": {"guard_row"},
        "jobs_attempt": {"guard_row", "guard_holds"},
        "jobs_routingpolicy": {"guard_row"},
        "jobs_modeltier": {"guard_row"},
        "scheduler_allocation": {"guard_open", "guard_update", "guard_delete"},
        **{
            table: {"guard_row", "guard_truncate"}
            | _INSERTS["postgresql"].get(table, set())
            for table in _APPEND_ONLY
        },
    },
}
_FOUND = {
    "sqlite": "SELECT tbl_name, name FROM sqlite_master WHERE type = 'trigger'",
    # 'O' and 'A' fire in an ordinary session; a trigger that is off is none.
    "postgresql": """
        SELECT relname, tgname FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid
        WHERE NOT tgisinternal AND tgenabled IN ('O', 'A')
        AND relnamespace = current_schema()::regnamespace
    """,
}


def expected_guards() -> dict[str, set[str]]:
    """By table: our triggers, and the constraints that our models name."""
    expected = {table: set(names) for table, names in _expected_triggers().items()}
    for table, names in _constraints_of_models().items():
        expected.setdefault(table, set()).update(names)
    return expected


def _expected_triggers() -> dict[str, set[str]]:
    return TRIGGERS[connection.vendor]


def _constraints_of_models() -> dict[str, set[str]]:
    models = [
        model
        for app in ("jobs", "scheduler")
        for model in apps.get_app_config(app).get_models()
    ]
    named = {
        model._meta.db_table: {each.name for each in model._meta.constraints}
        for model in models
    }
    return {table: names for table, names in named.items() if names}


def found_guards() -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    with connection.cursor() as cursor:
        cursor.execute(_FOUND[connection.vendor])
        for table, name in cursor.fetchall():
            found[table].add(name)
        for table in _constraints_of_models():
            there = connection.introspection.get_constraints(cursor, table)
            found[table].update(there)
    return found
