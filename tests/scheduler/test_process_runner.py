"""What the contract of runners does not reach: processes that die at the wrong time."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from scheduler.runner import process
from scheduler.runner.base import ContainerState
from scheduler.runner.process import ProcessRunner

NAME = "gpujob-a-1"


@pytest.fixture
def runner(tmp_path: Path) -> ProcessRunner:
    return ProcessRunner(tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a process that was launched and whose leader is this very process."""
    folder = tmp_path / "processes" / NAME
    folder.mkdir(parents=True)
    (folder / "spec.json").write_text(json.dumps({"nonce": "n"}))
    (folder / "output").touch()
    (folder / "exit").touch()
    born = process.born(os.getpid())
    (folder / "pid").write_text(json.dumps({"pid": os.getpid(), "born": born}))
    return folder


def test_a_leader_that_lives_runs(runner: ProcessRunner, folder: Path) -> None:
    assert runner.observe(NAME)[0].state is ContainerState.RUNNING


def test_one_that_died_before_its_birth_was_read_has_ended(
    runner: ProcessRunner, folder: Path
) -> None:
    gone = subprocess.Popen(["/bin/true"])
    gone.wait()
    (folder / "pid").write_text(json.dumps({"pid": gone.pid, "born": ""}))
    (found,) = runner.observe(NAME)
    assert (found.state, found.exit_code) == (ContainerState.EXITED, None)
    runner.stop(NAME, force=True)
    runner.remove(NAME)
    assert runner.observe(NAME) == []


def test_one_that_another_process_removes_meanwhile_is_not_there(
    runner: ProcessRunner, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat = Path.stat

    def gone(path: Path, **options: bool) -> os.stat_result:
        if path == folder / "pid":
            monkeypatch.setattr(Path, "stat", stat)
            shutil.rmtree(folder)
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", gone)
    assert runner.observe() == []


@pytest.mark.parametrize("text", ["", "x", "-1\n", "1 x"])
def test_an_exit_code_that_was_not_written_whole_is_unknown(
    runner: ProcessRunner, folder: Path, text: str
) -> None:
    (folder / "pid").write_text(json.dumps({"pid": 2**22 + 1, "born": "1"}))
    (folder / "exit").write_text(text)
    (found,) = runner.observe(NAME)
    assert (found.state, found.exit_code) == (ContainerState.EXITED, None)
