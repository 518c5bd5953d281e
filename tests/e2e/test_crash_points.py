"""A process dies between two steps, at each of them: the job comes to its right end.

One job for each failpoint, on real containers. Each program writes down its own start,
so that one that was started twice by one attempt is seen.
"""

import contextlib
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import requests
import yaml

from tests.e2e.gates import MOUNT, Gates
from tests.e2e.operator import Operator
from tests.e2e.stack import ROOT, Person, Stack, running, until
from tests.rig.daemon import PrivateDaemon
from tests.rig.fixtures import IMAGE
from tests.rig.machine import StandInMachine
from tests.rig.registry import running_registry

pytestmark = pytest.mark.docker

LINES = [f"line {number}" for number in range(1, 201)]
STARTS = f'echo "$GPUJOBS_JOB_ID $GPUJOBS_ATTEMPT" >> {MOUNT}/starts'
WORKS = "for n in $(seq 200); do echo line $n; done; echo 42 > /artifacts/answer"
IGNORES_TERM = "trap '' TERM; echo up; while :; do sleep 0.1; done"

# What becomes of a job while the process at that step is killed.
NATURAL = [
    *("reserve.written", "reserve.committed"),
    *("launch.begun", "launch.staged", "launch.prepared", "launch.started"),
    *("launch.launched", "launch.checked", "launch.running"),
    *("collect.exit_seen", "collect.release_written"),
    *("collect.released", "collect.log_closed", "collect.artifacts_listed"),
    *("collect.artifacts_moved", "collect.artifacts_taken", "collect.recorded"),
    *("collect.removed", "collect.wiped", "collect.judged"),
]
# Of a container that was made and whose start nobody saw: it is made anew.
UNSTARTED = [
    *("launch.created", "launch.removed", "launch.wiped"),
    *("launch.ended_unstarted", "launch.committed_unstarted"),
]
STOPPED = ["stop.written", "stop.sent", "stop.forced"]
SUBMITTED = ["submit.written", "submit.committed"]
CANCELLED = ["cancel.written", "cancel.committed"]
TIMED_OUT = ["expire.written"]
PULLED = ["pull.begun", "pull.over"]
JUDGED = ["judge.validating", "judge.written", "judge.parked"]
ALL = [
    *(*NATURAL, *UNSTARTED, *STOPPED, *SUBMITTED, *CANCELLED, *TIMED_OUT, *PULLED),
    *JUDGED,
]


def test_every_failpoint_of_the_code_has_its_test() -> None:
    calls = re.compile(r'failpoint\("([^)]*)\)')
    found = [
        name
        for folder in ("gpujobs", "jobs", "scheduler")
        for path in (ROOT / folder).rglob("*.py")
        for call in calls.findall(path.read_text())
        for name in re.findall(r"[a-z_]+\.[a-z_]+", call)
        if path.name != "failpoints.py"
    ]
    assert sorted(found) == sorted(ALL)


class Failpoints:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def arm(self, name: str) -> None:
        part = self.folder / f"part-{name}"
        part.write_text("SIGKILL")
        part.rename(self.folder / name)

    def wait_for(self, name: str) -> None:
        """Until some process came to it, and died."""
        until(lambda: not (self.folder / name).exists(), f"{name} to be come to")


@pytest.fixture(scope="module")
def failpoints(tmp_path_factory: pytest.TempPathFactory) -> Failpoints:
    return Failpoints(tmp_path_factory.mktemp("failpoints"))


@pytest.fixture(scope="module")
def stack(
    tmp_path_factory: pytest.TempPathFactory,
    daemon: PrivateDaemon,
    session_machine: StandInMachine,
    gates: Gates,
    failpoints: Failpoints,
) -> Iterator[Stack]:
    session_machine.reset()
    (gates.folder / "starts").touch()
    (gates.folder / "starts").chmod(0o666)
    env = {
        **daemon.product_env(gates.folder),
        "GPUJOBS_FAILPOINTS": str(failpoints.folder),
    }
    with running(tmp_path_factory.mktemp("stack"), env) as stack:
        yield stack


T = TypeVar("T")
Submit = Callable[..., dict[str, Any]]


@pytest.fixture
def spec(gates: Gates) -> Submit:
    def make(command: str, **fields: Any) -> dict[str, Any]:
        volumes = [f"{gates.folder}:{MOUNT}:rw"]
        told = {"image": IMAGE, "command": f"{STARTS}; {command}", "grace_s": 1}
        return {**told, "volumes": volumes, "gpu_count": 1, **fields}

    return make


@pytest.fixture(autouse=True)
def nothing_is_left(
    stack: Stack, daemon: PrivateDaemon, gates: Gates
) -> Iterator[None]:
    """After each of them: no container, no GPU held, no program started twice."""
    yield
    client = daemon.client()
    until(lambda: not client.containers.list(all=True), "every container to go")
    client.close()
    assert stack.shell(HELD).split() == ["0", "0"]
    starts = Counter((gates.folder / "starts").read_text().splitlines())
    assert [start for start, times in starts.items() if times > 1] == []


HELD = """
from jobs.models import Attempt
from scheduler.models import Allocation
print(Allocation.objects.live().count(), Attempt.objects.live().count())
"""


def attempts(ada: Person, job_id: str) -> list[str]:
    found = ada.get(f"/jobs/{job_id}/attempts").json()["results"]
    return [attempt["reason"] for attempt in found]


def ended(ada: Person, job_id: str) -> list[str]:
    """The events that end a job: whatever happened, it ends once."""
    types = [event["event_type"] for event in ada.events(job_id)]
    return [name for name in types if name in ("succeeded", "failed", "cancelled")]


def did_its_work(ada: Person, job_id: str) -> None:
    ada.wait_for(job_id, "succeeded")
    assert ended(ada, job_id) == ["succeeded"]
    assert ada.log(job_id).decode().splitlines() == LINES
    assert ada.get(f"/jobs/{job_id}/artifact/download").content == b"42\n"


@pytest.mark.parametrize("name", NATURAL)
def test_a_job_that_goes_well(
    ada: Person, spec: Submit, failpoints: Failpoints, name: str
) -> None:
    failpoints.arm(name)
    job_id = ada.submit(**spec(WORKS))
    failpoints.wait_for(name)
    did_its_work(ada, job_id)
    assert attempts(ada, job_id) == ["completed"]


@pytest.mark.parametrize("name", UNSTARTED)
def test_a_container_that_was_made_and_perhaps_not_started(
    ada: Person, spec: Submit, failpoints: Failpoints, name: str
) -> None:
    failpoints.arm(name)
    failpoints.arm("launch.created")
    job_id = ada.submit(**spec(WORKS))
    failpoints.wait_for(name)
    did_its_work(ada, job_id)
    # Never a second container for one attempt: the first may have been started.
    assert attempts(ada, job_id) == ["launch_fault", "completed"]


@pytest.mark.parametrize("name", JUDGED)
def test_a_result_that_is_judged_by_another_container_and_a_person(
    ada: Person,
    operator: Operator,
    stack: Stack,
    failpoints: Failpoints,
    name: str,
    tmp_path: Path,
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(
        yaml.safe_dump(
            {**POLICY, "name": name, "review": "always", "validators": [RUN]}
        )
    )
    stack.manage("policy", "load", str(file), "--activate")
    failpoints.arm(name)
    job_id = ada.submit(model_name=name)
    failpoints.wait_for(name)
    until(lambda: ada.job(job_id)["reason"] == "in_review", "it to be in review")
    assert operator.post(f"/jobs/{job_id}/review", {"accepts": True}).status_code == 200
    ada.wait_for(job_id, "succeeded")
    assert ended(ada, job_id) == ["succeeded"]
    assert attempts(ada, job_id) == ["completed", "completed"]


RUN = {
    "name": "runs",
    "container": IMAGE,
    "command": ["grep", "42", "{{ result }}/answer"],
}
POLICY = {
    "tiers": [
        {"name": "only", "image": IMAGE, "command": WORKS, "model_version": "1"},
    ],
}


@pytest.mark.parametrize("name", [*STOPPED, *CANCELLED])
def test_a_job_that_is_cancelled_while_it_runs(
    ada: Person, spec: Submit, failpoints: Failpoints, name: str
) -> None:
    job_id = ada.submit(**spec(IGNORES_TERM))
    ada.wait_for(job_id, "running")
    until(lambda: ada.log(job_id) == b"up\n", "the trap to be set")
    failpoints.arm(name)
    with contextlib.suppress(requests.ConnectionError):
        assert ada.post(f"/jobs/{job_id}/cancel").status_code == 200
    failpoints.wait_for(name)
    if name in CANCELLED:  # nobody heard whether it was taken
        again(lambda: ada.post(f"/jobs/{job_id}/cancel").status_code == 200)
    ada.wait_for(job_id, "cancelled")
    assert ended(ada, job_id) == ["cancelled"]
    assert attempts(ada, job_id) == ["cancelled_by_user"]


@pytest.mark.parametrize("name", TIMED_OUT)
def test_a_job_that_runs_out_of_time(
    stack: Stack, ada: Person, spec: Submit, failpoints: Failpoints, name: str
) -> None:
    failpoints.arm(name)
    job_id = ada.submit(**spec(IGNORES_TERM, timeout_s=1))
    failpoints.wait_for(name)
    stack.revive("supervisor")
    ada.wait_for(job_id, "failed")
    assert attempts(ada, job_id) == ["timed_out"]


@pytest.mark.parametrize("name", SUBMITTED)
def test_a_submission_that_nobody_answered_is_sent_again(
    ada: Person, spec: Submit, failpoints: Failpoints, name: str
) -> None:
    failpoints.arm(name)
    key = {"Idempotency-Key": f"once-{name}"}
    with pytest.raises(requests.ConnectionError):
        ada.post("/jobs", spec(WORKS, name=name), headers=key)
    sent = again(lambda: ada.post("/jobs", spec(WORKS, name=name), headers=key))
    assert sent.status_code == (200 if name == "submit.committed" else 201)
    assert ada.get("/jobs", name=name).json()["count"] == 1
    did_its_work(ada, sent.json()["id"])


def again(act: Callable[[], T]) -> T:
    """Until the web server, whose worker died, has another one."""

    def tried() -> T | None:
        with contextlib.suppress(requests.ConnectionError):
            return act()
        return None

    return until(tried, "an answer")


@pytest.mark.parametrize("name", PULLED)
def test_a_pull(
    stack: Stack, ada: Person, spec: Submit, failpoints: Failpoints, name: str
) -> None:
    failpoints.arm(name)
    with running_registry(b"small") as registry:
        job_id = ada.submit(**spec(WORKS, image=registry.image()))
        failpoints.wait_for(name)
        stack.revive("supervisor")
        did_its_work(ada, job_id)
