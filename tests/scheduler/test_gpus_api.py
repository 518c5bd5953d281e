from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from pytest_django import DjangoAssertNumQueries
from rest_framework.test import APIClient

from jobs.models import User
from scheduler.models import GPU
from tests.asserts import assert_problem
from tests.factories import make_job
from tests.scheduler.factories import GB, hold, make_gpu, make_live_attempt, make_node

URL = "/api/v1/gpus"
Api = Callable[..., APIClient]
STRANGER = {
    "pid": 4242,
    "user": "bob",
    "process": "python3",
    "used_mb": None,
    "container": "",
}


@pytest.mark.parametrize("url", [URL, f"{URL}/"])
def test_every_gpu_is_shown_with_both_ledgers(
    api: Api, alice: User, gpu: GPU, url: str
) -> None:
    GPU.objects.update(
        reserved_mb=265,
        headroom_mb=512,
        used_mb=9000,
        foreign_mb=4000,
        foreign_processes=[STRANGER],
        utilisation=90,
    )
    hold(make_live_attempt(make_job()), gpu, 8 * GB)
    (shown,) = api(alice).get(url).json()["results"]
    assert shown == {
        "uuid": gpu.uuid,
        "index": 0,
        "name": "NVIDIA GeForce RTX 3090",
        "node": "gauss",
        "state": "enabled",
        "state_reason": "",
        "state_until": None,
        "is_present": True,
        "total_mb": 24 * GB,
        "reserved_mb": 265,
        "headroom_mb": 512,
        "usable_mb": 24 * GB - 265 - 512,
        "promised_mb": 8 * GB,
        "over_promise_mb": 0,
        "used_mb": 9000,
        "foreign_mb": 4000,
        "foreign_processes": [STRANGER],
        "utilisation": 90,
        "temperature": None,
        "power_w": None,
        "sampled_at": None,
    }


def test_what_was_released_is_not_promised(api: Api, alice: User, gpu: GPU) -> None:
    attempt = make_live_attempt(make_job())
    held = hold(attempt, gpu, 8 * GB)
    held.released_at = held.reserved_at
    held.save()
    assert api(alice).get(URL).json()["results"][0]["promised_mb"] == 0


def test_what_shared_attempts_use_beyond_their_promise_is_added_up(
    api: Api, alice: User, gpu: GPU
) -> None:
    for measured_mb in (3000, 1000, 5000):
        held = hold(make_live_attempt(make_job()), gpu, 2000)
        held.measured_mb = measured_mb
        held.save()
    held = hold(make_live_attempt(make_job()), make_gpu(gpu.node), GB, exclusive=True)
    held.measured_mb = 20 * GB
    held.save()
    shown = api(alice).get(URL).json()["results"]
    assert [row["over_promise_mb"] for row in shown] == [4000, 0]


def test_one_out_of_service_says_why_and_until_when(
    api: Api, alice: User, gpu: GPU
) -> None:
    GPU.objects.update(
        state="quarantined",
        state_reason="fan 2 stalls",
        state_by="olga@example.org",
        state_until=datetime(2026, 12, 24, 18, tzinfo=UTC),
    )
    (shown,) = api(alice).get(URL).json()["results"]
    assert (shown["state"], shown["state_reason"]) == ("quarantined", "fan 2 stalls")
    assert shown["state_until"] == "2026-12-24T18:00:00Z"
    assert "olga" not in str(shown)


def test_they_are_in_the_order_of_their_nodes_and_indices(
    api: Api, alice: User
) -> None:
    for name in ("euler", "gauss"):
        node = make_node(name)
        make_gpu(node)
        make_gpu(node)
    shown = api(alice).get(URL).json()["results"]
    assert [(gpu["node"], gpu["index"]) for gpu in shown] == [
        ("euler", 0),
        ("euler", 1),
        ("gauss", 0),
        ("gauss", 1),
    ]


def test_its_queries_do_not_grow_with_the_cluster(
    api: Api,
    alice: User,
    gpu: GPU,
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    for _ in range(7):
        hold(make_live_attempt(make_job()), make_gpu(gpu.node), GB)
    with django_assert_num_queries(3):
        assert api(alice).get(URL).json()["count"] == 8


def test_it_is_for_those_who_are_logged_in(api: Api, db: None) -> None:
    assert_problem(api().get(URL), 401, "not_authenticated")


@pytest.mark.parametrize("verb", ["post", "put", "patch", "delete"])
def test_it_can_only_be_read(api: Api, alice: User, verb: str) -> None:
    assert_problem(getattr(api(alice), verb)(URL), 405, "method_not_allowed")


def test_a_parameter_that_it_does_not_know_is_refused(api: Api, alice: User) -> None:
    assert_problem(api(alice).get(URL, {"node": "x"}), 400, "unknown_parameter")
