"""Logs come whole and once through whatever is killed, and a flood fills no disk.

On containers of a real daemon with live-restore.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
import requests

from tests.e2e.gates import Gates
from tests.e2e.stack import PASSWORD, Person, Stack, running, until
from tests.rig.daemon import PrivateDaemon
from tests.rig.fixtures import IMAGE, running_daemon
from tests.rig.machine import StandInMachine

pytestmark = pytest.mark.docker

CAP_MB = 2
CAP = CAP_MB * 2**20
MOST_MEMORY = 300 * 2**20
FLOOD_MB = 200  # 1000 says the same, and takes five times as long
LINES, MANY = 20_000, 80_000
NUMBERED = [f"step {number} of all" for number in range(1, LINES + 1)]


def counts(lines: int, pause_s: float) -> str:
    """A program that prints NUMBERED, or more like it, a hundred at a time."""
    return f"""
        for part in $(seq 0 {lines // 100 - 1}); do
            seq $((part * 100 + 1)) $((part * 100 + 100)) | sed 's/.*/step & of all/'
            sleep {pause_s}
        done
    """


FLOOD = f"""
echo first line
yes 'flood flood flood flood flood flood flood' | head -c {FLOOD_MB}000000
echo; echo last line
"""


@pytest.fixture(scope="module")
def daemon(session_machine: StandInMachine) -> Iterator[PrivateDaemon]:
    yield from running_daemon(PrivateDaemon(session_machine, ["--live-restore"]))


@pytest.fixture(scope="module")
def failpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("failpoints")


@pytest.fixture(scope="module")
def stack(
    tmp_path_factory: pytest.TempPathFactory,
    daemon: PrivateDaemon,
    session_machine: StandInMachine,
    gates: Gates,
    failpoints: Path,
) -> Iterator[Stack]:
    session_machine.reset()
    env = {
        **daemon.product_env(gates.folder),
        "GPUJOBS_LOG_CAP_MB": str(CAP_MB),
        "GPUJOBS_FAILPOINTS": str(failpoints),
    }
    with running(tmp_path_factory.mktemp("stack"), env) as stack:
        yield stack


def kill_supervisor(stack: Stack, daemon: PrivateDaemon) -> None:
    stack.kill("supervisor")
    stack.spawn("supervisor")


def kill_daemon(stack: Stack, daemon: PrivateDaemon) -> None:
    daemon.kill()
    daemon.start()


@pytest.mark.parametrize("kill", [kill_supervisor, kill_daemon])
def test_every_line_comes_once_and_in_its_order(
    stack: Stack,
    daemon: PrivateDaemon,
    ada: Person,
    failpoints: Path,
    kill: Callable[[Stack, PrivateDaemon], None],
) -> None:
    """F13, F19. And the worker that collects is killed with the log just written.

    A dockerd that is killed takes the lines along that it has read and not written:
    what there is comes once and in its order all the same.
    """
    (failpoints / "collect.log_closed").write_text("SIGKILL")
    job_id = ada.submit(image=IMAGE, command=counts(LINES, 0.05))
    size = 0
    for _ in range(3):
        size = until(partial(grown, ada, job_id, size), "more lines")
        kill(stack, daemon)
    ada.wait_for(job_id, "succeeded")
    lines = whole_log(ada, job_id).decode().splitlines()
    if kill is kill_supervisor:
        assert lines == NUMBERED
    rest = iter(NUMBERED)
    assert [line for line in lines if line not in rest] == []
    assert (lines[0], lines[-1]) == (NUMBERED[0], NUMBERED[-1])
    assert len(lines) > LINES // 2
    assert not (failpoints / "collect.log_closed").exists()


def test_a_flood_fills_no_disk_and_no_memory(
    stack: Stack, daemon: PrivateDaemon, ada: Person
) -> None:
    with watched(stack, daemon) as seen:
        job_id = ada.submit(image=IMAGE, command=FLOOD)
        ada.wait_for(job_id, "succeeded")
    log = whole_log(ada, job_id)
    assert log.endswith(b"\nlast line\n")
    assert b"[gpujobs: some bytes may be lost here]" in log
    assert CAP < max(seen["disk"]) <= 3 * CAP
    assert max(seen["memory"]) < MOST_MEMORY


def test_a_reader_who_follows_misses_nothing_of_a_log_below_the_cap(
    stack: Stack, ada: Person
) -> None:
    """Also where Docker has thrown away the beginning of it."""
    job_id = ada.submit(image=IMAGE, command=counts(MANY, 0.005))
    parts, offset, is_complete = [], 0, False
    while not is_complete:
        answer = ada.get(f"/jobs/{job_id}/logs", offset=offset, limit=2**20)
        parts.append(answer.content)
        offset = int(answer.headers["X-Log-Offset"])
        is_complete = answer.headers["X-Log-Complete"] == "true"
        time.sleep(0.2)  # as any reader does
    got = b"".join(parts).decode().splitlines()
    numbers = [int(line.split()[1]) for line in got]
    assert all(after == before + 1 for before, after in pairwise(numbers))
    assert len(got) == MANY
    assert CAP / 2 < len(b"".join(parts)) < CAP


NASTY = r"""
printf 'broken \377\376 bytes\n'
printf 'half \303'; sleep 0.3; printf '\251 a character\n'
"""
NASTIER = r"""
head -c 5000000 /dev/zero | tr '\0' x; echo
for n in $(seq 100); do printf '\r%s %%' $n; done; echo
printf 'nul \000 nul\n<script>alert(1)</script>\n\033[2J\033]0;title\007end\n'
"""


def test_whatever_a_program_writes_breaks_no_reader(
    stack: Stack, ada: Person, gates: Gates
) -> None:
    """T40, T41."""
    spec = gates.asks(then=NASTIER)
    job_id = ada.submit(**{**spec, "command": NASTY + spec["command"]})
    # Else Docker may have thrown it away before anybody looked.
    until(lambda: b"a character\n" in ada.log(job_id), "the head to be followed")
    gates.open(spec)
    ada.wait_for(job_id, "succeeded")
    log = whole_log(ada, job_id)
    head, _, tail = log.partition(b"xxx")
    assert head == b"broken \xff\xfe bytes\nhalf \xc3\xa9 a character\n"
    assert tail.count(b"left out here]") == 1
    assert b"xxx\n\r1 %\r2 %" in tail
    assert b"\r99 %\r100 %\nnul \x00 nul\n<script>" in tail
    parts, offset = [], 0
    while offset < len(log):
        answer = ada.get(f"/jobs/{job_id}/logs", offset=offset, limit=999_983)
        assert answer.status_code == 200
        parts.append(answer.content)
        offset = int(answer.headers["X-Log-Offset"])
    assert b"".join(parts) == log
    page = seen_in_a_browser(stack, f"/jobs/{job_id}/")
    assert "<script>alert(1)" not in page
    assert "<code>&lt;script&gt;alert(1)&lt;/script&gt;</code>" in page
    assert "<code>100 %</code>" in page
    assert not {"\0", "\033", "\007"} & {*page}


def seen_in_a_browser(stack: Stack, path: str) -> str:
    session, login = requests.Session(), f"{stack.url}/login/"
    session.get(login)
    token = session.cookies["csrftoken"]
    person = {"username": "ada@example.org", "password": PASSWORD}
    session.post(login, {**person, "csrfmiddlewaretoken": token})
    page = session.get(stack.url + path)
    assert page.status_code == 200
    return page.text


def grown(ada: Person, job_id: str, size: int) -> int | None:
    answer = ada.get(f"/jobs/{job_id}/logs")
    now = int(answer.headers["X-Log-Size"])
    return now if now > size + 2000 else None


def whole_log(ada: Person, job_id: str) -> bytes:
    answer = ada.get(f"/jobs/{job_id}/logs", download="true")
    assert answer.status_code == 200
    return answer.content


@contextmanager
def watched(stack: Stack, daemon: PrivateDaemon) -> Iterator[dict[str, list[int]]]:
    """The bytes that logs take on the disk, and the supervisor of memory, meanwhile."""
    seen: dict[str, list[int]] = {"disk": [0], "memory": [0]}
    before = disk(stack, daemon)
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(0.05):
            seen["disk"].append(disk(stack, daemon) - before)
            seen["memory"].append(memory(stack.pid("supervisor")))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield seen
    finally:
        is_over.set()
        watcher.join()


def disk(stack: Stack, daemon: PrivateDaemon) -> int:
    folders = stack.data / "logs", daemon.folder / "data/containers"
    total = 0
    for path in (path for folder in folders for path in folder.rglob("*.log*")):
        with suppress(OSError):
            total += path.lstat().st_size
    return total


def memory(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024
