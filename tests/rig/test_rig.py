"""Which GPUs a container can open, end to end, with a real dockerd and no GPU.

Opening a stand-in's node answers ENXIO where the cgroup allows it (there is no
driver behind it) and EPERM where it does not, so each case tells isolation itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import docker
import pytest
from docker.types import DeviceRequest

from tests.rig.daemon import NVIDIA_DEFAULT_RUNTIME, PrivateDaemon
from tests.rig.fixtures import IMAGE, running_daemon
from tests.rig.machine import StandInMachine

pytestmark = [
    pytest.mark.docker,
    pytest.mark.skipif(
        not Path("/sys/fs/cgroup/devices").is_dir(),
        reason="the stand-in hook opens devices in cgroup v1 only",
    ),
]

GREEDY = "gpujobs-test/greedy:1"
ALL = "NVIDIA_VISIBLE_DEVICES=all"
VOID = "NVIDIA_VISIBLE_DEVICES=void"
LEGACY = "CUDA_VERSION=12.4"
EVERY_GPU = "0:open 1:open 2:open 3:open"
PROBE = """
for minor in 0 1 2 3; do
  node=/dev/nvidia$minor
  [ -e $node ] || continue
  case "$( (exec 3<$node) 2>&1 )" in
    *'No such device'*) echo $minor:open ;;
    *'not permitted'*) echo $minor:denied ;;
    *) echo $minor:unclear ;;
  esac
done
"""
MKNOD_THEN_PROBE = f"mknod /dev/nvidia1 c 195 1 2>/dev/null; {PROBE}"


@dataclass(frozen=True, kw_only=True)
class Case:
    """GPUs are asked for by index, which is not the minor that the probe sees."""

    seen: str
    gpus: tuple[int, ...] = ()
    image: str = IMAGE
    command: str = PROBE
    options: dict[str, Any] = field(default_factory=dict)


UNDER_RUNC = {
    "one GPU by UUID: only its node, and it opens": Case(gpus=(2,), seen="3:open"),
    "two GPUs by UUID": Case(gpus=(0, 3), seen="0:open 2:open"),
    "the UUID wins over the user's variable": Case(
        gpus=(1,), options={"environment": [ALL]}, seen="1:open"
    ),
    "the UUID wins over the image's variable": Case(
        gpus=(1,), image=GREEDY, seen="1:open"
    ),
    "a greedy image that asks for nothing gets nothing": Case(image=GREEDY, seen=""),
    "a count is blind, always from index 0: never use it": Case(
        options={"device_requests": [DeviceRequest(count=1, capabilities=[["gpu"]])]},
        seen="0:open",
    ),
    "a node made by hand is denied by the cgroup": Case(
        gpus=(0,), command=MKNOD_THEN_PROBE, seen="0:open 1:denied"
    ),
    "without capabilities there is not even a node": Case(
        gpus=(0,),
        command=MKNOD_THEN_PROBE,
        options={"cap_drop": ["ALL"]},
        seen="0:open",
    ),
    "a cgroup rule would open any GPU: never user input": Case(
        command=MKNOD_THEN_PROBE,
        options={"device_cgroup_rules": ["c 195:* rwm"]},
        seen="1:open",
    ),
    "a hardened container still opens its GPU": Case(
        gpus=(0,),
        options={
            "user": "10001:10001",
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges:true"],
            "read_only": True,
        },
        seen="0:open",
    ),
    "requested capabilities override the image's": Case(
        gpus=(0,),
        image=GREEDY,
        command="env | grep DRIVER_CAP",
        seen="NVIDIA_DRIVER_CAPABILITIES=compute,utility",
    ),
}
UNDER_NVIDIA = {
    "TRAP: a greedy image that asks for nothing gets all": Case(
        image=GREEDY, seen=EVERY_GPU
    ),
    "TRAP: so does a job with the variable": Case(
        options={"environment": [ALL]}, seen=EVERY_GPU
    ),
    "TRAP: so does a job with CUDA_VERSION, as a legacy image": Case(
        options={"environment": [LEGACY]}, seen=EVERY_GPU
    ),
    "defence 1: void as the last word": Case(
        image=GREEDY, options={"environment": [VOID, LEGACY]}, seen=""
    ),
    "defence 2: the runtime named": Case(
        image=GREEDY, options={"runtime": "runc"}, seen=""
    ),
    "with both a UUID request still works": Case(
        gpus=(2,),
        image=GREEDY,
        options={"runtime": "runc", "environment": [VOID]},
        seen="3:open",
    ),
}


@pytest.fixture(scope="module")
def runc_client(daemon: PrivateDaemon) -> Iterator[docker.DockerClient]:
    yield from greedy_client(daemon)


@pytest.fixture(scope="module")
def nvidia_client(session_machine: StandInMachine) -> Iterator[docker.DockerClient]:
    daemon = PrivateDaemon(session_machine, NVIDIA_DEFAULT_RUNTIME)
    for running in running_daemon(daemon):
        yield from greedy_client(running)


def greedy_client(daemon: PrivateDaemon) -> Iterator[docker.DockerClient]:
    daemon.import_image(GREEDY, [f"ENV {ALL}", "ENV NVIDIA_DRIVER_CAPABILITIES=all"])
    client = daemon.client()
    yield client
    client.close()


def by_uuid(uuids: list[str]) -> dict[str, Any]:
    capabilities = [["gpu", "compute", "utility"]]
    request = DeviceRequest(device_ids=uuids, capabilities=capabilities)
    return {"network_mode": "none", "device_requests": [request] if uuids else []}


def seen_by(client: docker.DockerClient, uuids: list[str], case: Case) -> str:
    container = client.containers.create(
        case.image, ["sh", "-c", case.command], **(by_uuid(uuids) | case.options)
    )
    try:
        container.start()
        container.wait(timeout=30)
        return " ".join(container.logs().decode().split())
    finally:
        container.remove(force=True)


@pytest.mark.parametrize("why", UNDER_RUNC)
def test_what_a_container_sees_under_runc(
    runc_client: docker.DockerClient, machine: StandInMachine, why: str
) -> None:
    case = UNDER_RUNC[why]
    uuids = [machine.uuids[index] for index in case.gpus]

    assert seen_by(runc_client, uuids, case) == case.seen, why


@pytest.mark.parametrize("why", UNDER_NVIDIA)
def test_what_a_container_sees_when_nvidia_is_the_default_runtime(
    nvidia_client: docker.DockerClient, machine: StandInMachine, why: str
) -> None:
    case = UNDER_NVIDIA[why]
    uuids = [machine.uuids[index] for index in case.gpus]

    assert seen_by(nvidia_client, uuids, case) == case.seen, why


@pytest.mark.parametrize("fault", ["an unknown UUID", "a broken driver"])
def test_a_start_that_fails_leaves_a_container_only_created(
    runc_client: docker.DockerClient, machine: StandInMachine, fault: str
) -> None:
    uuids = ["GPU-gone"] if fault == "an unknown UUID" else machine.uuids[:1]
    if fault == "a broken driver":
        machine.break_driver("nvml unknown error")
    container = runc_client.containers.create(IMAGE, ["true"], **by_uuid(uuids))

    with pytest.raises(docker.errors.APIError, match="nvidia-container-cli"):
        container.start()

    container.reload()
    state = container.attrs["State"]
    assert (state["Status"], state["ExitCode"]) == ("created", 128)
    container.remove()
    machine.mend_driver()
    assert seen_by(runc_client, machine.uuids[:1], Case(seen="0:open")) == "0:open"


def test_a_cgroup_reload_takes_the_gpu_from_a_running_container(
    daemon: PrivateDaemon, runc_client: docker.DockerClient, machine: StandInMachine
) -> None:
    container = runc_client.containers.run(
        IMAGE, ["sleep", "60"], detach=True, **by_uuid([machine.uuids[1]])
    )

    def probe() -> str:
        text: str = container.exec_run(["sh", "-c", PROBE]).output.decode()
        return text.strip()

    try:
        assert probe() == "1:open"
        deny = daemon.devices_cgroup(container.id) / "devices.deny"
        deny.write_text("c 195:1 rw")
        assert probe() == "1:denied"
    finally:
        container.remove(force=True)


def test_the_hook_writes_down_every_start_with_gpus(
    runc_client: docker.DockerClient, machine: StandInMachine
) -> None:
    first, _, _, last = machine.uuids

    seen_by(runc_client, [first, last], Case(seen=""))
    seen_by(runc_client, [], Case(seen=""))

    [start] = machine.starts()
    assert start.uuids == (first, last)
    assert len(start.container_id) == 64


def test_a_daemon_killed_and_started_again_finds_its_containers(
    session_machine: StandInMachine, machine: StandInMachine
) -> None:
    daemon = PrivateDaemon(session_machine, ["--live-restore"])
    for running in running_daemon(daemon):
        client = running.client()
        container = client.containers.run(
            IMAGE,
            ["sleep", "600"],
            detach=True,
            init=True,
            **by_uuid(machine.uuids[:1]),
        )
        pids = running.container_pids()
        client.close()

        running.kill()
        assert running.container_pids() == pids
        running.start()

        client = running.client()
        assert client.containers.get(container.id).status == "running"
        client.close()

    assert len(pids) >= 2
    assert daemon.leftovers() == []
    assert not daemon.folder.exists()
