"""Submitting work by its name: what a policy makes of it, and what is refused."""

from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.test import APIClient

from jobs import policies
from jobs.models import Job, Quota, RoutingDecision, RoutingPolicy, User
from jobs.routing import parse
from scheduler.models import GPU
from tests.asserts import assert_problem
from tests.factories import IMAGE, document, make_job, make_policy, make_user
from tests.scheduler.factories import GB, make_gpu, make_node

Api = Callable[..., APIClient]
URL = "/api/v1/jobs"
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 5}}}
RULE = {"name": "large", "weight": 9, "of": "n", "at_least": 3}


@pytest.fixture
def gpus(db: None) -> list[GPU]:
    node = make_node()
    return [make_gpu(node, 8 * GB), make_gpu(node, 24 * GB, name="NVIDIA RTX A6000")]


def tiers(**small: Any) -> list[dict[str, Any]]:
    first, second = document()["tiers"]
    return [{**first, **small}, second]


def submit(api: Api, by: User, **fields: Any) -> Any:
    return api(by).post(URL, {"model_name": "sentiment", **fields})


class TestRouting:
    def test_the_smallest_tier_that_will_do_decides_what_is_asked_for(
        self, api: Api, alice: User, gpus: list[GPU]
    ) -> None:
        policy = make_policy(tiers=tiers(command=["run", "{{ params }}"], cpus=2))
        answer = submit(api, alice, params={"text": "hi"})
        assert answer.status_code == 201, answer.content
        body = answer.json()
        assert (body["tier"], body["policy_version"], body["risk"]) == (
            "small",
            1,
            "low",
        )
        assert (body["image"], body["min_vram_mb"], body["cpus"]) == (IMAGE, 1000, 2)
        job = Job.objects.get()
        assert job.policy == policy
        assert job.command == ["run", "{{ params }}"]
        assert job.name == "sentiment"
        assert job.events.get().payload["tier"] == "small"

    def test_the_decision_is_kept_with_all_that_it_was_made_from(
        self, api: Api, alice: User, gpus: list[GPU]
    ) -> None:
        make_policy(rules=[RULE], tiers=tiers(max_complexity=1))
        job_id = submit(api, alice, params={"n": 4}).json()["id"]
        (made,) = api(alice).get(f"{URL}/{job_id}/decisions").json()["results"]
        assert (made["tier"], made["complexity"]) == ("large", 9)
        assert (made["policy"], made["policy_version"]) == ("sentiment", 1)
        small, large = made["candidates"]
        assert (small["obstacle"], large["obstacle"]) == ("too_small", "")
        (rule,) = made["contributions"]
        assert (rule["rule"], rule["weight"], rule["found"]) == ("large", 9, 4)
        assert len(made["params_digest"]) == 64

    def test_each_task_of_an_array_has_its_decision(
        self, api: Api, alice: User, gpus: list[GPU]
    ) -> None:
        make_policy()
        assert submit(api, alice, array="0-2").status_code == 201
        assert RoutingDecision.objects.count() == 3

    def test_where_the_small_one_fits_nothing_here_the_next_is_taken_and_why_is_told(
        self, api: Api, alice: User, gpus: list[GPU]
    ) -> None:
        make_policy(tiers=tiers(gpu_names=["*H100*"]))
        job_id = submit(api, alice).json()["id"]
        (made,) = api(alice).get(f"{URL}/{job_id}/decisions").json()["results"]
        assert made["tier"] == "large"
        assert "No GPU here is named *H100*" in made["fallback"]

    def test_a_gpu_that_is_quarantined_for_good_is_none(
        self, api: Api, alice: User, gpus: list[GPU]
    ) -> None:
        make_policy()
        GPU.objects.update(state="quarantined", state_reason="XID 79")
        answer = submit(api, alice)
        body = assert_problem(answer, 422, "never_fits")
        assert "small:" in body["detail"]
        assert "large:" in body["detail"]

    def test_a_limit_of_the_owner_rules_a_tier_out(
        self, api: Api, alice: User, gpus: list[GPU]
    ) -> None:
        make_policy()
        Quota.objects.create(user=alice, vram_mb=500)
        body = assert_problem(submit(api, alice), 422, "never_fits")
        assert "MiB of VRAM; you may have 500" in body["detail"]

    def test_who_wants_it_soonest_is_not_kept_waiting_by_a_busy_tier(
        self, api: Api, alice: User, gpus: list[GPU]
    ) -> None:
        GPU.objects.filter(pk=gpus[0].pk).update(foreign_mb=8 * GB)
        smallest = tiers(gpu_names=["*3090*"])
        make_policy(tiers=smallest)
        assert submit(api, alice).json()["tier"] == "small"
        make_policy(tiers=smallest, prefer="soonest")
        assert submit(api, alice).json()["tier"] == "large"

    def test_what_a_job_was_routed_by_stays_its_own(
        self, api: Api, alice: User, gpus: list[GPU]
    ) -> None:
        make_policy()
        first = submit(api, alice).json()
        make_policy(tiers=tiers(model_version="2"))
        second = submit(api, alice).json()
        assert (first["policy_version"], second["policy_version"]) == (1, 2)
        again = api(alice).get(f"{URL}/{first['id']}").json()
        assert again["policy_version"] == 1

    def test_the_same_key_twice_makes_one_job(
        self, api: Api, alice: User, gpus: list[GPU]
    ) -> None:
        make_policy()
        key: Any = {"HTTP_IDEMPOTENCY_KEY": "k1"}
        sent = {"model_name": "sentiment", "params": {"text": "x"}}
        first = api(alice).post(URL, sent, **key)
        second = api(alice).post(URL, sent, **key)
        assert (first.status_code, second.status_code) == (201, 200)
        other = api(alice).post(URL, {**sent, "params": {}}, **key)
        assert_problem(other, 409, "idempotency_conflict")


class TestDryRun:
    def test_it_says_which_tier_and_writes_nothing(
        self, api: Api, alice: User, gpus: list[GPU]
    ) -> None:
        make_policy()
        sent = {"model_name": "sentiment"}
        body = api(alice).post(f"{URL}?dry_run=true", sent).json()
        assert (body["outcome"], body["routed"]["tier"]) == ("now", "small")
        assert len(body["routed"]["candidates"]) == 2
        assert not Job.objects.exists()
        assert RoutingPolicy.objects.get().used_at is None

    def test_never_is_an_answer(self, api: Api, alice: User, gpus: list[GPU]) -> None:
        make_policy()
        GPU.objects.update(state="quarantined")
        sent = {"model_name": "sentiment"}
        body = api(alice).post(f"{URL}?dry_run=true", sent).json()
        assert (body["outcome"], body["routed"]) == ("never", None)

    def test_an_image_is_not_routed(
        self, api: Api, alice: User, gpus: list[GPU]
    ) -> None:
        body = api(alice).post(f"{URL}?dry_run=true", {"image": IMAGE}).json()
        assert body["routed"] is None


REFUSED = [
    ("a model that nobody knows", {"model_name": "gpt"}, 422, "unknown_model", None),
    ("params against the schema", {"params": {"n": 9}}, 400, "bad_params", "/params"),
    ("params that are a list", {"params": [1]}, 400, "not_a_dict", "/params"),
    ("params that are a text", {"params": "n=1"}, 400, "not_a_dict", "/params"),
    ("a risk of its own", {"risk": "tiny"}, 400, "invalid_choice", "/risk"),
    ("an empty risk is none", {"risk": ""}, 201, "", None),
    ("a NUL in the name", {"model_name": "a\0"}, 400, None, "/model_name"),
    ("a very long name", {"model_name": "m" * 101}, 400, "max_length", "/model_name"),
    (
        "an image as well",
        {"image": IMAGE},
        400,
        "image_and_model",
        "/model_name",
    ),
    *(
        (f"{name} of its own", {name: value}, 400, "not_for_this_kind", f"/{name}")
        for name, value in (
            ("command", "x"),
            ("env", {"A": "1"}),
            ("volumes", ["/data:/data"]),
            ("gpu_count", 2),
            ("min_vram_mb", 4),
            ("timeout_s", 9),
            ("cpus", 1),
            ("on_oom", "escalate"),
        )
    ),
]


@pytest.mark.parametrize(
    ("fields", "status", "code", "pointer"),
    [row[1:] for row in REFUSED],
    ids=[row[0] for row in REFUSED],
)
def test_what_is_asked_for_with_a_model(
    api: Api,
    alice: User,
    gpus: list[GPU],
    fields: dict[str, Any],
    status: int,
    code: str | None,
    pointer: str | None,
) -> None:
    make_policy(params=SCHEMA)
    answer = submit(api, alice, **fields)
    if status == 201:
        assert answer.status_code == 201
    elif code is None:
        assert answer.status_code == status
    else:
        assert_problem(answer, status, code, pointer)
        assert not Job.objects.exists()


@pytest.mark.parametrize("name", ["params", "risk"])
def test_an_image_takes_nothing_of_a_model(api: Api, alice: User, name: str) -> None:
    value = {"params": {"n": 1}, "risk": "low"}[name]
    answer = api(alice).post(URL, {"image": IMAGE, name: value})
    assert_problem(answer, 400, "not_for_this_kind", f"/{name}")


class TestPolicies:
    def test_the_live_versions_are_listed(self, api: Api, alice: User) -> None:
        make_policy("a")
        make_policy("b", params=SCHEMA)
        policies.store(parse(document("c")), by="olga")
        body = api(alice).get("/api/v1/policies").json()
        assert [row["name"] for row in body["results"]] == ["a", "b"]
        assert body["results"][1]["params"] == SCHEMA
        assert [t["name"] for t in body["results"][0]["tiers"]] == ["small", "large"]

    def test_one_that_is_retired_routes_nothing(
        self, api: Api, alice: User, gpus: list[GPU]
    ) -> None:
        policies.retire(make_policy(), by="olga")
        assert_problem(submit(api, alice), 422, "unknown_model")


class TestWhatARejectedAttemptLeft:
    def test_a_stranger_learns_nothing_of_decisions(
        self, api: Api, alice: User, gpus: list[GPU]
    ) -> None:
        make_policy()
        job_id = submit(api, alice).json()["id"]
        answer = api(make_user()).get(f"{URL}/{job_id}/decisions")
        assert_problem(answer, 404, "not_found")

    @pytest.mark.parametrize("number", ["0", "-1", "x", "2147483648", ""])
    def test_the_number_of_an_attempt_is_a_number(
        self, api: Api, alice: User, number: str
    ) -> None:
        job = make_job(alice)
        answer = api(alice).get(f"{URL}/{job.pk}/artifact?attempt={number}")
        assert answer.status_code == 400

    def test_one_that_is_not_there_left_nothing(self, api: Api, alice: User) -> None:
        job = make_job(alice)
        answer = api(alice).get(f"{URL}/{job.pk}/artifact?attempt=7")
        assert_problem(answer, 404, "no_artifact")
