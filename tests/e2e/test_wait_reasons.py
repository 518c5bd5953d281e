"""Every reason to wait, reached for real, told by the API, and ended by one change."""

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pytest

from jobs.status import WaitReason
from tests.e2e.gates import Gates
from tests.e2e.operator import Operator
from tests.e2e.stack import Person, Stack, until
from tests.rig.fixtures import IMAGE
from tests.rig.machine import StandInMachine
from tests.rig.registry import Registry, running_registry

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("tidy")]

Test = TypeVar("Test", bound=Callable[..., None])
REACHED: set[WaitReason] = set()
# What a job of one of these two has is the whole of what is usable.
USABLE = {"RTX 3090": "24,311", "RTX A6000": "48,686"}
LARGE = "*A6000*"


def reaches(reason: WaitReason) -> Callable[[Test], Test]:
    """The test takes `reason`, waits until a job has it, and sees it go."""
    REACHED.add(reason)
    return pytest.mark.parametrize("reason", [reason])


def test_every_reason_to_wait_has_its_test() -> None:
    assert set(WaitReason) == REACHED


def asks(command: str = "true", **fields: Any) -> dict[str, Any]:
    return {"image": IMAGE, "command": command, "gpu_count": 0, "grace_s": 1, **fields}


def time_of(text: str) -> datetime:
    return datetime.fromisoformat(text)


def waits(person: Person, job_id: str, reason: str, *words: str) -> dict[str, Any]:
    """What explain says, once the job tells this reason with all these words; both are
    to say the same."""

    def told() -> dict[str, Any] | None:
        job = person.job(job_id)
        assert job["status"] == "queued", job
        is_told = all(part in job["wait_text"] for part in words)
        return job if job["wait_reason"] == reason and is_told else None

    try:
        until(told, f"job {job_id} to wait for {reason}")
    except AssertionError as late:
        raise AssertionError(f"{late}; now {person.job(job_id)}") from late
    said = explain(person, job_id)
    assert (said["status"], said["reason"]) == ("queued", reason), said
    assert all(part in said["text"] for part in words), said
    return said


def explain(person: Person, job_id: str) -> dict[str, Any]:
    answer = person.get(f"/jobs/{job_id}/explain")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def assert_no_time(said: dict[str, Any]) -> None:
    """Nothing guarantees a time, so none is made up."""
    assert (said["eta"], said["eta_certainty"]) == (None, "unknown")


@contextmanager
def holding(ada: Person, gates: Gates, **fields: Any) -> Iterator[dict[str, Any]]:
    """A job that runs until the block ends, and then ends well."""
    spec = gates.asks(**fields)
    job_id = ada.submit(**spec)
    yield ada.wait_for(job_id, "running")
    gates.open(spec)
    ada.wait_for(job_id, "succeeded")


@reaches(WaitReason.RESOURCES)
def test_gpus_that_another_job_holds(ada: Person, gates: Gates, reason: str) -> None:
    with holding(ada, gates, gpu_count=4, timeout_s=600) as holder:
        job_id = ada.submit(**asks(gpu_count=1, min_vram_mb=4000))
        said = waits(
            ada,
            job_id,
            reason,
            "Needs 1 GPU with 4,000 MiB.",
            "Others hold what would.",
            f"gauss GPU 0: an exclusive job holds all {USABLE['RTX 3090']} MiB of it",
        )
        assert said["place_in_line"] == 1
        assert [line["blocked_by"] for line in said["gpus"]] == ["holder"] * 4
        assert [line["missing_mb"] for line in said["gpus"]] == [4000] * 4
        # The holder's limits guarantee it: its time limit, its grace and the slack.
        assert said["eta_certainty"] == "latest"
        assert said["eta"] == said["gpus"][0]["until"]
        lasts = time_of(said["eta"]) - time_of(holder["started_at"])
        assert timedelta(seconds=601) <= lasts <= timedelta(seconds=601 + 120)
    ada.wait_for(job_id, "succeeded")


@reaches(WaitReason.PRIORITY)
def test_gpus_that_are_kept_for_a_job_ahead(
    ada: Person, gates: Gates, reason: str
) -> None:
    with holding(ada, gates, gpu_count=2):
        ahead = ada.submit(**asks(gpu_count=4))
        waits(ada, ahead, "resources")
        same = ada.submit(**asks(gpu_count=4))
        job_id = ada.submit(**asks(gpu_count=1, timeout_s=3600))
        said = waits(
            ada,
            job_id,
            reason,
            "Needs 1 GPU.",
            "What is free is kept for a job ahead, which it would delay.",
        )
        rules = sorted(line["blocked_by"] for line in said["gpus"])
        assert rules == ["holder", "holder", "reserved", "reserved"]
        assert said["eta_certainty"] == "estimate"
        assert time_of(said["eta"]) > time_of(explain(ada, ahead)["eta"])
        # One that is sure to be gone by then passes.
        short = ada.submit(**asks(gpu_count=1, timeout_s=30))
        ada.wait_for(short, "succeeded")
        # And behind one of its own shape it is that one that it waits for.
        behind = waits(ada, same, reason)
        assert behind["text"].startswith("A job ahead of it asks for the same.")
        for other in (same, ahead):
            assert ada.post(f"/jobs/{other}/cancel").status_code == 200
        ada.wait_for(job_id, "succeeded")


@reaches(WaitReason.QUOTA)
def test_a_limit_of_its_owner(
    stack: Stack, operator: Operator, gates: Gates, reason: str
) -> None:
    quinn = stack.person("quinn@example.org")
    me = quinn.get("/auth/me").json()["id"]
    operator.admin.allow(me, running_jobs=1)
    with holding(quinn, gates, gpu_count=0):
        job_id = quinn.submit(**asks())
        said = waits(
            quinn, job_id, reason, "quinn@example.org has 1 of 1 jobs running."
        )
        assert_no_time(said)
        assert said["change"] is None  # a smaller request would wait as well
        operator.admin.allow(me, running_jobs=2)
        quinn.wait_for(job_id, "succeeded")
    operator.admin.forget_quota()


@reaches(WaitReason.DEPENDENCY)
def test_a_job_that_has_not_ended(ada: Person, gates: Gates, reason: str) -> None:
    with holding(ada, gates, gpu_count=0) as parent:
        job_id = ada.submit(**asks(depends_on=[parent["id"]]))
        text = f"It waits until job {parent['id']} has ended"
        assert_no_time(waits(ada, job_id, reason, text))
    child = ada.wait_for(job_id, "succeeded")
    assert child["started_at"] >= ada.job(parent["id"])["finished_at"]
    assert [d["outcome"] for d in child["depends_on"]] == ["succeeded"]


def test_a_job_whose_parent_fails_ends_with_the_name_of_it(
    ada: Person, gates: Gates
) -> None:
    spec = gates.asks(gpu_count=0, then="exit 1")
    parent = ada.submit(**spec)
    ada.wait_for(parent, "running")
    child = ada.submit(**asks(depends_on=[parent]))
    grandchild = ada.submit(**asks(depends_on=[child]))
    for job_id in (child, grandchild):
        waits(ada, job_id, "dependency")
    gates.open(spec)
    for job_id, named in ((child, f"{spec['name']} ({parent})"), (grandchild, child)):
        job = ada.wait_for(job_id, "failed")
        assert (job["reason"], job["started_at"]) == ("dependency_failed", None)
        assert named in job["reason_text"]
        assert "that is failed" in job["reason_text"]
        assert explain(ada, job_id)["text"] == job["reason_text"]


@reaches(WaitReason.BEGIN_TIME)
def test_a_time_that_is_still_to_come(ada: Person, reason: str) -> None:
    begin_at = datetime.now(UTC) + timedelta(seconds=5)
    job_id = ada.submit(**asks(begin_at=begin_at.isoformat()))
    text = f"It was asked to begin at {begin_at:%Y-%m-%d %H:%M:%S} UTC."
    assert_no_time(waits(ada, job_id, reason, text))
    job = ada.wait_for(job_id, "succeeded")
    assert time_of(job["started_at"]) >= begin_at


@reaches(WaitReason.HELD)
def test_a_hold_of_its_owner_and_one_of_an_operator(
    ada: Person, operator: Operator, reason: str
) -> None:
    job_id = ada.submit(**asks(hold=True))
    assert_no_time(waits(ada, job_id, reason, "Its owner holds it. Release it"))
    assert operator.post(f"/jobs/{job_id}/hold").status_code == 200
    waits(ada, job_id, reason, "only an operator can release it")
    assert ada.post(f"/jobs/{job_id}/release").status_code == 403
    assert ada.job(job_id)["wait_reason"] == reason
    assert operator.post(f"/jobs/{job_id}/release").status_code == 200
    ada.wait_for(job_id, "succeeded")


@reaches(WaitReason.DRAINING)
def test_a_gpu_and_a_node_out_of_service(
    ada: Person, operator: Operator, session_machine: StandInMachine, reason: str
) -> None:
    uuid = session_machine.uuids[3]
    operator.admin.gpu(uuid, state="draining", state_reason="its fan rattles")
    job_id = ada.submit(**asks(gpu_count=2, gpu_name=LARGE))
    said = waits(
        ada,
        job_id,
        reason,
        f"Needs 2 GPUs named {LARGE}; on one node only 1 would do now.",
        "What would is out of service.",
        "gauss GPU 3: it is draining: its fan rattles.",
    )
    assert_no_time(said)
    operator.admin.gpu(uuid)
    ada.wait_for(job_id, "succeeded")

    operator.admin.node("gauss", state="quarantined", state_reason="disk errors")
    job_id = ada.submit(**asks())
    said = waits(ada, job_id, reason, "node gauss is quarantined: disk errors")
    assert_no_time(said)
    operator.admin.node("gauss")
    ada.wait_for(job_id, "succeeded")


@pytest.fixture
def stranger() -> Iterator[int]:
    """The pid of a process of nobody's that somebody started by hand."""
    process = subprocess.Popen(["sleep", "3600"], user=65534)
    yield process.pid
    process.kill()
    process.wait()


@reaches(WaitReason.FOREIGN_USE)
def test_a_process_that_somebody_started_by_hand(
    ada: Person, session_machine: StandInMachine, stranger: int, reason: str
) -> None:
    uuid = session_machine.uuids[2]
    session_machine.set_used(uuid, 20_000)
    session_machine.add_process(uuid, stranger, 20_000)
    try:
        until(
            lambda: ada.get("/gpus").json()["results"][2]["foreign_mb"] == 20_000,
            "the supervisor to see it",
        )
        spec = asks(gpu_count=2, gpu_name=LARGE, min_vram_mb=40_000)
        job_id = ada.submit(**spec)
        whose = f"sleep of nobody, pid {stranger}"
        said = waits(
            ada,
            job_id,
            reason,
            "Processes outside GPU Jobs use what would.",
            "gauss GPU 2: 20,000 MiB are used by processes outside GPU Jobs",
            whose,
        )
        [line] = [line for line in said["gpus"] if line["uuid"] == uuid]
        assert (line["foreign_mb"], line["foreign_by"]) == (20_000, whose)
        assert line["blocked_by"] == reason
        assert_no_time(said)
    finally:
        session_machine.reset()
    ada.wait_for(job_id, "succeeded")


@pytest.fixture
def registry() -> Iterator[Registry]:
    with running_registry(os.urandom(6_000_000)) as registry:
        yield registry


@reaches(WaitReason.IMAGE_PULL)
def test_an_image_that_is_on_its_way(
    ada: Person, registry: Registry, reason: str
) -> None:
    registry.gate.clear()
    spec = asks("echo pulled", image=registry.image(), gpu_count=1)
    job_id = ada.submit(**spec)
    total = round(registry.layer_bytes / 1_000_000)
    words = ("The image is not there yet.", f" of {total} MB")
    assert_no_time(waits(ada, job_id, reason, *words))

    def done() -> int:
        told = re.search(rf"pulling: (\d+) of {total} MB", explain(ada, job_id)["text"])
        assert told
        return int(told[1])

    until(done, "some megabytes to come")
    # The registry gives half of each layer, and stops.
    assert done() < total
    # No GPU is held for it meanwhile.
    assert not any(gpu["promised_mb"] for gpu in ada.get("/gpus").json()["results"])
    registry.gate.set()
    ada.wait_for(job_id, "succeeded")
    assert ada.log(job_id) == b"pulled\n"


def test_an_image_that_the_registry_does_not_have_ends_the_job(
    ada: Person, registry: Registry
) -> None:
    job_id = ada.submit(**asks(image=registry.image("9")))
    job = ada.wait_for(job_id, "failed")
    assert (job["reason"], job["started_at"]) == ("image_not_found", None)
    assert registry.image("9") in job["reason_text"]
    assert "has no such image" in job["reason_text"]


@reaches(WaitReason.NEVER_FITS)
def test_hardware_that_shrank_under_a_job_that_waits(
    ada: Person,
    operator: Operator,
    gates: Gates,
    session_machine: StandInMachine,
    reason: str,
) -> None:
    spec = asks(gpu_count=1, min_vram_mb=45_000)
    with holding(ada, gates, gpu_count=2, gpu_name=LARGE):
        job_id = ada.submit(**spec)
        waits(ada, job_id, "resources")
        for uuid in session_machine.uuids[2:]:
            operator.admin.gpu(uuid, headroom_mb=8192)
        said = waits(
            ada,
            job_id,
            reason,
            "No node could ever hold 1 GPU with 45,000 MiB",
            "the largest GPU has 40,494 MiB usable. Ask for less.",
        )
        assert_no_time(said)
        # A new one of the kind is not taken any more; this one is not ended.
        assert ada.post("/jobs", spec).json()["code"] == reason
        for uuid in session_machine.uuids[2:]:
            operator.admin.gpu(uuid)
        waits(ada, job_id, "resources")
    ada.wait_for(job_id, "succeeded")


@reaches(WaitReason.NODE_DOWN)
def test_a_node_that_is_silent(
    stack: Stack, ada: Person, gates: Gates, reason: str
) -> None:
    with holding(ada, gates, gpu_count=4):
        job_id = ada.submit(**asks(gpu_count=1))
        waits(ada, job_id, "resources")
        stack.kill("supervisor")
        until(
            lambda: explain(ada, job_id)["reason"] == reason,
            "the silence to be noticed",
        )
        # Of the passes, the next tells it too.
        other = ada.submit(**asks(memory_mb=256))
        said = waits(ada, job_id, reason, "Needs 1 GPU; no node is up.")
        assert_no_time(said)
        waits(ada, other, reason, "no node is up")
        stack.start("supervisor")
        ada.wait_for(other, "succeeded")
    ada.wait_for(job_id, "succeeded")


@reaches(WaitReason.SCHEDULER_DOWN)
def test_a_scheduler_that_makes_no_pass(stack: Stack, ada: Person, reason: str) -> None:
    stack.stop("cluster")
    job_id = ada.submit(**asks())
    said = waits(
        ada,
        job_id,
        reason,
        "No scheduling pass was made for 30 s.",
        "whether the cluster (manage.py cluster) runs",
    )
    assert_no_time(said)
    stack.start("cluster")
    ada.wait_for(job_id, "succeeded")
