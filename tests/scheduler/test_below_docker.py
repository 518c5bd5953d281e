"""What a process is a part of, by its cgroups and its command line."""

import pytest

from scheduler.runner.docker.below import in_cgroup, of_shim

ID, OTHER = "0a" * 32, "1b" * 32
V1 = "\n".join(f"{n}:{name}:{{}}" for n, name in enumerate(["pids", "devices"], 2))

CGROUPS = [
    ("version 1, cgroupfs", V1.format(*[f"/docker/{ID}"] * 2), ID),
    ("version 1, under a parent of its own", f"8:pids:/rig/{ID}", ID),
    ("version 2, systemd", f"0::/system.slice/docker-{ID}.scope", ID),
    ("version 2, cgroupfs", f"0::/docker/{ID}", ID),
    ("a group that the container made inside its own", f"0::/docker/{ID}/init", ID),
    (
        "a container in a container: the inner one",
        f"0::/docker/{OTHER}/docker/{ID}",
        ID,
    ),
    ("no container", "0::/user.slice/user-1000.slice/session-3.scope", ""),
    ("a name that is longer than an id", f"0::/{ID}00", ""),
    ("a name that is shorter", f"0::/{ID[1:]}", ""),
    ("a process that has ended", "", ""),
]


@pytest.mark.parametrize(
    ("text", "wanted"), [row[1:] for row in CGROUPS], ids=[row[0] for row in CGROUPS]
)
def test_the_container_of_a_cgroup(text: str, wanted: str) -> None:
    assert in_cgroup(text) == wanted


SHIM = f"/usr/bin/containerd-shim-runc-v2 -namespace moby -id {ID} -address /run/c.sock"
SHIMS = [
    ("Docker's", SHIM, ID),
    ("of an older containerd", SHIM.replace("-runc-v2", ""), ID),
    ("Kubernetes'", SHIM.replace("moby", "k8s.io"), ""),
    ("a plugin of Docker's", SHIM.replace("moby", "plugins.moby"), ""),
    ("the call that starts one", f"{SHIM} start", ""),
    ("the call that tidies up after one", f"{SHIM} -bundle /run/b delete", ""),
    ("another program", SHIM.replace("containerd-shim-runc-v2", "grep"), ""),
    ("an id that is none", SHIM.replace(ID, "my-container"), ""),
    ("no id", SHIM.partition(" -id")[0], ""),
    ("a kernel thread has no words", "", ""),
]


@pytest.mark.parametrize(
    ("line", "wanted"), [row[1:] for row in SHIMS], ids=[row[0] for row in SHIMS]
)
def test_the_container_of_a_shim(line: str, wanted: str) -> None:
    assert of_shim([*line.split(" "), ""]) == wanted
