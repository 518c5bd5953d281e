"""The whole way on stand-in GPUs: HTTP, a real cluster and supervisor, real containers."""

import hashlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.e2e.stack import Person, Stack, running, until
from tests.rig.daemon import PrivateDaemon
from tests.rig.fixtures import IMAGE
from tests.rig.machine import StandInMachine

pytestmark = pytest.mark.docker

# What a job sees of the four device nodes: absent, or it opens (a stand-in's node
# answers ENXIO), or it is there and the cgroup denies it.
PROBE = (
    "for m in 0 1 2 3; do d=/dev/nvidia$m; [ -e $d ] || continue; "
    'case "$( (exec 3<$d) 2>&1 )" in *"No such device"*) echo $m:open;; '
    "*) echo $m:denied;; esac; done"
)


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the operator lets jobs mount."""
    folder = tmp_path_factory.mktemp("datasets")
    (folder / "numbers").write_text("1 2 3")
    (folder / "numbers").chmod(0o644)
    for path in (folder, *folder.parents[:2]):
        path.chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def stack(
    tmp_path_factory: pytest.TempPathFactory,
    daemon: PrivateDaemon,
    session_machine: StandInMachine,
    datasets: Path,
) -> Iterator[Stack]:
    session_machine.reset()
    env = daemon.product_env(datasets)
    with running(tmp_path_factory.mktemp("stack"), env) as stack:
        yield stack


@pytest.fixture(scope="module")
def ada(stack: Stack) -> Person:
    return stack.person("ada@example.org")


def asks(command: str | list[str], **fields: Any) -> dict[str, Any]:
    return {"image": IMAGE, "command": command, **fields}


def test_a_job_runs_on_one_gpu_and_all_of_it_can_be_read_back(
    ada: Person, session_machine: StandInMachine, daemon: PrivateDaemon
) -> None:
    command = (
        f"{PROBE}; printf 'zażółć \\342\\234\\223\\nno newline'; "
        "mkdir -p /artifacts/out; printf result > /artifacts/out/model.bin"
    )
    job_id = ada.submit(**asks(command, gpu_count=1, name="main"))
    job = ada.wait_for(job_id, "succeeded")

    gpus = {gpu.uuid: gpu for gpu in session_machine.gpus}
    (uuid,) = job["assigned_gpu_uuids"]
    gpu = gpus[uuid]
    assert job["exit_code"] == 0
    assert job["assigned_gpu_indices"] == [gpu.index]
    expected = f"{gpu.minor}:open\nzażółć ✓\nno newline"
    assert ada.log(job_id) == expected.encode()

    result = ada.get(f"/jobs/{job_id}/artifact").json()
    (file,) = result["files"]
    assert file["path"] == "out/model.bin"
    assert file["size"] == len(b"result")
    assert file["sha256"] == hashlib.sha256(b"result").hexdigest()
    assert ada.get(f"/jobs/{job_id}/artifact/download").content == b"result"

    events = ada.events(job_id)
    story = [event["event_type"] for event in events]
    assert [e for e in story if e != "exit_seen"] == [
        "queued",
        "starting",
        "running",
        "succeeded",
    ]
    times = [event["created_at"] for event in events]
    assert times == sorted(times)
    assert job["created_at"] <= job["started_at"] <= job["finished_at"]

    # The hook's own record agrees, and nothing is left.
    container = f"gpujob-{job_id}-1"
    assert session_machine.starts()[-1].uuids == (uuid,)
    client = daemon.client()
    names = [found.name for found in client.containers.list(all=True)]
    client.close()
    assert container not in names


def test_exit_code_3_fails_with_a_reason_and_has_no_artifact(ada: Person) -> None:
    command = "echo kept > /artifacts/x; echo oh no >&2; exit 3"
    job_id = ada.submit(**asks(command, gpu_count=0))
    job = ada.wait_for(job_id, "failed")
    assert (job["exit_code"], job["reason"]) == (3, "nonzero_exit")
    assert ada.log(job_id) == b"oh no\n"
    assert ada.get(f"/jobs/{job_id}/artifact").status_code == 404


def test_a_job_without_a_gpu_sees_none(ada: Person) -> None:
    job_id = ada.submit(**asks(f"{PROBE}; echo seen", gpu_count=0))
    ada.wait_for(job_id, "succeeded")
    assert ada.log(job_id) == b"seen\n"


def test_a_command_that_the_image_lacks_is_told_as_such(ada: Person) -> None:
    job_id = ada.submit(**asks(["/no/such/program"], gpu_count=0))
    job = ada.wait_for(job_id, "failed")
    assert job["reason"] == "command_not_found"


def test_the_log_can_be_read_from_an_offset_while_it_grows(ada: Person) -> None:
    command = "echo first; until [ -e /artifacts/go ]; do sleep 0.1; done; echo last"
    job_id = ada.submit(**asks(command, gpu_count=0, timeout_s=600))
    ada.wait_for(job_id, "running")

    def first() -> requests.Response | None:
        answer = ada.get(f"/jobs/{job_id}/logs")
        return answer if answer.content else None

    answer = until(first, "the first line")
    assert answer.content == b"first\n"
    assert answer.headers["X-Log-Complete"] == "false"
    offset = answer.headers["X-Log-Offset"]
    assert ada.get(f"/jobs/{job_id}/logs", offset=offset).content == b""
    assert ada.post(f"/jobs/{job_id}/cancel").status_code == 200
    ada.wait_for(job_id, "cancelled")
    assert ada.get(f"/jobs/{job_id}/logs").headers["X-Log-Complete"] == "true"


def test_a_running_job_is_cancelled_within_its_grace(ada: Person) -> None:
    command = "trap 'echo got TERM; exit 0' TERM; echo up; sleep 600 & wait"
    job_id = ada.submit(**asks(command, gpu_count=1))
    ada.wait_for(job_id, "running")
    until(lambda: ada.log(job_id) == b"up\n", "the trap to be set")
    assert ada.delete(f"/jobs/{job_id}").status_code == 409
    answer = ada.post(f"/jobs/{job_id}/cancel")
    assert answer.status_code == 200
    assert answer.json()["cancel_requested"] is True
    job = ada.wait_for(job_id, "cancelled")
    # Exit code 0 after our own signal is no success.
    assert (job["exit_code"], job["reason"]) == (0, "cancelled_by_user")
    assert ada.log(job_id) == b"up\ngot TERM\n"
    assert ada.post(f"/jobs/{job_id}/cancel").status_code == 409


def test_a_job_that_ignores_term_is_killed_after_its_grace(ada: Person) -> None:
    command = "trap '' TERM; echo up; while :; do sleep 0.2; done"
    job_id = ada.submit(**asks(command, gpu_count=0, grace_s=1))
    ada.wait_for(job_id, "running")
    until(lambda: ada.log(job_id) == b"up\n", "the trap to be set")
    ada.post(f"/jobs/{job_id}/cancel")
    job = ada.wait_for(job_id, "cancelled")
    assert job["exit_code"] == 137


def test_a_time_limit_ends_a_job(ada: Person) -> None:
    job_id = ada.submit(**asks("sleep 600", gpu_count=0, timeout_s=1))
    job = ada.wait_for(job_id, "failed")
    assert job["reason"] == "timed_out"


def test_deleting_takes_all_but_the_audit(ada: Person, stack: Stack) -> None:
    job_id = ada.submit(**asks("echo x > /artifacts/x", gpu_count=0))
    ada.wait_for(job_id, "succeeded")
    assert ada.delete(f"/jobs/{job_id}").status_code == 204
    for path in ("", "/logs", "/events", "/attempts", "/artifact"):
        assert ada.get(f"/jobs/{job_id}{path}").status_code == 404
    assert not list(stack.data.glob(f"*/{job_id}*"))
    count = (
        "from jobs.models import AuditRecord; "
        f"print(AuditRecord.objects.filter(target='{job_id}').count())"
    )
    assert int(stack.manage("shell", "-v0", "-c", count)) >= 4


def test_a_strangers_job_does_not_exist(ada: Person, stack: Stack) -> None:
    eve = stack.person("eve@example.org")
    job_id = ada.submit(**asks("true", gpu_count=0))
    for path in ("", "/logs", "/events", "/attempts", "/artifact", "/explain"):
        assert eve.get(f"/jobs/{job_id}{path}").status_code == 404
    assert eve.post(f"/jobs/{job_id}/cancel").status_code == 404
    assert eve.delete(f"/jobs/{job_id}").status_code == 404
    ada.wait_for(job_id, "succeeded")


def test_a_gpu_that_a_hand_started_process_fills_is_not_used(
    ada: Person, session_machine: StandInMachine
) -> None:
    for gpu in session_machine.gpus:
        session_machine.set_used(gpu.uuid, gpu.total_mb - 2000)
        session_machine.add_process(gpu.uuid, 1, gpu.total_mb - 2000)
    try:
        until(
            lambda: all(
                g["foreign_mb"] > 0 for g in ada.get("/gpus").json()["results"]
            ),
            "the supervisor to see it",
        )
        job_id = ada.submit(**asks("true", gpu_count=1, min_vram_mb=4000))
        job = until(
            lambda: (j := ada.job(job_id))["wait_reason"] == "foreign_use" and j,
            "the pass to tell why",
        )
        assert job["status"] == "queued"
        assert "used by processes outside GPU Jobs" in job["wait_text"]
    finally:
        session_machine.reset()
    ada.wait_for(job_id, "succeeded")


def test_a_job_that_could_never_fit_is_refused_with_the_numbers(ada: Person) -> None:
    answer = ada.post("/jobs", asks("true", gpu_count=5))
    assert answer.status_code == 422
    assert answer.json()["code"] == "never_fits"
    assert "one node has at most 4," in answer.json()["detail"]


def test_a_hundred_thousand_lines_come_through_whole(ada: Person) -> None:
    job_id = ada.submit(**asks("seq 1 100000 | sed 's/$/ of a long log/'", gpu_count=0))
    ada.wait_for(job_id, "succeeded")
    expected = b"".join(b"%d of a long log\n" % n for n in range(1, 100_001))
    got = b""
    while True:
        answer = ada.get(f"/jobs/{job_id}/logs", offset=len(got), limit=1024 * 1024)
        if not answer.content:
            break
        got += answer.content
    assert got == expected


def test_a_queued_job_is_cancelled_at_once_and_stays_so(
    ada: Person, stack: Stack
) -> None:
    stack.stop("cluster")
    job_id = ada.submit(**asks("true", gpu_count=1))
    started = time.monotonic()
    answer = ada.post(f"/jobs/{job_id}/cancel")
    assert answer.json()["status"] == "cancelled"
    assert time.monotonic() - started < 30
    stack.start("cluster")
    other = ada.submit(**asks("true", gpu_count=1))
    ada.wait_for(other, "succeeded")
    assert ada.job(job_id)["status"] == "cancelled"


def test_a_volume_is_read_only_and_lies_under_an_allowed_root(
    ada: Person, datasets: Path
) -> None:
    command = "cat /data/numbers; touch /data/x 2>&1 || echo refused"
    job_id = ada.submit(**asks(command, gpu_count=0, volumes=[f"{datasets}:/data"]))
    ada.wait_for(job_id, "succeeded")
    log = ada.log(job_id).decode()
    assert log == "1 2 3touch: /data/x: Read-only file system\nrefused\n"
    answer = ada.post("/jobs", asks("true", volumes=["/etc:/data"]))
    assert (answer.status_code, answer.json()["code"]) == (400, "mount_not_allowed")


def test_a_time_limit_keeps_the_log(ada: Person) -> None:
    job_id = ada.submit(**asks("echo before; sleep 600", gpu_count=0, timeout_s=2))
    ada.wait_for(job_id, "failed")
    assert ada.log(job_id) == b"before\n"


def test_what_was_answered_with_201_survives_a_kill(ada: Person, stack: Stack) -> None:
    job_id = ada.submit(**asks("true", gpu_count=1))
    stack.kill("web")
    stack.start("web")
    assert ada.job(job_id)["id"] == job_id
    ada.wait_for(job_id, "succeeded")


def test_a_job_goes_on_while_everything_of_ours_is_killed(
    ada: Person, stack: Stack, session_machine: StandInMachine
) -> None:
    before = len(session_machine.starts())
    command = "for n in 1 2 3 4 5 6 7 8; do echo $n; sleep 1; done; printf end; exit 9"
    job_id = ada.submit(**asks(command, gpu_count=1))
    ada.wait_for(job_id, "running")
    stack.kill("web", "cluster", "supervisor")
    stack.start("web", "cluster", "supervisor")
    job = ada.wait_for(job_id, "failed")
    assert (job["reason"], job["exit_code"]) == ("nonzero_exit", 9)
    assert ada.log(job_id) == b"1\n2\n3\n4\n5\n6\n7\n8\nend"
    assert len(session_machine.starts()) == before + 1
    attempts = ada.get(f"/jobs/{job_id}/attempts").json()["results"]
    assert len(attempts) == 1


def test_a_volume_is_mounted_by_its_name_and_a_network_is_chosen(ada: Person) -> None:
    """Read-only, as it was declared; and the job with no network has its loop alone."""
    command = (
        "cat /data/numbers; echo; touch /data/x 2>&1; "
        "ls /sys/class/net > /artifacts/net"
    )
    spec = asks(command, volumes=["shared:/data"], network="none", gpu_count=0)
    job_id = ada.submit(**spec)
    job = ada.wait_for(job_id, "succeeded")
    assert job["volumes"] == [{"source": "shared", "target": "/data", "mode": "ro"}]
    log = ada.log(job_id).decode()
    assert log.startswith("1 2 3\n")
    assert "Read-only file system" in log
    assert ada.get(f"/jobs/{job_id}/artifact/download").content == b"lo\n"
    refused = ada.post("/jobs", asks("true", volumes=["shared:/data:rw"]))
    assert refused.json()["errors"][0]["code"] == "mount_not_allowed"
