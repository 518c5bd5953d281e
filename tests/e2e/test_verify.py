"""manage.py verify over the whole product, on a real Docker and stand-in GPUs."""

import json
import subprocess

import pytest

from scheduler.runner.docker import DockerRunner
from tests.e2e.gates import Gates
from tests.e2e.stack import Person, Stack, until
from tests.rig.daemon import PrivateDaemon
from tests.rig.fixtures import IMAGE

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("tidy")]

FOREIGN = "gpujobs-test-foreign"


def verify(stack: Stack) -> tuple[int, str]:
    done = subprocess.run(
        [*stack.program, "verify", "--patience", "5"],
        env=stack.env,
        check=False,
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


def instance(stack: Stack) -> str:
    return (stack.data / "instance").read_text()


def test_all_holds_while_jobs_run_and_after(
    stack: Stack, ada: Person, gates: Gates, daemon: PrivateDaemon
) -> None:
    alone = gates.asks(gpu_count=2)
    shared = [gates.asks(gpu_count=1, min_vram_mb=2048, share=True) for _ in range(2)]
    ids = [ada.submit(**asked) for asked in (alone, *shared)]
    jobs = [ada.wait_for(job_id, "running") for job_id in ids]
    assert verify(stack) == (0, "All invariants hold.\n")

    seen = DockerRunner(daemon.base_url, instance(stack)).observe()
    given = sorted(len(found.gpu_uuids) for found in seen)
    assert (
        given == sorted(len(job["assigned_gpu_indices"]) for job in jobs) == [1, 1, 2]
    )

    for asked in (alone, *shared):
        gates.open(asked)
    for job_id in ids:
        ada.wait_for(job_id, "succeeded")
    assert verify(stack) == (0, "All invariants hold.\n")


def test_a_result_that_somebody_cut_is_found(stack: Stack, ada: Person) -> None:
    command = "echo weights > /artifacts/model.pt"
    job_id = ada.submit(image=IMAGE, command=command, gpu_count=0)
    ada.wait_for(job_id, "succeeded")
    [stored] = (stack.data / "artifacts" / job_id).rglob("*/*")
    stored.write_bytes(b"w")
    status, text = verify(stack)
    assert (status, "I12 wrong" in text) == (1, True), text
    assert f"gpujob-{job_id}-1" in text
    stored.write_bytes(b"weights\n")
    assert verify(stack)[0] == 0


def test_a_container_that_only_looks_like_ours_is_told_of_and_left_alone(
    stack: Stack, daemon: PrivateDaemon
) -> None:
    labels = {"gpujobs.instance": instance(stack), "gpujobs.nonce": "unknown"}
    client = daemon.client()
    container = client.containers.run(
        IMAGE,
        ["sleep", "600"],
        name=FOREIGN,
        detach=True,
        network_mode="none",
        labels=labels,
    )
    try:
        status, text = verify(stack)
        assert (status, FOREIGN in text) == (0, True), text
        container.reload()
        assert container.status == "running"
    finally:
        container.remove(force=True)
        client.close()


def test_the_supervisor_has_looked_too(stack: Stack) -> None:
    def row() -> list[object]:
        told = stack.shell(
            "import json\n"
            "from scheduler.models import Verification\n"
            "print(json.dumps(list(Verification.objects.values('node', 'findings'))))"
        )
        return list(json.loads(told))

    assert until(row, "the supervisor's first look") == [
        {"node": "gauss", "findings": []}
    ]


def test_without_docker_it_says_so_and_checks_the_rest(stack: Stack) -> None:
    stack.env["GPUJOBS_DOCKER_URL"], url = (
        f"unix://{stack.folder}/no.sock",
        stack.env["GPUJOBS_DOCKER_URL"],
    )
    try:
        status, text = verify(stack)
    finally:
        stack.env["GPUJOBS_DOCKER_URL"] = url
    assert status == 1
    assert "I4 wrong: It could not be looked at the containers" in text
    assert "I9 wrong: It could not be looked at the processes below Docker" in text
    assert "Traceback" not in text
