"""How long a page of 50 jobs takes, with 2,000 ended and 1,000 queued.

    python -m bench.listing                          on SQLite, in a folder of its own
    python -m tests.postgres python -m bench.listing on PostgreSQL

Through the API with its permission checks and JSON, beside the plainest answer there
could be in the same run: 50 rows of the same columns as JSON. "x" is the median of the
paired ratios.
"""

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import django

ROUNDS = 30


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gpujobs.settings")
        os.environ.setdefault("GPUJOBS_SECRET_KEY", "bench " * 10)
        os.environ.setdefault("GPUJOBS_DATA_ROOT", folder)
        os.environ["GPUJOBS_TLS"] = "0"
        os.environ["GPUJOBS_ALLOWED_HOSTS"] = "testserver"
        django.setup()
        from django.core.management import call_command  # noqa: PLC0415 - after setup

        call_command("migrate", verbosity=0)
        call_command("collectstatic", interactive=False, verbosity=0)
        measure()


def measure() -> None:
    from django.db import connection  # noqa: PLC0415
    from django.test import Client  # noqa: PLC0415
    from rest_framework.test import APIClient  # noqa: PLC0415

    user = fill(ended=2000, queued=1000)
    api, pages = APIClient(), Client()
    api.force_authenticate(user)
    pages.force_login(user)
    print(f"{connection.vendor}; load average {os.getloadavg()[0]:.1f}\n")
    print("| answer | ms, median | ms, p95 | x plain rows |")
    print("| --- | ---: | ---: | ---: |")
    for name, client, url in (
        ("API, 50 of all", api, "/api/v1/jobs?limit=50"),
        ("API, 50 queued", api, "/api/v1/jobs?limit=50&status=queued"),
        ("page, 25 of all", pages, "/jobs/"),
        ("page, 25 queued", pages, "/jobs/?status=queued"),
    ):
        assert client.get(url).status_code == 200
        pairs = [
            (took_ms(partial(client.get, url)), took_ms(plain)) for _ in range(ROUNDS)
        ]
        ours = sorted(pair[0] for pair in pairs)
        ratio = statistics.median(mine / least for mine, least in pairs)
        print(
            f"| {name} | {statistics.median(ours):.1f} "
            f"| {ours[int(0.95 * ROUNDS)]:.1f} | {ratio:.1f} |"
        )


def took_ms(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1000


def plain() -> str:
    from jobs.models import Job  # noqa: PLC0415

    return json.dumps(
        list(Job.objects.order_by("-created_at").values()[:50]), default=str
    )


def fill(*, ended: int, queued: int) -> Any:
    from django.utils import timezone  # noqa: PLC0415

    from jobs.models import Job, User  # noqa: PLC0415
    from jobs.waiting import IN_LINE  # noqa: PLC0415

    user = User.objects.create_user("olga@example.org", is_staff=True)
    now = timezone.now()
    jobs = [
        Job(
            owner=user,
            name=f"{'queued' if number < queued else 'ended'} {number}",
            image="x:1",
            wait_reason=IN_LINE[0],
            wait_text=IN_LINE[1],
            created_at=now - timedelta(seconds=number),
        )
        for number in range(queued + ended)
    ]
    Job.objects.bulk_create(jobs, batch_size=500)
    # No job is born ended: the database lets it come there only by a move.
    Job.objects.filter(name__startswith="ended").update(
        status="failed", finished_at=now, reason="nonzero_exit", wait_reason=""
    )
    return user


if __name__ == "__main__":
    main()
