"""After the last kill: wait until all is quiet, then collect what there is to see."""

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep

import psycopg

from jobs.status import TERMINAL
from tests.chaos.actors import Crowd
from tests.chaos.evidence import Evidence, Left, Start
from tests.chaos.kills import Killer
from tests.chaos.machine import Machine
from tests.chaos.rows import Rows
from tests.chaos.watcher import Watcher

QUIET_S = 240.0
TIDY_S = 60.0
ERROR = re.compile(r"^Traceback \(most recent.*\n(?:[ \t].*\n|\n)*(.*)", re.MULTILINE)
VERIFY = Path("scheduler/management/commands/verify.py")


def has_ended(machine: Machine, jobs: int) -> bool:
    """So many jobs are there, and all of them came to their end."""
    query = "SELECT status, count(*) FROM jobs_job GROUP BY status"
    with psycopg.connect(machine.product.env["DATABASE_URL"]) as rows:
        counts: dict[str, int] = dict(rows.execute(query).fetchall())
    return sum(counts.values()) >= jobs and set(counts) <= set(TERMINAL)


def wait(condition: Callable[[], object], within_s: float) -> None:
    """What has not come by then is told of by the invariants."""
    until = monotonic() + within_s
    while not condition() and monotonic() < until:
        sleep(0.2)


def gather(
    machine: Machine, crowd: Crowd, killer: Killer, watcher: Watcher
) -> Evidence:
    wait(lambda: has_ended(machine, len(crowd.ledger.submitted)), QUIET_S)
    wait(lambda: not left(machine), TIDY_S)
    path = machine.product.folder / "rows.json"
    machine.product.shell(f"from tests.chaos.rows import dump; dump({str(path)!r})")
    rows, ledger = Rows.read(path), crowd.ledger
    logs, artifacts = _files(machine, crowd, rows)
    web = (machine.product.folder / "web.log").read_text(errors="replace")
    return Evidence(
        programs=ledger.submitted,
        acknowledged=ledger.acknowledged,
        cancels=ledger.cancels,
        answers=ledger.answers,
        refused=ledger.refused,
        rows=rows,
        starts=[Start.parse(line) for line in machine.witness.starts()],
        conflicts=machine.witness.conflicts(),
        gpu_starts=machine.gpus.starts(),
        containers=watcher.containers,
        doubles=watcher.doubles,
        logs=logs,
        artifacts=artifacts,
        left=left(machine),
        kills=killer.kills,
        kill_failures=killer.failures,
        web_errors=errors(web),
        verified=_verify(machine),
    )


def errors(log: str) -> Counter[str]:
    """The last lines of the tracebacks in a log."""
    return Counter(match.group(1).strip() for match in ERROR.finditer(log))


def left(machine: Machine) -> Left:
    daemon, product = machine.daemon, machine.product
    client = daemon.client()
    containers = [c["Names"][0] for c in client.api.containers(all=True)]
    client.close()
    commands = {pid: _command(pid) for pid in daemon.leftovers()}
    shims = [f"{pid} {text}" for pid, text in commands.items() if "shim" in text]
    work = Path(product.env["GPUJOBS_RUN_ROOT"], "work")
    return Left(
        containers=containers,
        container_processes=[f"{p} {_command(p)}" for p in daemon.container_pids()],
        shims=shims,
        processes=[f"{pid} {_command(pid)}" for pid in product.strays()],
        work_folders=[path.name for path in work.glob("*")],
    )


def _command(pid: int) -> str:
    try:
        told = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    return told.replace(b"\0", b" ").decode(errors="replace").strip()[:200]


def _files(
    machine: Machine, crowd: Crowd, rows: Rows
) -> tuple[dict[str, bytes], dict[str, str]]:
    """Through the API, as their owners."""
    logs, artifacts = {}, {}
    for job in rows.jobs:
        ledger, key = crowd.ledger, job.idempotency_key
        if key not in ledger.submitted:
            continue
        client = crowd.client(ledger.owners[key])
        log = client.ask("GET", f"/jobs/{job.id}/logs", download="true")
        logs[job.id] = log.content if log is not None else b"no answer"
        if ledger.submitted[key].artifact and job.status == "succeeded":
            result = client.ask("GET", f"/jobs/{job.id}/artifact/download")
            artifacts[job.id] = result.text if result is not None else "no answer"
    return logs, artifacts


def _verify(machine: Machine) -> str:
    if not VERIFY.exists():
        return ""
    try:
        machine.product.manage("verify")
    except AssertionError as told:
        return str(told)
    return ""
