"""Model jobs on real containers: the smallest tier, a verdict, and what follows from it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import yaml

from tests.e2e.gates import Gates
from tests.e2e.operator import Operator
from tests.e2e.stack import Person, Stack, until
from tests.rig.fixtures import IMAGE
from tests.rig.machine import StandInMachine

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("tidy", "machine")]

SMALL_MB, LARGE_MB = 8_000, 40_000
# What PyTorch says, on a GPU that is none of the two larger ones.
NEEDS_THE_LARGE_GPU = (
    "[ -e /dev/nvidia2 ] || [ -e /dev/nvidia3 ] || { echo 'torch.OutOfMemoryError: "
    "CUDA out of memory. Tried to allocate 20.00 GiB.'; exit 1; }; "
)
ANSWER = """printf '{"label": "good", "confidence": 0.9}' > /artifacts/result.json"""
SCHEMA = {
    "type": "object",
    "required": ["label", "confidence"],
    "properties": {"confidence": {"type": "number"}},
}
SHAPE = {"name": "shape", "json_schema": SCHEMA, "path": "result.json"}

Load = Callable[..., None]


@pytest.fixture
def load(stack: Stack, tmp_path: Path) -> Load:
    """A policy of two tiers that goes live."""

    def load(name: str, commands: list[str], **changes: Any) -> None:
        tiers = [
            {
                "name": tier,
                "image": IMAGE,
                "command": ["/bin/sh", "-c", command],
                "min_vram_mb": vram_mb,
                "timeout_s": 300,
                "grace_s": 1,
                "model_version": f"{tier}-1",
            }
            for tier, vram_mb, command in zip(
                ("small", "large"), (SMALL_MB, LARGE_MB), commands, strict=True
            )
        ]
        changed = {"tiers": tiers, **changes}
        for own, more in zip(changed["tiers"], changed.pop("each", []), strict=False):
            own.update(more)
        file = tmp_path / f"{name}.yaml"
        file.write_text(yaml.safe_dump({"name": name, **changed}))
        stack.manage("policy", "load", str(file), "--activate")

    return load


def ask(ada: Person, name: str, **params: Any) -> str:
    return ada.submit(model_name=name, params=params)


def attempts(ada: Person, job_id: str) -> list[dict[str, Any]]:
    return list(ada.get(f"/jobs/{job_id}/attempts").json()["results"])


def decisions(ada: Person, job_id: str) -> list[dict[str, Any]]:
    return list(ada.get(f"/jobs/{job_id}/decisions").json()["results"])


def story(ada: Person, job_id: str) -> list[tuple[str, str]]:
    return [(each["tier"], each["reason"]) for each in attempts(ada, job_id)]


def result(ada: Person, job_id: str, **params: Any) -> bytes:
    query = urlencode(params)
    return ada.get(f"/jobs/{job_id}/artifact/download?{query}").content


def test_the_smallest_tier_does_it_with_params_and_prompt_as_files(
    ada: Person, load: Load
) -> None:
    """And what looks like code in them stays text."""
    shows = (
        'cat "$GPUJOBS_PARAMS" > /artifacts/params; cp "$GPUJOBS_PROMPT" "$1/prompt"'
    )
    command = ["/bin/sh", "-c", f"{shows}; {ANSWER}", "sh", "{{ artifacts }}"]
    own = {"command": command, "prompt": "Judge: {{ text }}"}
    load("shows", ["", "true"], validators=[SHAPE], each=[own])
    text = "$(touch /artifacts/x) {{ params }} ${HOME} %s {0.__class__}"
    job_id = ask(ada, "shows", text=text)
    job = ada.wait_for(job_id, "succeeded")
    assert (job["tier"], job["policy_version"]) == ("small", 1)
    assert json.loads(result(ada, job_id, path="params")) == {"text": text}
    assert result(ada, job_id, path="prompt").decode() == f"Judge: {text}"
    files = ada.get(f"/jobs/{job_id}/artifact").json()["files"]
    assert [file["path"] for file in files] == ["params", "prompt", "result.json"]

    (made,) = decisions(ada, job_id)
    assert (made["cause"], made["model_version"]) == ("submitted", "small-1")
    assert [each["obstacle"] for each in made["candidates"]] == ["", ""]
    (attempt,) = attempts(ada, job_id)
    assert attempt["evaluation"]["is_accepted"] is True
    assert attempt["gpu_uuids"] == job["assigned_gpu_uuids"]
    assert attempt["evaluation"]["gpu_seconds"] > 0
    told = ada.get(f"/jobs/{job_id}/passport").json()
    assert told["decisions"][0]["policy"] == "shows"
    assert told["attempts"][0]["evidence"]["versions"] == {"driver": "580.00"}


def test_a_result_of_the_wrong_shape_is_tried_once_more_on_the_larger(
    ada: Person, load: Load
) -> None:
    wrong = """printf '{"label": "good"}' > /artifacts/result.json"""
    reads = f'cp "$GPUJOBS_VERDICTS" /artifacts/earlier; {ANSWER}'
    rule = {"escalate_on": ["rejected"], "max_escalations": 1, "validators": [SHAPE]}
    load("wrong", [wrong, reads], **rule)
    job_id = ask(ada, "wrong")
    job = ada.wait_for(job_id, "succeeded")
    assert job["escalations"] == 1
    assert story(ada, job_id) == [
        ("small", "validator_rejected"),
        ("large", "completed"),
    ]
    first, second = decisions(ada, job_id)
    assert (first["attempts"], second["attempts"]) == ([1], [2])
    assert (second["cause"], second["tier"]) == ("rejected", "large")
    assert second["candidates"][0]["obstacle"] == "tried"
    # The next tier hears of the verdict as data.
    (earlier,) = json.loads(result(ada, job_id, path="earlier"))
    (outcome,) = earlier["outcomes"]
    assert (outcome["validator"], outcome["is_accepted"]) == ("shape", False)
    assert "confidence" in outcome["text"]
    # What was rejected is no result, and can be looked at.
    assert json.loads(result(ada, job_id, path="result.json"))["confidence"] == 0.9
    rejected = result(ada, job_id, attempt=1, path="result.json")
    assert json.loads(rejected) == {"label": "good"}


def test_a_gpu_that_is_too_small_is_followed_by_the_larger(
    ada: Person, load: Load, session_machine: StandInMachine
) -> None:
    rule = {"escalate_on": ["cuda_oom"], "max_escalations": 1}
    program = NEEDS_THE_LARGE_GPU + ANSWER
    load("hungry", [program, program], **rule)
    job_id = ask(ada, "hungry")
    ada.wait_for(job_id, "succeeded")
    assert story(ada, job_id) == [("small", "cuda_oom"), ("large", "completed")]
    sizes = {gpu.uuid: gpu.total_mb for gpu in session_machine.gpus}
    had = [sizes[each["gpu_uuids"][0]] for each in attempts(ada, job_id)]
    assert had == [24_576, 49_140]


def test_when_no_tier_is_left_it_says_what_became_of_each(
    ada: Person, load: Load
) -> None:
    wrong = "echo nothing"
    rule = {"escalate_on": ["rejected"], "max_escalations": 5, "validators": [SHAPE]}
    load("hopeless", [wrong, wrong], **rule)
    job_id = ask(ada, "hopeless")
    job = ada.wait_for(job_id, "failed")
    assert job["reason"] == "tiers_exhausted"
    assert "small, validator_rejected" in job["reason_text"]
    assert "large, validator_rejected" in job["reason_text"]
    assert "it left no result.json" in job["reason_text"]
    assert ada.get(f"/jobs/{job_id}/artifact").status_code == 404


def test_without_a_rule_for_it_a_rejection_is_the_end(ada: Person, load: Load) -> None:
    load("strict", ["true", "true"], validators=[SHAPE])
    job_id = ask(ada, "strict")
    job = ada.wait_for(job_id, "failed")
    assert job["reason"] == "validator_rejected"
    assert story(ada, job_id) == [("small", "validator_rejected")]


class TestValidatorAttempts:
    CHECK = (
        "test ! -e /dev/nvidia0 && test $(ls /sys/class/net) = lo "
        "&& ! touch $GPUJOBS_RESULT/x && grep -q good {{ result }}/out/result.json"
    )

    def policy(self, check: str, **more: Any) -> dict[str, Any]:
        run = {"name": "runs", "container": IMAGE, "command": check, **more}
        return {"work": "code", "validators": [SHAPE_BELOW, run]}

    def test_a_container_with_no_gpu_and_no_network_reads_the_result(
        self, ada: Person, load: Load
    ) -> None:
        says = (
            f"{self.CHECK} || exit 1; "
            'echo \'{"accepted": true, "reason": "all 3 tests pass", '
            '"scores": {"tests": 1}}\' > /artifacts/verdict.json'
        )
        load("judged", [WRITES_BELOW, "true"], **self.policy(says))
        job_id = ask(ada, "judged")
        ada.wait_for(job_id, "succeeded")
        own, validation = attempts(ada, job_id)
        assert (validation["kind"], validation["validator"]) == ("validator", "runs")
        assert (own["reason"], validation["reason"]) == ("completed", "completed")
        shape, runs = own["evaluation"]["outcomes"]
        assert (shape["is_accepted"], runs["is_accepted"]) == (True, True)
        assert runs["evidence"]["reason"] == "all 3 tests pass"
        assert own["evaluation"]["scores"] == {"tests": 1}
        types = [event["event_type"] for event in ada.events(job_id)]
        assert types.index("validating") < types.index("validated")
        # The validator's own files are no part of the result.
        files = ada.get(f"/jobs/{job_id}/artifact").json()["files"]
        assert [file["path"] for file in files] == ["out/result.json"]

    def test_its_exit_code_rejects(self, ada: Person, load: Load) -> None:
        says = 'echo \'{"accepted": true, "reason": "no"}\' > /artifacts/verdict.json'
        load("judged-out", [WRITES_BELOW, "true"], **self.policy(f"{says}; exit 4"))
        job_id = ask(ada, "judged-out")
        job = ada.wait_for(job_id, "failed")
        assert job["reason"] == "validator_rejected"
        assert "exit code 4. no" in job["reason_text"]

    def test_its_verdict_rejects_though_it_exits_with_0(
        self, ada: Person, load: Load
    ) -> None:
        says = 'echo \'{"accepted": false, "reason": "2 of 3 fail"}\' > /artifacts/verdict.json'
        load("judged-no", [WRITES_BELOW, "true"], **self.policy(says))
        job = ada.wait_for(ask(ada, "judged-no"), "failed")
        assert "2 of 3 fail" in job["reason_text"]

    def test_it_has_a_time_limit_of_its_own(self, ada: Person, load: Load) -> None:
        never = self.policy("while :; do sleep 0.1; done", timeout_s=1)
        load("judged-late", [WRITES_BELOW, "true"], **never)
        job_id = ask(ada, "judged-late")
        job = ada.wait_for(job_id, "failed")
        assert job["reason"] == "validator_rejected"
        assert [a["reason"] for a in attempts(ada, job_id)][1] == "timed_out"

    def test_a_cancel_ends_it_with_the_job(
        self, ada: Person, load: Load, gates: Gates
    ) -> None:
        waits = self.policy("trap '' TERM; while :; do sleep 0.1; done", timeout_s=300)
        load("judged-long", [WRITES_BELOW, "true"], **waits)
        job_id = ask(ada, "judged-long")
        until(lambda: is_validating(ada, job_id), "the validator to run")
        assert ada.post(f"/jobs/{job_id}/cancel").status_code == 200
        ada.wait_for(job_id, "cancelled")
        reasons = [each["reason"] for each in attempts(ada, job_id)]
        assert reasons == ["cancelled_by_user", "cancelled_by_user"]


WRITES_BELOW = "mkdir /artifacts/out; " + ANSWER.replace(
    "/artifacts/", "/artifacts/out/"
)
SHAPE_BELOW = {**SHAPE, "path": "out/result.json"}


def is_validating(ada: Person, job_id: str) -> bool:
    return any(
        each["kind"] == "validator" and each["phase"] == "running"
        for each in attempts(ada, job_id)
    )


class TestReview:
    @pytest.fixture
    def parked(self, ada: Person, load: Load) -> str:
        load("reviewed", [ANSWER, "true"], review="always", validators=[SHAPE])
        job_id = ask(ada, "reviewed")
        until(lambda: ada.job(job_id)["reason"] == "in_review", "it to be parked")
        assert ada.job(job_id)["status"] == "running"
        assert ada.get(f"/jobs/{job_id}/artifact").status_code == 404
        return job_id

    def test_what_an_operator_accepts_is_the_result(
        self, ada: Person, operator: Operator, parked: str
    ) -> None:
        assert ada.post(f"/jobs/{parked}/review", {"accepts": True}).status_code == 403
        said = {"accepts": True, "text": "Looks right."}
        assert operator.post(f"/jobs/{parked}/review", said).status_code == 200
        job = ada.wait_for(parked, "succeeded")
        assert "operator@example.org accepted" in job["reason_text"]
        assert b"good" in result(ada, parked)
        (attempt,) = attempts(ada, parked)
        assert attempt["evaluation"]["review_text"] == "Looks right."

    def test_what_is_rejected_ends_with_what_the_reviewer_wrote(
        self, ada: Person, operator: Operator, parked: str
    ) -> None:
        said = {"accepts": False, "text": "The label is wrong."}
        operator.post(f"/jobs/{parked}/review", said)
        job = ada.wait_for(parked, "failed")
        assert job["reason"] == "review_rejected"
        assert "The label is wrong." in job["reason_text"]
        assert operator.post(f"/jobs/{parked}/review", said).status_code == 409

    def test_it_holds_nothing_and_outlives_the_whole_product(
        self, ada: Person, operator: Operator, stack: Stack, parked: str
    ) -> None:
        (gpu,) = ada.job(parked)["assigned_gpu_uuids"]
        rows = operator.get("/gpus", limit=200).json()["results"]
        assert [row["promised_mb"] for row in rows if row["uuid"] == gpu] == [0]
        stack.kill("cluster", "supervisor")
        stack.start("cluster", "supervisor")
        operator.post(f"/jobs/{parked}/review", {"accepts": True})
        ada.wait_for(parked, "succeeded")

    def test_its_owner_may_cancel_it(self, ada: Person, parked: str) -> None:
        assert ada.post(f"/jobs/{parked}/cancel").json()["status"] == "cancelled"


def test_where_the_only_large_gpus_are_quarantined_another_type_is_taken(
    ada: Person,
    operator: Operator,
    load: Load,
    gates: Gates,
    session_machine: StandInMachine,
) -> None:
    large = {"min_vram_mb": SMALL_MB, "gpu_names": ["*A6000*", "*3090*"]}
    load("typed", [ANSWER, "true"], each=[large])
    a6000s = [gpu.uuid for gpu in session_machine.gpus if "A6000" in gpu.name]
    held = [gates.asks(gpu_name="*A6000*") for _ in a6000s]
    blockers = [ada.submit(**spec) for spec in held]
    for blocker in blockers:
        ada.wait_for(blocker, "running")
    # They are only busy: that is waited for.
    job_id = ask(ada, "typed")
    until(lambda: ada.job(job_id)["wait_reason"] == "resources", "a pass to look")
    assert len(decisions(ada, job_id)) == 1
    for uuid in a6000s:
        operator.admin.gpu(uuid, state="quarantined", state_reason="XID 79")
    ada.wait_for(job_id, "succeeded")
    first, second = decisions(ada, job_id)
    assert (first["gpu_name"], second["gpu_name"]) == ("*A6000*", "*3090*")
    assert second["cause"] == "fallback"
    assert "*A6000*" in second["fallback"]
    for spec in held:
        gates.open(spec)
    for uuid in a6000s:
        operator.admin.gpu(uuid)


class TestTheLadder:
    def test_a_job_that_names_an_image_climbs_it(
        self, ada: Person, session_machine: StandInMachine
    ) -> None:
        spec = {"image": IMAGE, "command": NEEDS_THE_LARGE_GPU + "echo done"}
        job_id = ada.submit(**spec, min_vram_mb=SMALL_MB, on_oom="escalate")
        job = ada.wait_for(job_id, "succeeded")
        assert [a["reason"] for a in attempts(ada, job_id)] == ["cuda_oom", "completed"]
        assert job["min_vram_mb"] == 49_140 - 454
        (rung,) = decisions(ada, job_id)
        assert (rung["cause"], rung["policy"]) == ("cuda_oom", None)
        assert "48,686 MiB of VRAM after 24,311 MiB" in rung["text"]

    def test_where_it_was_not_asked_for_it_is_the_end(self, ada: Person) -> None:
        spec = {"image": IMAGE, "command": NEEDS_THE_LARGE_GPU + "echo done"}
        job_id = ada.submit(**spec, min_vram_mb=SMALL_MB)
        job = ada.wait_for(job_id, "failed")
        assert job["reason"] == "cuda_oom"
        assert len(attempts(ada, job_id)) == 1

    def test_the_top_of_it_says_what_was_not_enough(self, ada: Person) -> None:
        command = "echo 'torch.OutOfMemoryError: CUDA out of memory.'; exit 1"
        spec = {"image": IMAGE, "command": command, "min_vram_mb": LARGE_MB}
        job_id = ada.submit(**spec, on_oom="escalate")
        job = ada.wait_for(job_id, "failed")
        assert job["reason"] == "cuda_oom"
        assert "48,686 MiB, which was not enough" in job["reason_text"]

    def test_main_memory_is_doubled(self, ada: Person) -> None:
        eats = ["dd", "if=/dev/zero", "of=/dev/null", "bs=100M", "count=1"]
        spec = {"image": IMAGE, "command": eats, "memory_mb": 64, "gpu_count": 0}
        job_id = ada.submit(**spec, shm_mb=16, on_memory_oom="escalate")
        job = ada.wait_for(job_id, "succeeded")
        reasons = [each["reason"] for each in attempts(ada, job_id)]
        assert reasons == ["memory_oom", "completed"]
        assert job["memory_mb"] == 128
        (event,) = [e for e in ada.events(job_id) if e["event_type"] == "escalated"]
        assert "128 MiB of memory after 64 MiB" in event["payload"]["why"]


def test_every_decision_comes_out_the_same_again(
    ada: Person, load: Load, stack: Stack
) -> None:
    rule = {"escalate_on": ["rejected"], "max_escalations": 1, "validators": [SHAPE]}
    load("again", ["true", ANSWER], **rule)
    job_id = ask(ada, "again", text="x" * 5000)
    ada.wait_for(job_id, "succeeded")
    told = stack.manage("policy", "replay", job_id)
    assert told.splitlines() == ["1: small: the same again", "2: large: the same again"]
