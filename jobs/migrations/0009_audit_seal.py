from django.db import migrations, models

from jobs.migrations._guards import run

START = "0" * 64
REFUSE = "SELECT RAISE(ABORT, 'jobs_auditseal is append-only');"
# Each seal is of a record that is there, and goes on from the one before.
LINKED = (
    "EXISTS (SELECT 1 FROM jobs_auditrecord WHERE id = NEW.record_id) AND ("
    "EXISTS (SELECT 1 FROM jobs_auditseal"
    " WHERE number = NEW.number - 1 AND hash = NEW.previous)"
    f" OR (NEW.number = 1 AND NEW.previous = '{START}'"
    " AND NOT EXISTS (SELECT 1 FROM jobs_auditseal)))"
)
SEED = "INSERT INTO jobs_unsealedrecord (record_id) SELECT id FROM jobs_auditrecord"

SQLITE = [
    (
        "CREATE TRIGGER guard_auditseal_update BEFORE UPDATE ON jobs_auditseal "
        f"BEGIN {REFUSE} END"
    ),
    (
        "CREATE TRIGGER guard_auditseal_delete BEFORE DELETE ON jobs_auditseal "
        "WHEN NOT EXISTS (SELECT 1 FROM jobs_purge_pass WHERE kind IN ('audit', 'all')) "
        f"BEGIN {REFUSE} END"
    ),
    # INSERT OR REPLACE deletes without firing the delete trigger.
    (
        "CREATE TRIGGER guard_auditseal_replace BEFORE INSERT ON jobs_auditseal "
        "WHEN EXISTS (SELECT 1 FROM jobs_auditseal"
        " WHERE number = NEW.number OR record_id = NEW.record_id) "
        f"BEGIN {REFUSE} END"
    ),
    (
        "CREATE TRIGGER guard_auditseal_link BEFORE INSERT ON jobs_auditseal "
        f"WHEN NOT ({LINKED}) "
        "BEGIN SELECT RAISE(ABORT, 'jobs_auditseal: no link of the chain'); END"
    ),
    (
        "CREATE TRIGGER guard_auditrecord_waits AFTER INSERT ON jobs_auditrecord "
        "BEGIN INSERT OR IGNORE INTO jobs_unsealedrecord (record_id) VALUES (NEW.id); END"
    ),
    SEED,
]
POSTGRESQL = [
    """
    CREATE FUNCTION guard_jobs_auditseal() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      IF TG_OP <> 'UPDATE' AND
         current_setting('gpujobs.purge', true) IN ('audit', 'all') THEN
        RETURN OLD;
      END IF;
      RAISE EXCEPTION 'jobs_auditseal is append-only'
        USING ERRCODE = 'integrity_constraint_violation';
    END $$
    """,
    (
        "CREATE TRIGGER guard_row BEFORE UPDATE OR DELETE ON jobs_auditseal "
        "FOR EACH ROW EXECUTE FUNCTION guard_jobs_auditseal()"
    ),
    (
        "CREATE TRIGGER guard_truncate BEFORE TRUNCATE ON jobs_auditseal "
        "FOR EACH STATEMENT EXECUTE FUNCTION guard_jobs_auditseal()"
    ),
    f"""
    CREATE FUNCTION guard_jobs_auditseal_link() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      IF NOT ({LINKED}) THEN
        RAISE EXCEPTION 'jobs_auditseal: no link of the chain'
          USING ERRCODE = 'integrity_constraint_violation';
      END IF;
      RETURN NEW;
    END $$
    """,
    (
        "CREATE TRIGGER guard_link BEFORE INSERT ON jobs_auditseal "
        "FOR EACH ROW EXECUTE FUNCTION guard_jobs_auditseal_link()"
    ),
    """
    CREATE FUNCTION guard_jobs_auditrecord_waits() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      INSERT INTO jobs_unsealedrecord (record_id) SELECT id FROM added
        ON CONFLICT DO NOTHING;
      RETURN NULL;
    END $$
    """,
    (
        "CREATE TRIGGER guard_waits AFTER INSERT ON jobs_auditrecord "
        "REFERENCING NEW TABLE AS added "
        "FOR EACH STATEMENT EXECUTE FUNCTION guard_jobs_auditrecord_waits()"
    ),
    SEED,
]
# Else no record could be inserted once the table of what waits is gone.
BACK = {
    "sqlite": ["DROP TRIGGER guard_auditrecord_waits"],
    "postgresql": [
        f"DROP FUNCTION guard_jobs_{name}() CASCADE"
        for name in ("auditrecord_waits", "auditseal", "auditseal_link")
    ],
}


class Migration(migrations.Migration):
    dependencies = [("jobs", "0008_site_policy")]
    operations = [
        migrations.CreateModel(
            name="AuditSeal",
            fields=[
                ("number", models.BigIntegerField(primary_key=True, serialize=False)),
                ("record_id", models.BigIntegerField(unique=True)),
                ("previous", models.CharField(max_length=64)),
                ("hash", models.CharField(max_length=64)),
                ("sealed_at", models.DateTimeField()),
                ("is_anchored", models.BooleanField()),
            ],
            options={"ordering": ["number"]},
        ),
        migrations.CreateModel(
            name="UnsealedRecord",
            fields=[
                (
                    "record_id",
                    models.BigIntegerField(primary_key=True, serialize=False),
                ),
            ],
            options={"ordering": ["record_id"]},
        ),
        migrations.RunPython(
            run({"sqlite": SQLITE, "postgresql": POSTGRESQL}), run(BACK)
        ),
    ]
