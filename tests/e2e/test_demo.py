"""`make demo`, as a stranger runs it: in a copy of the tree, from nothing."""

import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.e2e.stack import ROOT, until
from tests.rig.daemon import PrivateDaemon

NOWHERE = "unix:///nonexistent/docker.sock"


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Path]:
    """A copy of what git keeps (and would keep), with no virtual environment."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    ).stdout.decode()
    tree = tmp_path / "tree"
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    yield tree
    shutil.rmtree(tree)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def demo(tree: Path, docker_url: str, *variables: str) -> subprocess.Popen[str]:
    """With a clean environment: nothing set but what a new shell has."""
    kept = ("PATH", "HOME", "PIP_INDEX_URL", "PIP_CONFIG_FILE", "LANG")
    env = {name: os.environ[name] for name in kept if name in os.environ}
    return subprocess.Popen(
        ["make", "demo", f"PYTHON={sys.executable}", *variables],
        cwd=tree,
        # The last three are another installation's: a demo must not touch it.
        env={
            **env,
            "DOCKER_HOST": docker_url,
            "DATABASE_URL": f"sqlite:///{tree}/of-another.db",
            "GPUJOBS_DATA_ROOT": f"{tree}/of-another",
            "GPUJOBS_RUNNER": "none",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def finished(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output
    return output


def test_from_nothing_and_with_no_docker_it_shows_three_jobs(
    tree: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    port = free_port()
    output = finished(demo(tree, NOWHERE, "ONCE=1", f"PORT={port}", f"DATA={data}"))
    assert "There is no Docker daemon" in output
    assert "jobs run as plain processes with no isolation." in output
    assert "Job 3 waits: resources. Needs 1 GPU" in output
    assert "fails with exit code 3: failed. Exit code 3." in output
    assert "All went as they should." in output
    written = data / "demo.json"
    assert stat.S_IMODE(written.stat().st_mode) == 0o600
    facts = json.loads(written.read_text())
    assert (facts["runner"], facts["inventory"]) == ("process", "simulated")
    assert facts["base_url"] == f"http://127.0.0.1:{port}"
    # All it keeps lies in DATA, and nothing listens any more.
    assert not [p.name for p in tree.iterdir() if p.name in ("var", "of-another.db")]
    for path in (data / "gpujobs.db", data / "logs", data / "secret_key"):
        assert not path.stat().st_mode & 0o007
    with pytest.raises(requests.ConnectionError):
        requests.get(facts["base_url"], timeout=5)


@pytest.mark.docker
def test_with_docker_it_uses_containers_and_serves_until_ctrl_c(
    tree: Path, tmp_path: Path, daemon: PrivateDaemon
) -> None:
    data = tmp_path / "data"
    port = free_port()
    # The environment is the one at hand: how it is made is shown above.
    variables = [f"PORT={port}", f"DATA={data}", f"VENV={sys.prefix}"]
    process = demo(tree, daemon.base_url, *variables)
    try:
        assert process.stdout is not None
        told = []
        for line in process.stdout:
            told.append(line)
            if line.startswith("Serving"):
                break
        output = "".join(told)
        assert "Jobs run in Docker containers." in output, output
        assert "All went as they should." in output
        facts = json.loads((data / "demo.json").read_text())
        assert facts["runner"] == "docker"
        answer = requests.post(
            f"{facts['base_url']}/api/v1/auth/login", json=facts["user"], timeout=30
        )
        token = answer.json()["access_token"]
        until(lambda: leave_one_running(facts, token), "a job to go on from demo.json")
        job = follow_the_readme(data / "demo.json")
        assert job["image"] == facts["image"]
    finally:
        os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=120)
    assert "Stopping." in output
    client = daemon.client()
    names = [container.name for container in client.containers.list(all=True)]
    client.close()
    assert not [name for name in names if name.startswith("gpujob-")]


def follow_the_readme(facts: Path) -> dict[str, Any]:
    """Its example, word for word but for the folder; the job that it shows."""
    (example,) = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    script = example.replace("var/demo/demo.json", str(facts))
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    decoded, _ = json.JSONDecoder().raw_decode(done.stdout)
    return dict(decoded)


def leave_one_running(facts: dict[str, str], token: str) -> bool:
    answer = requests.post(
        f"{facts['base_url']}/api/v1/jobs",
        json={"image": facts["image"], "command": "sleep 600", "gpu_count": 1},
        headers={"Authorization": f"Bearer {token}"},
        timeout=30,
    )
    return answer.status_code == 201
