"""F36: a new version takes over while jobs run: they go on, and nothing starts anew."""

import io
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.gates import Gates
from tests.e2e.stack import ROOT, Person, Stack, until
from tests.rig.daemon import PrivateDaemon
from tests.rig.machine import StandInMachine

pytestmark = pytest.mark.docker

# The version before the queue of tasks was our own: other tables, another cluster.
OLD = "6a903e9"


def check_out(folder: Path) -> Path:
    """The old version; where the history does not reach so far, this one over again."""
    known = subprocess.run(["git", "cat-file", "-e", OLD], cwd=ROOT, check=False)
    revision = "HEAD" if known.returncode else OLD
    tar = subprocess.run(
        ["git", "archive", revision], cwd=ROOT, check=True, capture_output=True
    )
    with tarfile.open(fileobj=io.BytesIO(tar.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture
def stack(
    tmp_path: Path, daemon: PrivateDaemon, machine: StandInMachine, gates: Gates
) -> Iterator[Stack]:
    """Of the old version, running."""

    class Old(Stack):
        root = check_out(tmp_path / "old")

    # The old one has its roots from a variable.
    roots = {"GPUJOBS_VOLUME_ROOTS": str(gates.folder)}
    env = {**daemon.product_env(gates.folder), **roots}
    stack = Old(tmp_path / "stack", env)
    try:
        stack.start()
        yield stack
    finally:
        stack.destroy()


def test_jobs_run_on_while_the_version_changes(
    stack: Stack, gates: Gates, machine: StandInMachine
) -> None:
    ada = stack.person("ada@example.org")
    spec = gates.asks(gpu_count=4, then="seq 100")
    job_id = ada.submit(**spec)
    ada.wait_for(job_id, "running")
    waits = ada.submit(image=spec["image"], command="echo next", gpu_count=1)
    stack.stop()
    stack.root = ROOT
    stack.manage("migrate", "-v0")
    stack.start()
    ada = Person(stack.url, stack.token("ada@example.org"))
    until(lambda: ada.get("/gpus").json()["count"] == 4, "the GPUs to be known")
    assert ada.job(job_id)["status"] == "running"
    gates.open(spec)
    ada.wait_for(job_id, "succeeded")
    assert ada.log(job_id).split() == [str(n).encode() for n in range(1, 101)]
    ada.wait_for(waits, "succeeded")
    assert len(machine.starts()) == 2
    assert ada.get(f"/jobs/{job_id}/attempts").json()["count"] == 1
    stack.manage("verify")
