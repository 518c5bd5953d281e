from django.db import migrations

from jobs.migrations._guards import run

MOVES = {
    "queued": "'starting', 'failed', 'cancelled'",
    "starting": "'running', 'queued', 'failed', 'cancelled'",
    "running": "'queued', 'succeeded', 'failed', 'cancelled'",
}
TERMINAL = "('succeeded', 'failed', 'cancelled')"
LEGAL = " OR ".join(
    f"(OLD.status = '{source}' AND NEW.status IN ({targets}))"
    for source, targets in MOVES.items()
)
# What an ended job is remembered by.
FROZEN = [
    "status",
    "started_at",
    "finished_at",
    "exit_code",
    "reason",
    "owner_id",
    "image",
    "command",
    "gpu_count",
    "min_vram_mb",
    "created_at",
]
FROZEN_ATTEMPT = [
    "ended_at",
    "started_at",
    "exit_code",
    "reason",
    "node",
    "job_id",
    "number",
]


def changed(columns, operator):
    return " OR ".join(f"NEW.{name} {operator} OLD.{name}" for name in columns)


def sqlite_append_only(table, kind):
    short = table.removeprefix("jobs_")
    refuse = f"SELECT RAISE(ABORT, '{table} is append-only');"
    return [
        (
            f"CREATE TRIGGER guard_{short}_update BEFORE UPDATE ON {table} "
            f"BEGIN {refuse} END"
        ),
        (
            f"CREATE TRIGGER guard_{short}_delete BEFORE DELETE ON {table} WHEN NOT EXISTS "
            f"(SELECT 1 FROM jobs_purge_pass WHERE kind IN ('{kind}', 'all')) "
            f"BEGIN {refuse} END"
        ),
        # INSERT OR REPLACE deletes without firing the delete trigger.
        (
            f"CREATE TRIGGER guard_{short}_replace BEFORE INSERT ON {table} WHEN EXISTS "
            f"(SELECT 1 FROM {table} WHERE id = NEW.id) BEGIN {refuse} END"
        ),
    ]


def postgresql_append_only(table, kind):
    return [
        f"""
        CREATE FUNCTION guard_{table}() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
          IF TG_OP <> 'UPDATE' AND
             current_setting('gpujobs.purge', true) IN ('{kind}', 'all') THEN
            RETURN OLD;
          END IF;
          RAISE EXCEPTION '{table} is append-only'
            USING ERRCODE = 'integrity_constraint_violation';
        END $$
        """,
        (
            f"CREATE TRIGGER guard_row BEFORE UPDATE OR DELETE ON {table} "
            f"FOR EACH ROW EXECUTE FUNCTION guard_{table}()"
        ),
        (
            f"CREATE TRIGGER guard_truncate BEFORE TRUNCATE ON {table} "
            f"FOR EACH STATEMENT EXECUTE FUNCTION guard_{table}()"
        ),
    ]


LIVE_ATTEMPT = (
    "EXISTS (SELECT 1 FROM jobs_attempt WHERE job_id = NEW.id AND ended_at IS NULL)"
)

SQLITE = [
    "CREATE TABLE jobs_purge_pass (kind TEXT NOT NULL)",
    f"""
    CREATE TRIGGER guard_job_moves BEFORE UPDATE OF status ON jobs_job
    WHEN NEW.status <> OLD.status AND NOT ({LEGAL})
    BEGIN SELECT RAISE(ABORT, 'job: no such move'); END
    """,
    f"""
    CREATE TRIGGER guard_job_terminal BEFORE UPDATE ON jobs_job
    WHEN OLD.status IN {TERMINAL} AND ({changed(FROZEN, "IS NOT")})
    BEGIN SELECT RAISE(ABORT, 'job: it has ended'); END
    """,
    f"""
    CREATE TRIGGER guard_job_ends BEFORE UPDATE OF status ON jobs_job
    WHEN NEW.status IN {TERMINAL} AND {LIVE_ATTEMPT}
    BEGIN SELECT RAISE(ABORT, 'job: an attempt is live'); END
    """,
    f"""
    CREATE TRIGGER guard_attempt_ended BEFORE UPDATE ON jobs_attempt
    WHEN OLD.ended_at IS NOT NULL AND ({changed(FROZEN_ATTEMPT, "IS NOT")})
    BEGIN SELECT RAISE(ABORT, 'attempt: it has ended'); END
    """,
    *sqlite_append_only("jobs_jobevent", "events"),
    *sqlite_append_only("jobs_auditrecord", "audit"),
]

POSTGRESQL = [
    f"""
    CREATE FUNCTION guard_jobs_job() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      IF NEW.status <> OLD.status AND NOT ({LEGAL}) THEN
        RAISE EXCEPTION 'job: no such move'
          USING ERRCODE = 'integrity_constraint_violation';
      END IF;
      IF OLD.status IN {TERMINAL} AND ({changed(FROZEN, "IS DISTINCT FROM")}) THEN
        RAISE EXCEPTION 'job: it has ended'
          USING ERRCODE = 'integrity_constraint_violation';
      END IF;
      IF NEW.status <> OLD.status AND NEW.status IN {TERMINAL} AND {LIVE_ATTEMPT} THEN
        RAISE EXCEPTION 'job: an attempt is live'
          USING ERRCODE = 'integrity_constraint_violation';
      END IF;
      RETURN NEW;
    END $$
    """,
    (
        "CREATE TRIGGER guard_row BEFORE UPDATE ON jobs_job "
        "FOR EACH ROW EXECUTE FUNCTION guard_jobs_job()"
    ),
    f"""
    CREATE FUNCTION guard_jobs_attempt() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      IF OLD.ended_at IS NOT NULL
         AND ({changed(FROZEN_ATTEMPT, "IS DISTINCT FROM")}) THEN
        RAISE EXCEPTION 'attempt: it has ended'
          USING ERRCODE = 'integrity_constraint_violation';
      END IF;
      RETURN NEW;
    END $$
    """,
    (
        "CREATE TRIGGER guard_row BEFORE UPDATE ON jobs_attempt "
        "FOR EACH ROW EXECUTE FUNCTION guard_jobs_attempt()"
    ),
    *postgresql_append_only("jobs_jobevent", "events"),
    *postgresql_append_only("jobs_auditrecord", "audit"),
]


class Migration(migrations.Migration):
    dependencies = [("jobs", "0001_initial")]
    operations = [
        migrations.RunPython(
            run({"sqlite": SQLITE, "postgresql": POSTGRESQL}),
            migrations.RunPython.noop,
        )
    ]
