"""T01-T18: what a job may ask for. Each attack meets the API, and then, written into the
row past it, the node, which believes no row.
"""

from collections.abc import Callable
from typing import Any

import pytest

from jobs.models import Attempt, Job, User
from scheduler.execution import launch
from tests.factories import IMAGE
from tests.fakes import FakeRunner
from tests.scheduler.factories import holds, make_reserved

pytestmark = pytest.mark.django_db

JOBS = "/api/v1/jobs"
LONG = "x" * 4100


def volume(source: str, target: str = "/data", mode: str = "ro") -> dict[str, Any]:
    return {"volumes": [{"source": source, "target": target, "mode": mode}]}


def env(**variables: str) -> dict[str, Any]:
    return {"env": variables}


# The attack's name, what is asked, the code by which it is refused, and what it is.
Attack = tuple[str, dict[str, Any], str, str]

ENVIRONMENT: list[Attack] = [
    ("T01", env(NVIDIA_VISIBLE_DEVICES="all"), "env_reserved", "every GPU, by name"),
    ("T01", env(NVIDIA_VISIBLE_DEVICES="GPU-1"), "env_reserved", "another's GPU"),
    ("T04", env(NVIDIA_DRIVER_CAPABILITIES="all"), "env_reserved", "the whole driver"),
    ("T04", env(NVIDIA_IMEX_CHANNELS="0"), "env_reserved", "memory of other hosts"),
    ("T04", env(NVIDIA_MIG_CONFIG_DEVICES="all"), "env_reserved", "to slice GPUs anew"),
    ("T04", env(NVIDIA_MIG_MONITOR_DEVICES="all"), "env_reserved", "to watch slices"),
    (
        "T04",
        env(DOCKER_RESOURCE_GPU="0"),
        "env_reserved",
        "Swarm's name, which outranks",
    ),
    ("T04", env(CUDA_VISIBLE_DEVICES="0,1"), "env_reserved", "CUDA's own list"),
    ("T04", env(CUDA_DEVICE_ORDER="FASTEST_FIRST"), "env_reserved", "another order"),
    ("T04", env(GPUJOBS_GPU_UUIDS="GPU-1"), "env_reserved", "a lie about what it has"),
    ("T15", env(**{"": "x"}), "bad_env_name", "no name"),
    ("T15", env(**{"=x": "y"}), "bad_env_name", "Docker's own refusal"),
    ("T15", env(**{"A=B": "x"}), "bad_env_name", "two variables in one"),
    ("T15", env(**{"A\nB": "x"}), "bad_env_name", "a line more"),
    ("T15", env(**{"1A": "x"}), "bad_env_name", "a digit first"),
    ("T15", env(**{"Ä": "x"}), "bad_env_name", "a letter of another alphabet"),
    ("T15", env(**{f"A{n}": "x" for n in range(257)}), "env_too_large", "257 of them"),
    ("T15", env(A="x" * 32769), "env_too_large", "a value of 32 KiB and one"),
    ("T15", env(**{f"A{n}": "x" * 30000 for n in range(5)}), "env_too_large", "150 kB"),
]
MOUNTS: list[Attack] = [
    *(
        ("T06", volume(source), "mount_not_allowed", f"the host's {source}")
        for source in (
            *("/etc", "/root", "/home", "/proc", "/sys", "/dev", "/boot", "/usr"),
            *("/var/run/docker.sock", "/run/docker.sock", "/var/lib/docker", "/var"),
            *("/run/containerd/containerd.sock", "/proc/1/root", "/dev/nvidia0"),
        )
    ),
    ("T05", volume("/dev/null"), "mount_not_allowed", "a device list by a mount"),
    (
        "T05",
        volume("/srv/ro", "/var/run/nvidia-container-devices/all"),
        "bad_target",
        "where NVIDIA's hook reads a device list",
    ),
    ("T06", volume("/"), "bad_path", "all of it"),
    ("T06", volume("other"), "mount_not_allowed", "a name that nobody declared"),
    ("T06", volume("sets", mode="rw"), "mount_not_allowed", "a declared one, to write"),
    ("T06", volume("SETS"), "bad_path", "a name that is none"),
    ("T06", volume("/srv"), "mount_not_allowed", "the parent of what is allowed"),
    ("T06", volume("/srv/ro2"), "mount_not_allowed", "a name that a root begins"),
    ("T07", volume("/srv/ro/../../etc"), "bad_path", "a way up"),
    ("T07", volume("/srv/ro/.."), "bad_path", "a way up at the end"),
    ("T07", volume("/srv//ro"), "bad_path", "an empty part"),
    ("T07", volume("/srv/./ro"), "bad_path", "a dot"),
    ("T07", volume("/srv/ro\n"), "bad_path", "a newline"),
    ("T07", volume("/srv/ro:/etc"), "bad_path", "a second path behind a colon"),
    ("T07", volume("srv/ro"), "bad_path", "a relative path, or a volume's name"),
    ("T07", volume("/srv/ro/" + LONG), "bad_path", "more than 4,096 characters"),
    ("T07", volume("/srv\u2024\u2024/ro"), "mount_not_allowed", "dots that are none"),
    ("T08", volume("{data}"), "mount_not_allowed", "our own rows and logs"),
    ("T08", volume("{data}/logs"), "mount_not_allowed", "our own logs"),
    *(
        ("T09", volume("/srv/ro", target), code, f"onto {target}")
        for target, code in (
            ("/", "bad_path"),
            ("data", "bad_path"),
            ("/proc/sys", "bad_target"),
            ("/dev/shm", "bad_target"),
            ("/etc/ld.so.preload", "bad_target"),
            ("/usr/bin", "bad_target"),
            ("/artifacts", "bad_target"),
            ("/scratch", "bad_target"),
            ("/database", "bad_target"),
            ("/data/../etc", "bad_path"),
        )
    ),
    (
        "T09",
        {"volumes": [*volume("/srv/ro")["volumes"], *volume("/srv/rw")["volumes"]]},
        "nested_target",
        "two on one target",
    ),
    (
        "T09",
        {
            "volumes": [
                *volume("/srv/ro")["volumes"],
                *volume("/srv/rw", "/data/x")["volumes"],
            ]
        },
        "nested_target",
        "one inside another",
    ),
    ("T10", volume("/srv/ro", mode="rw"), "mount_not_allowed", "to write what is read"),
    ("T10", volume("/srv/ro", mode="z"), "bad_volume", "an option of Docker's"),
    (
        "T11",
        {"volumes": [{**volume("/srv/ro")["volumes"][0], "driver": "local"}]},
        "bad_volume",
        "a volume driver",
    ),
]
IMAGES: list[Attack] = [
    *(
        ("T13", {"image": image}, "bad_image", f"the image {image[:20]}")
        for image in (
            *("--privileged", "a b", "../x", "http://evil/x", "a//b", "Upper/case"),
            *("x@sha256:12", "x:", "x:y:z", "-x", "x\n", "é", "a/../b", ":tag"),
        )
    ),
    *(
        ("T13", {"image": image}, "image_not_allowed", f"a pull from {image}")
        for image in (
            *("localhost:5000/x", "127.0.0.1:22/x", "169.254.169.254/latest:y"),
            *("10.0.0.1/x", "registry.internal/x", "docker.io.evil.example/x"),
            *("evil.example:443/docker.io/x", "localhost/x"),
        )
    ),
]
COMMANDS: list[Attack] = [
    ("T15", {"command": ["x" * 131072]}, "command_too_long", "what Linux refuses"),
    ("T15", {"command": ["x"] * 1001}, "command_too_long", "a thousand and one"),
    ("T15", {"command": "x" * 32769}, "command_too_long", "a long line"),
    ("T15", {"command": []}, "empty_command", "nothing at all"),
    ("T15", {"command": [""]}, "empty_command", "no program"),
    ("T15", {"command": [["sh"]]}, "bad_command", "a list in a list"),
    ("T15", {"command": {"sh": "-c"}}, "bad_command", "an object"),
]
NETWORKS: list[Attack] = [
    ("T30", {"network": "host"}, "network_not_allowed", "the host's"),
    ("T30", {"network": "lab"}, "network_not_allowed", "one that was not named"),
    (
        "T33",
        {"network": "default"},
        "network_not_allowed",
        "Docker's other name for it",
    ),
]
BOTH = [*ENVIRONMENT, *MOUNTS, *IMAGES, *COMMANDS, *NETWORKS]
# What neither a row nor JSON of ours can hold: only the API meets it.
ASKED_ONLY: list[Attack] = [
    ("T13", {"image": "x" * 1000}, "max_length", "a thousand characters"),
    *(
        ("T12", {name: value}, "unknown_field", f"the field {name}")
        for name, value in {
            **dict.fromkeys(("privileged", "auto_remove", "publish_all"), True),
            **dict.fromkeys(("pid_mode", "ipc_mode", "userns_mode"), "host"),
            **dict.fromkeys(("network_mode", "uts_mode", "cgroupns"), "host"),
            **{key: ["ALL"] for key in ("cap_add", "devices", "security_opt")},
            **{key: ["c 195:* rwm"] for key in ("device_cgroup_rules", "group_add")},
            **{key: ["x:y"] for key in ("volumes_from", "links", "extra_hosts")},
            **{key: {"a": "b"} for key in ("sysctls", "labels", "tmpfs", "ports")},
            **{key: {} for key in ("healthcheck", "ulimits", "mounts")},
            **dict.fromkeys(("runtime", "cgroup_parent", "entrypoint"), "x"),
            **dict.fromkeys(("user", "container_name", "hostname"), "0"),
        }.items()
    ),
    *(
        ("T51", {name: value}, "unknown_field", f"the field {name}")
        for name, value in {
            **{"status": "succeeded", "owner": "bob@example.org", "exit_code": 0},
            **{"assigned_gpu_indices": [0], "finished_at": "2026-01-01T00:00:00Z"},
            **{"id": "0" * 32, "created_at": "2020-01-01T00:00:00Z", "log_path": "/"},
        }.items()
    ),
    ("T15", env(A="\0"), "bad_text", "a NUL in a value"),
    ("T15", {"command": ["a\0b"]}, "bad_text", "a NUL in a command"),
    ("T07", volume("/srv/ro\0"), "bad_text", "a NUL in a path"),
    *(
        ("T33", {"network": network}, code, what)
        for network, code, what in (
            ("container:x", "bad_network", "another container's"),
            ("-x", "bad_network", "an option"),
            ("ń", "bad_network", "a letter of another alphabet"),
            ("x" * 64, "max_length", "a name of 64"),
            ("a\0", "bad_text", "a NUL in a name"),
            (7, "invalid", "a number"),
            (None, "null", "nothing"),
            ([], "invalid", "a list"),
        )
    ),
    ("T17", {"gpu_count": -1}, "min_value", "fewer than no GPU"),
    ("T17", {"gpu_count": 65}, "max_value", "more than a host has"),
    ("T17", {"gpu_count": 10**30}, "bad_number", "a number of no size"),
    ("T17", {"gpu_count": 1.5}, "invalid", "half a GPU"),
    ("T17", {"gpu_count": True}, "invalid", "a boolean"),
    ("T17", {"gpu_count": "all"}, "invalid", "all of them"),
    ("T17", {"timeout_s": 0}, "min_value", "no time"),
    ("T17", {"timeout_s": -1}, "min_value", "time that is over"),
    ("T17", {"timeout_s": 10**9}, "max_value", "thirty years"),
    ("T17", {"min_vram_mb": -1}, "min_value", "less than no memory"),
    ("T17", {"priority": 101}, "max_value", "before everybody"),
    ("T17", {"model_name": "m"}, "image_and_model", "an image and a task"),
    ("T17", {"image": ""}, "required", "neither"),
]


def name(attack: Attack) -> str:
    return f"{attack[0]} {attack[3]}"


@pytest.fixture(autouse=True)
def _declared(declare: Callable[..., None]) -> None:
    declare(read_only=["/srv/ro"], writable=["/srv/rw"], volumes={"sets": "/srv/sets"})


@pytest.fixture
def ours(settings: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Put our own folder where an attack means it."""

    def put(asked: dict[str, Any]) -> dict[str, Any]:
        if "{data}" not in str(asked):
            return asked
        [one] = asked["volumes"]
        source = one["source"].format(data=settings.DATA_ROOT)
        return {"volumes": [{**one, "source": source}]}

    return put


@pytest.mark.parametrize("attack", [*BOTH, *ASKED_ONLY], ids=name)
def test_the_api_refuses(
    api: Any, alice: User, attack: Attack, ours: Any, settings: Any
) -> None:
    settings.RUNNER = "docker"
    _, asked, code, _ = attack
    body = {"image": IMAGE, "gpu_count": 0, **ours(asked)}
    answer = api(alice).post(JOBS, body)
    assert answer.status_code == 400, answer.json()
    told = answer.json()
    codes = {told["code"], *(error["code"] for error in told.get("errors", []))}
    assert code in codes, told
    assert not Job.objects.exists()


@pytest.mark.parametrize("attack", BOTH, ids=name)
def test_the_node_refuses_what_came_past_the_api(
    runner: FakeRunner, gpu: Any, attack: Attack, ours: Any
) -> None:
    attempt = make_reserved()
    Job.objects.filter(pk=attempt.job_id).update(**ours(attack[1]))
    launch(str(attempt.pk))
    attempt = Attempt.objects.select_related("job").get(pk=attempt.pk)
    assert (attempt.job.status, attempt.job.reason) == ("failed", "policy_denied")
    assert attempt.job.reason_text
    assert runner.containers == {}
    assert not holds(attempt)


def test_there_is_nothing_wrong_with_what_is_allowed(
    runner: FakeRunner, gpu: Any, api: Any, alice: User, settings: Any
) -> None:
    """Else the tests above would show nothing."""
    settings.RUNNER = "docker"
    fine = {**volume("/srv/rw/a", mode="rw"), **env(NVIDIA_TF32_OVERRIDE="0")}
    fine["volumes"] += volume("sets", "/mnt/sets")["volumes"]
    fine["network"] = "none"
    answer = api(alice).post(JOBS, {"image": IMAGE, "gpu_count": 0, **fine})
    assert answer.status_code == 201, answer.json()
    settings.RUNNER = "process"
    attempt = make_reserved()
    Job.objects.filter(pk=attempt.job_id).update(env={"PATH": "/x"})
    launch(str(attempt.pk))
    assert runner.containers


def test_a_process_has_no_network_to_choose(
    api: Any, alice: User, settings: Any
) -> None:
    settings.RUNNER = "process"
    answer = api(alice).post(JOBS, {"image": IMAGE, "gpu_count": 0, "network": "none"})
    assert answer.json()["code"] == "network_not_allowed"
    assert "A process has the host's network" in answer.json()["detail"]
