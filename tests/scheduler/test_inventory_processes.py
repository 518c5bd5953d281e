"""Whose a process is, asked of real processes of this machine."""

import getpass
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from scheduler.inventory.processes import Person, look_up

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may be another user")
# It says that it runs, and ends with its stdin.
WAIT = "import sys; print(flush=True); sys.stdin.read()"


@contextmanager
def running(*command: str, **options: Any) -> Iterator[int]:
    """A process that has started and stays until it is left."""
    with subprocess.Popen(
        command or [sys.executable, "-c", WAIT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        **options,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        yield process.pid
        process.kill()


def test_our_own_has_our_name() -> None:
    found = look_up(os.getpid())
    assert found.user == getpass.getuser()
    assert found.process == Path("/proc/self/comm").read_text().strip()


@as_root
def test_another_persons_is_theirs() -> None:
    with running("/bin/sh", "-c", "echo; read line", user=NOBODY) as pid:
        assert look_up(pid) == Person(user="nobody", process="sh")


@as_root
def test_a_user_that_this_host_does_not_know_is_a_number() -> None:
    with running("/bin/sh", "-c", "echo; read line", user=54321) as pid:
        assert look_up(pid).user == "54321"


@as_root
def test_it_is_who_started_it_whatever_rights_it_took() -> None:
    script = f"import os; os.seteuid({NOBODY}); {WAIT}"
    with running(sys.executable, "-c", script) as pid:
        assert look_up(pid).user == "root"


def test_its_arguments_are_never_told() -> None:
    with running(sys.executable, "-c", WAIT, "--password=hunter2") as pid:
        assert "hunter2" not in str(look_up(pid))
        assert look_up(pid).process.startswith("python")


def named(tmp_path: Path, comm: bytes, cmdline: bytes) -> str:
    """As /proc would tell it of process 7."""
    folder = tmp_path / "7"
    folder.mkdir()
    (folder / "comm").write_bytes(comm)
    (folder / "cmdline").write_bytes(cmdline)
    return look_up(7, tmp_path).process


@pytest.mark.parametrize(
    ("comm", "cmdline", "name"),
    [
        (b"python3\n", b"/usr/bin/other\0train.py\0", "python3"),
        (b"\n", b"/opt/lab/bin/train\0--key=hunter2\0", "train"),
        # A program may write its arguments into the first word.
        (b"\n", b"/opt/serve --key=hunter2/x\0", "serve"),
        (b"\n", b"", ""),
        (b"\n", b"\0\0", ""),
        (b"a\x1b[2Jb\n", b"", "a\N{REPLACEMENT CHARACTER}[2Jb"),
        (b"tr\xffin\n", b"", "tr\N{REPLACEMENT CHARACTER}in"),
        (b"x" * 500, b"", "x" * 64),
    ],
)
def test_what_it_is_called(
    tmp_path: Path, comm: bytes, cmdline: bytes, name: str
) -> None:
    assert named(tmp_path, comm, cmdline) == name


def test_one_that_has_ended_is_nobodys_and_no_error() -> None:
    with running() as pid:
        pass
    assert look_up(pid) == Person()


def test_one_that_ended_and_was_not_waited_for_is_its_owners_still() -> None:
    with subprocess.Popen(["/bin/true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert look_up(process.pid) == Person(user=getpass.getuser(), process="true")


@pytest.mark.parametrize("pid", [0, -1, 2**22 + 1, 2**40])
def test_a_number_that_is_no_process_here_is_no_error(pid: int) -> None:
    assert look_up(pid) == Person()


def test_a_proc_that_can_not_be_read_is_no_error(tmp_path: Path) -> None:
    folder = tmp_path / "7"
    # Opened, they fail as files of a process do that vanishes meanwhile.
    for name in ("status", "comm", "cmdline"):
        (folder / name).mkdir(parents=True)
    assert look_up(7, tmp_path) == Person()


@pytest.mark.parametrize("status", [b"", b"Uid:\n", b"Name:\tx\n", b"\xff\xfe"])
def test_a_status_that_names_nobody_is_no_error(tmp_path: Path, status: bytes) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "status").write_bytes(status)
    assert look_up(7, tmp_path).user == ""
