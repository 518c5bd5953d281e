"""How fast the audit trail is verified, and sealed.

    python -m bench.audit                          on SQLite, in a folder of its own
    python -m tests.postgres python -m bench.audit on PostgreSQL

50,000 records as jobs make them, beside the least there could be in the same run: to
read the rows, and to read them as Django's objects. "x" is the median of the ratios to
reading the rows.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import django

RECORDS, ROUNDS = 50_000, 5


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gpujobs.settings")
        os.environ.setdefault("GPUJOBS_SECRET_KEY", "bench " * 10)
        os.environ["GPUJOBS_DATA_ROOT"] = folder
        django.setup()
        from django.core.management import call_command  # noqa: PLC0415 - after setup

        call_command("migrate", verbosity=0)
        measure()


def measure() -> None:
    from django.db import connection  # noqa: PLC0415

    from jobs.sealing import seal  # noqa: PLC0415

    fill()
    print(f"{connection.vendor}; load average {os.getloadavg()[0]:.1f}\n")
    print(f"sealed: {RECORDS / took_s(seal):,.0f} records a second\n")
    print("| what | rows/s, median | x reading |\n| --- | ---: | ---: |")
    rounds = [[took_s(each) for each in (read, objects, verify)] for _ in range(ROUNDS)]
    for place, name in enumerate(("read the rows", "as objects", "verify")):
        median_s = statistics.median(each[place] for each in rounds)
        ratio = statistics.median(each[place] / each[0] for each in rounds)
        print(f"| {name} | {RECORDS / median_s:,.0f} | {ratio:.1f} |")


def took_s(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def fill() -> None:
    from jobs import audit  # noqa: PLC0415

    job = "6f1c1f0e-7d62-4a4e-9c4e-3f0b8f6f2a{:02x}"
    for start in range(0, RECORDS, 1000):
        audit.record_each(
            "job.failed",
            targets=[job.format(n % 256) for n in range(1000)],
            by="supervisor",
            reason="nonzero_exit",
            text=f"It ended with exit code 1 after {start} seconds.",
            exit_code=1,
            mean_utilisation=start / 7,
        )


def read() -> None:
    from django.db import connection  # noqa: PLC0415

    with connection.chunked_cursor() as cursor:
        cursor.execute(
            "SELECT s.*, r.* FROM jobs_auditseal s JOIN jobs_auditrecord r "
            "ON r.id = s.record_id ORDER BY s.number"
        )
        while cursor.fetchmany(2000):
            pass


def objects() -> None:
    from jobs.models import AuditRecord  # noqa: PLC0415

    for _ in AuditRecord.objects.iterator(chunk_size=2000):
        pass


def verify() -> None:
    from jobs.sealing import Check  # noqa: PLC0415

    check = Check()
    assert list(check.flaws()) == []
    assert check.seals == RECORDS


if __name__ == "__main__":
    main()
