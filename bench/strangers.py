"""Whether the time of a 404 tells a stranger that a job is there.

    python -m bench.strangers                          on SQLite, in a folder of its own
    python -m tests.postgres python -m bench.strangers on PostgreSQL

Pairs, in turn first and second: somebody else's job, and an id of nothing. "x" is the
median of the pairs' ratios, beside that of two ids of nothing in the same run.
"""

import os
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable

import django

PAIRS = 1000


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
    from rest_framework.test import APIClient  # noqa: PLC0415

    from tests.factories import make_job, make_user  # noqa: PLC0415

    jobs = [make_job() for _ in range(200)]
    # Many, as one may ask only so many things a second.
    clients = []
    for _ in range(100):
        clients.append(APIClient(HTTP_HOST="localhost"))
        clients[-1].force_authenticate(make_user())

    def took_s(number: int, pk: object) -> float:
        client = clients[number % len(clients)]
        began = time.perf_counter()
        answer = client.get(f"/api/v1/jobs/{pk}", secure=True)
        took = time.perf_counter() - began
        assert answer.status_code == 404, answer.content
        return took

    def ratios(other: Callable[[int], object]) -> list[float]:
        found = []
        for number in range(PAIRS):
            pair = [("a", other(number)), ("b", uuid.uuid4())]
            ordered = pair if number % 2 else pair[::-1]
            took = {key: took_s(number, pk) for key, pk in ordered}
            found.append(took["a"] / took["b"])
        return found

    ratios(lambda _: uuid.uuid4())  # what is made at first use is made
    there = ratios(lambda number: jobs[number % len(jobs)].pk)
    nothing = ratios(lambda _: uuid.uuid4())
    print(
        f"{connection.vendor}; load average {os.getloadavg()[0]:.1f}; {PAIRS} pairs\n"
    )
    print("| against an id of nothing | x, median |\n| --- | ---: |")
    print(f"| somebody else's job | {statistics.median(there):.3f} |")
    print(f"| another id of nothing | {statistics.median(nothing):.3f} |")


if __name__ == "__main__":
    main()
