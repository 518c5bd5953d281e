"""The jobs: a mix by chance, each of which knows the right ways to end."""

import random
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobs.status import Reason
from tests.rig.fixtures import IMAGE
from tests.rig.machine import StandInMachine

MOUNT = "/data/chaos"
SOURCE = Path(__file__).with_name("witness.c")
FLOOD = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What is submitted under `key`, and what must come of it."""

    key: str
    kind: str
    script: str
    ends: frozenset[Reason]
    exit_code: int | None = None
    # It prints "line 1" to this one; who ends it earlier leaves the first of them.
    lines: int = 0
    artifact: str = ""
    cancel_after_s: float | None = None
    asks: dict[str, Any] = field(default_factory=dict)

    @property
    def grace_s(self) -> int:
        return int(self.asks.get("grace_s", 3))

    def spec(self, folder: Path) -> dict[str, Any]:
        lock = "s" if self.asks.get("share") else "x"
        return {
            "image": IMAGE,
            "name": f"{self.kind}-{self.key}",
            "command": [f"{MOUNT}/witness", lock, self.script],
            "volumes": [f"{folder}:{MOUNT}:rw"],
            "grace_s": 3,
            "timeout_s": 900,
            **self.asks,
        }


class WitnessFolder:
    """What every job mounts: the witness, its logs, and a file to lock for each GPU."""

    def __init__(self, folder: Path, machine: StandInMachine) -> None:
        self.folder = folder
        folder.mkdir()
        for path in (folder, *folder.parents[:2]):
            path.chmod(0o755)
        flags = ["-Wall", "-Wextra", "-Werror", "-O1", "-static"]
        program = folder / "witness"
        subprocess.run(["gcc", *flags, "-o", program, SOURCE], check=True)
        for name in ("starts.log", "conflicts.log", *machine.uuids):
            (folder / name).touch()
            (folder / name).chmod(0o666)

    def starts(self) -> list[str]:
        return (self.folder / "starts.log").read_text().splitlines()

    def conflicts(self) -> list[str]:
        return (self.folder / "conflicts.log").read_text().splitlines()


def programs(seed: int, count: int) -> Iterator[Program]:
    """The same for the same seed. Each kind comes early, however few there are."""
    chance = random.Random(f"programs {seed}")
    kinds = [kind for kind, weight in KINDS.items() for _ in range(weight)]
    order: list[Callable[..., dict[str, Any]]] = []
    while len(order) < count:
        chance.shuffle(kinds)
        order += kinds
    for number, kind in enumerate(order[:count]):
        made = kind(chance)
        asks = {**_gpus(chance), **made.pop("asks", {})}
        name = kind.__name__.strip("_")
        yield Program(key=f"{seed}-{number}", kind=name, asks=asks, **made)


def _gpus(chance: random.Random) -> dict[str, Any]:
    count = chance.choice([0, 1, 1, 1, 1, 1, 2])
    if count and chance.random() < 0.55:
        shared = {"share": True, "min_vram_mb": chance.randint(2, 14) * 1024}
        return {"gpu_count": count, **shared}
    return {"gpu_count": count}


def _count(to: int, pause_s: float = 0.0) -> str:
    pause = f"; sleep {pause_s}" if pause_s else ""
    return f"i=0; while [ $i -lt {to} ]; do i=$((i+1)); echo line $i{pause}; done; "


ENDS_WELL = frozenset({Reason.COMPLETED})
CANCELLED = frozenset({Reason.CANCELLED_BY_USER})
TIMED_OUT = frozenset({Reason.TIMED_OUT})
FOR_EVER = 3000


def _works(chance: random.Random) -> dict[str, Any]:
    lines = chance.randint(3, 20)
    word = f"{chance.getrandbits(64):x}"
    left = f"echo {word} > $GPUJOBS_ARTIFACTS/result"
    script = _count(lines, chance.choice([0.02, 0.1, 0.3])) + left
    return {
        "script": script,
        "ends": ENDS_WELL,
        "exit_code": 0,
        "lines": lines,
        "artifact": word,
    }


def _floods(chance: random.Random) -> dict[str, Any]:
    script = f"seq 1 {FLOOD} | sed 's/^/line /'"
    return {"script": script, "ends": ENDS_WELL, "exit_code": 0, "lines": FLOOD}


def _short(chance: random.Random) -> dict[str, Any]:
    return {"script": "true", "ends": ENDS_WELL, "exit_code": 0}


def _fails(chance: random.Random) -> dict[str, Any]:
    lines = chance.randint(1, 5)
    script = f"{_count(lines, 0.1)}exit 3"
    ends = frozenset({Reason.NONZERO_EXIT})
    return {"script": script, "ends": ends, "exit_code": 3, "lines": lines}


def _obeys(chance: random.Random) -> dict[str, Any]:
    """Exits 0 when it is told to end: a success only if it came to its last line."""
    lines = chance.randint(5, 40)
    script = f"trap 'exit 0' TERM; {_count(lines, 0.2)}"
    return {"script": script, "ends": ENDS_WELL, "exit_code": 0, "lines": lines}


def _obeys_when_late(chance: random.Random) -> dict[str, Any]:
    script = f"trap 'exit 0' TERM; {_count(FOR_EVER, 0.2)}"
    asks = {"timeout_s": chance.randint(1, 4)}
    return {"script": script, "ends": TIMED_OUT, "lines": FOR_EVER, "asks": asks}


def _overruns(chance: random.Random) -> dict[str, Any]:
    asks = {"timeout_s": chance.randint(1, 4)}
    return {"script": f"sleep {FOR_EVER}", "ends": TIMED_OUT, "asks": asks}


def _is_cancelled(chance: random.Random) -> dict[str, Any]:
    return {
        "script": f"trap 'exit 0' TERM; {_count(FOR_EVER, 0.2)}",
        "ends": CANCELLED,
        "lines": FOR_EVER,
        "cancel_after_s": _when(chance),
    }


def _may_be_cancelled(chance: random.Random) -> dict[str, Any]:
    """About when it ends by itself: either way is right."""
    lines = chance.randint(2, 10)
    return {
        "script": _count(lines, 0.2),
        "ends": CANCELLED | ENDS_WELL,
        "lines": lines,
        "cancel_after_s": _when(chance),
    }


def _ignores_term(chance: random.Random) -> dict[str, Any]:
    cancelled = chance.random() < 0.5
    asks = {"grace_s": 1, **({} if cancelled else {"timeout_s": 2})}
    return {
        "script": f"trap '' TERM; {_count(FOR_EVER, 0.2)}",
        "ends": CANCELLED if cancelled else TIMED_OUT,
        "lines": FOR_EVER,
        "cancel_after_s": _when(chance) if cancelled else None,
        "asks": asks,
    }


def _when(chance: random.Random) -> float:
    """At once, while it is queued or starting, or once it runs."""
    return chance.choice([0.0, chance.uniform(0, 2), chance.uniform(0, 12)])


KINDS: dict[Callable[[random.Random], dict[str, Any]], int] = {
    _works: 6,
    _short: 3,
    _obeys: 3,
    _floods: 1,
    _fails: 3,
    _obeys_when_late: 1,
    _overruns: 1,
    _is_cancelled: 2,
    _may_be_cancelled: 2,
    _ignores_term: 2,
}
