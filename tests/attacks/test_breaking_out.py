"""T20-T33: what a job may do while it runs, on a real daemon, by what it finds itself."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.stack import Person, Stack, running, until
from tests.rig.daemon import PrivateDaemon
from tests.rig.fixtures import IMAGE
from tests.rig.machine import StandInMachine

pytestmark = pytest.mark.docker

# What needs a right that no job has (T28, T29). Each says so if it did it all the same.
TRIED = {
    "mount": "mount -t tmpfs none /mnt",
    "mount again, to be written": "mount -o remount,rw /sys",
    "a namespace": "unshare -m true",
    "another root": "chroot / true",
    "a device": "mknod /tmp/nvidia0 c 195 0",
    "the kernel's log": "dmesg",
    "a setting of the kernel": "echo 1 > /proc/sys/kernel/panic",
    "what the kernel runs": "echo /x > /sys/kernel/uevent_helper",
    "a higher priority": "nice -n -5 true 2>&1 | grep -q . && false",
    "another user": "setuidgid root true",
    "a file of root's": "echo x > /etc/passwd",
    "the host's name": "hostname evil",
    # It ends well although it could not.
    "the clock": "date -s 2000-01-01; [ $(date +%Y) = 2000 ]",
    "to end all": "reboot -f",
}


@pytest.fixture(scope="module")
def stack(
    tmp_path_factory: pytest.TempPathFactory,
    daemon: PrivateDaemon,
    session_machine: StandInMachine,
) -> Iterator[Stack]:
    session_machine.reset()
    with running(tmp_path_factory.mktemp("stack"), daemon.product_env()) as stack:
        yield stack


@pytest.fixture(scope="module")
def ada(stack: Stack) -> Person:
    person = stack.person("ada@example.org")
    until(lambda: person.get("/gpus").json()["count"] == 4, "the GPUs to be known")
    return person


def submit(ada: Person, command: str, **fields: Any) -> str:
    return ada.submit(**{"image": IMAGE, "command": command, "gpu_count": 0, **fields})


def said(ada: Person, command: str, **fields: Any) -> list[str]:
    """The lines of a job that ends well."""
    job_id = submit(ada, command, **fields)
    ada.wait_for(job_id, "succeeded")
    return ada.log(job_id).decode().splitlines()


def is_up(ada: Person, command: str, **fields: Any) -> str:
    job_id = submit(ada, f"{command} & echo up; wait", **fields)
    until(lambda: ada.log(job_id) == b"up\n", "it to be up")
    return job_id


def test_a_list_is_no_line_of_a_shell(ada: Person) -> None:
    """T14."""
    words = ["$(id)", "`id`", "; id", "&& id", "a\nb", "-n", "'\""]
    job_id = ada.submit(image=IMAGE, command=["echo", *words], gpu_count=0)
    ada.wait_for(job_id, "succeeded")
    assert ada.log(job_id).decode() == " ".join(words) + "\n"


def test_nothing_that_needs_a_right_is_done(ada: Person) -> None:
    tries = [f'({how}) >/dev/null 2>&1 && echo "{what}"' for what, how in TRIED.items()]
    assert said(ada, "; ".join([*tries, "echo over"])) == ["over"]


def test_it_finds_its_own_processes_and_no_other(ada: Person) -> None:
    """T28: also not by the way through /proc."""
    lines = said(
        ada,
        "ls -d /proc/[0-9]* | wc -l; ls /proc/1/root/dev | grep -c nvidia; "
        "ls /dev | grep -c nvidia; echo over",
    )
    assert int(lines[0]) < 10
    assert lines[1:] in (["0", "0", "over"], ["0", "over"])


def test_the_kernel_bounds_its_processes(ada: Person) -> None:
    """T20: the limit as it is in force; a bomb of so many would only warm the room."""
    assert said(ada, "cat /sys/fs/cgroup/pids/pids.max") == ["4096"]


class TestMemory:
    """T21, T22. Swap is no way out: it has none."""

    BOMB = "dd if=/dev/zero of=/dev/null bs=300M count=1"

    def end(self, ada: Person, command: str) -> tuple[str, int, bool]:
        job_id = submit(ada, command, memory_mb=64, shm_mb=64)
        job = ada.wait_for(job_id, "failed")
        [attempt] = ada.get(f"/jobs/{job_id}/attempts").json()["results"]
        is_oom = attempt["evidence"]["oom_killed"]
        return job["reason"], job["exit_code"], is_oom

    def test_one_that_takes_too_much_is_ended_and_told(self, ada: Person) -> None:
        assert self.end(ada, f"exec {self.BOMB}") == ("memory_oom", 137, True)

    def test_shared_memory_is_memory(self, ada: Person) -> None:
        fill = "exec dd if=/dev/zero of=/dev/shm/x bs=1M count=300"
        reason, _, _ = self.end(ada, fill)
        # It has as much as all its memory: one of the two limits is met first.
        assert reason in ("memory_oom", "nonzero_exit")

    def test_a_child_that_is_killed_is_not_the_jobs_end(self, ada: Person) -> None:
        assert self.end(ada, f"{self.BOMB}; exit 7") == ("nonzero_exit", 7, True)


class TestCancel:
    """T23, T24."""

    @pytest.mark.parametrize("trap", ["", "exit 0", "sleep 600"])
    def test_what_it_makes_of_sigterm_is_its_own_affair(
        self, ada: Person, trap: str
    ) -> None:
        command = f"trap '{trap}' TERM; echo up; while :; do sleep 0.1; done"
        job_id = submit(ada, command, grace_s=1)
        until(lambda: ada.log(job_id) == b"up\n", "the trap to be set")
        assert ada.post(f"/jobs/{job_id}/cancel").status_code == 200
        job = ada.wait_for(job_id, "cancelled")
        assert job["reason"] == "cancelled_by_user"

    def test_a_program_without_a_handler_ends_at_once(self, ada: Person) -> None:
        """Alone as the first process the kernel would keep SIGTERM from it."""
        job_id = is_up(ada, "sleep 600", grace_s=120)
        assert ada.post(f"/jobs/{job_id}/cancel").status_code == 200
        ada.wait_for(job_id, "cancelled")
        [attempt] = ada.get(f"/jobs/{job_id}/attempts").json()["results"]
        # By SIGTERM, and not by SIGKILL when the grace was over.
        assert attempt["exit_code"] == 143


def test_what_it_leaves_behind_ends_with_it(ada: Person) -> None:
    """T31: and its GPU is free."""
    job_id = submit(ada, "setsid sleep 65431 & sleep 0.2; exit 0", gpu_count=4)
    ada.wait_for(job_id, "succeeded")

    def left() -> list[str]:
        pids = filter(str.isdigit, os.listdir("/proc"))
        return [pid for pid in pids if "65431" in command_line(pid)]

    until(lambda: not left(), "its processes to be gone")
    assert said(ada, "echo next", gpu_count=4) == ["next"]


def command_line(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def test_it_runs_no_longer_than_its_limit_whatever_it_does(ada: Person) -> None:
    """T32: it forks when it is told to end."""
    command = "trap 'sleep 600 & sleep 600' TERM; while :; do sleep 0.1; done"
    job_id = submit(ada, command, timeout_s=1, grace_s=1)
    assert ada.wait_for(job_id, "failed")["reason"] == "timed_out"


def test_it_sees_nothing_of_another_job(ada: Person) -> None:
    """T30, T33: with no network there is none but its own loop."""
    write = "echo s > /dev/shm/secret; echo s > /tmp/secret; echo s > $HOME/secret; "
    other = is_up(ada, f"{write} sleep 600")
    try:
        look = "ls -A /dev/shm /tmp $HOME | grep secret; ls /sys/class/net; echo over"
        assert said(ada, look) == ["lo", "over"]
    finally:
        ada.post(f"/jobs/{other}/cancel")
        ada.wait_for(other, "cancelled")
