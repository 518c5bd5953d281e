from django.db import migrations

from jobs.migrations._guards import run

LIVE = "SELECT 1 FROM scheduler_allocation WHERE gpu_id = NEW.gpu_id AND released_at IS NULL"
ALONE = f"EXISTS ({LIVE} AND (is_exclusive OR NEW.is_exclusive))"
SUM = (
    "(SELECT COALESCE(SUM(vram_mb), 0) FROM scheduler_allocation "
    "WHERE gpu_id = NEW.gpu_id AND released_at IS NULL)"
)
USABLE = (
    "COALESCE((SELECT total_mb - reserved_mb - headroom_mb FROM scheduler_gpu "
    "WHERE id = NEW.gpu_id), 0)"
)
ATTEMPT_LIVE = (
    "EXISTS (SELECT 1 FROM jobs_attempt WHERE id = NEW.attempt_id AND ended_at IS NULL)"
)
HOLDS = (
    "EXISTS (SELECT 1 FROM scheduler_allocation "
    "WHERE attempt_id = NEW.id AND released_at IS NULL)"
)
KEPT = ("attempt_id", "gpu_id", "vram_mb", "is_exclusive", "reserved_at")


def changed(operator):
    return " OR ".join(f"NEW.{name} {operator} OLD.{name}" for name in KEPT)


SQLITE = [
    f"""
    CREATE TRIGGER guard_allocation_open BEFORE INSERT ON scheduler_allocation
    WHEN NEW.released_at IS NULL
    BEGIN
      SELECT RAISE(ABORT, 'allocation: the attempt is not live') WHERE NOT {ATTEMPT_LIVE};
      SELECT RAISE(ABORT, 'allocation: an exclusive one is alone') WHERE {ALONE};
      SELECT RAISE(ABORT, 'allocation: over the usable VRAM')
        WHERE {SUM} + NEW.vram_mb > {USABLE};
    END
    """,
    f"""
    CREATE TRIGGER guard_allocation_update BEFORE UPDATE ON scheduler_allocation
    WHEN {changed("IS NOT")}
      OR (OLD.released_at IS NOT NULL AND NEW.released_at IS NOT OLD.released_at)
    BEGIN SELECT RAISE(ABORT, 'allocation: opened once, released once'); END
    """,
    """
    CREATE TRIGGER guard_allocation_delete BEFORE DELETE ON scheduler_allocation
    WHEN OLD.released_at IS NULL
      AND NOT EXISTS (SELECT 1 FROM jobs_purge_pass WHERE kind = 'all')
    BEGIN SELECT RAISE(ABORT, 'allocation: it is still open'); END
    """,
    f"""
    CREATE TRIGGER guard_attempt_holds BEFORE UPDATE OF ended_at ON jobs_attempt
    WHEN NEW.ended_at IS NOT NULL AND {HOLDS}
    BEGIN SELECT RAISE(ABORT, 'attempt: it still holds a GPU'); END
    """,
]

POSTGRESQL = [
    # The GPU's row is locked before the sum: two that only summed would both pass.
    # A snapshot older than that lock would sum stale rows, hence READ COMMITTED.
    f"""
    CREATE FUNCTION guard_allocation_open() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      IF NEW.released_at IS NOT NULL THEN RETURN NEW; END IF;
      IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'allocation: open it in READ COMMITTED'
          USING ERRCODE = 'integrity_constraint_violation';
      END IF;
      PERFORM 1 FROM scheduler_gpu WHERE id = NEW.gpu_id FOR UPDATE;
      PERFORM 1 FROM jobs_attempt WHERE id = NEW.attempt_id FOR SHARE;
      IF NOT {ATTEMPT_LIVE} THEN
        RAISE EXCEPTION 'allocation: the attempt is not live'
          USING ERRCODE = 'integrity_constraint_violation';
      END IF;
      IF {ALONE} THEN
        RAISE EXCEPTION 'allocation: an exclusive one is alone'
          USING ERRCODE = 'integrity_constraint_violation';
      END IF;
      IF {SUM} + NEW.vram_mb > {USABLE} THEN
        RAISE EXCEPTION 'allocation: over the usable VRAM'
          USING ERRCODE = 'integrity_constraint_violation';
      END IF;
      RETURN NEW;
    END $$
    """,
    (
        "CREATE TRIGGER guard_open BEFORE INSERT ON scheduler_allocation "
        "FOR EACH ROW EXECUTE FUNCTION guard_allocation_open()"
    ),
    f"""
    CREATE FUNCTION guard_allocation_update() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      IF {changed("IS DISTINCT FROM")} OR (OLD.released_at IS NOT NULL
         AND NEW.released_at IS DISTINCT FROM OLD.released_at) THEN
        RAISE EXCEPTION 'allocation: opened once, released once'
          USING ERRCODE = 'integrity_constraint_violation';
      END IF;
      RETURN NEW;
    END $$
    """,
    (
        "CREATE TRIGGER guard_update BEFORE UPDATE ON scheduler_allocation "
        "FOR EACH ROW EXECUTE FUNCTION guard_allocation_update()"
    ),
    """
    CREATE FUNCTION guard_allocation_delete() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      IF OLD.released_at IS NULL
         AND COALESCE(current_setting('gpujobs.purge', true), '') <> 'all' THEN
        RAISE EXCEPTION 'allocation: it is still open'
          USING ERRCODE = 'integrity_constraint_violation';
      END IF;
      RETURN OLD;
    END $$
    """,
    (
        "CREATE TRIGGER guard_delete BEFORE DELETE ON scheduler_allocation "
        "FOR EACH ROW EXECUTE FUNCTION guard_allocation_delete()"
    ),
    f"""
    CREATE FUNCTION guard_attempt_holds() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      IF NEW.ended_at IS NOT NULL AND OLD.ended_at IS NULL AND {HOLDS} THEN
        RAISE EXCEPTION 'attempt: it still holds a GPU'
          USING ERRCODE = 'integrity_constraint_violation';
      END IF;
      RETURN NEW;
    END $$
    """,
    (
        "CREATE TRIGGER guard_holds BEFORE UPDATE ON jobs_attempt "
        "FOR EACH ROW EXECUTE FUNCTION guard_attempt_holds()"
    ),
]


class Migration(migrations.Migration):
    dependencies = [("scheduler", "0001_initial"), ("jobs", "0002_guards")]
    operations = [
        migrations.RunPython(
            run({"sqlite": SQLITE, "postgresql": POSTGRESQL}),
            migrations.RunPython.noop,
        )
    ]
