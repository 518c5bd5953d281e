"""A child process that may be given up when it does not answer in time."""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from scheduler.inventory.base import InventoryFault, InventoryUnavailable

ROOT = Path(__file__).resolve().parents[2]
# Starting Python on a busy host is not the driver's fault: it has its own allowance.
START_S = 30.0
END_S = 1.0

Row = dict[str, Any]


class Child:
    """A module of ours run as a program that answers a line with a line of JSON.

    The program first writes one line to say that it has started. Whoever gets
    InventoryUnavailable from a question kills the child and makes another.
    """

    def __init__(self, module: str, env: Mapping[str, str] | None) -> None:
        env = os.environ if env is None else env
        path = os.pathsep.join(filter(None, [str(ROOT), env.get("PYTHONPATH")]))
        self._process = subprocess.Popen(  # noqa: S603 (no word of it is input)
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            cwd=ROOT,
            env={**env, "PYTHONPATH": path},
            # Ctrl-C in a terminal is for the supervisor, which then closes this.
            process_group=0,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._questions = self._process.stdin
        self._answers = self._process.stdout
        self._unread = b""
        self._is_started = False

    def ask(self, question: str, deadline_s: float) -> list[Row]:
        if not self._is_started:
            self._line(START_S)
            self._is_started = True
        try:
            self._questions.write(f"{question}\n".encode())
        except BrokenPipeError:
            raise self._gone() from None
        line = self._line(deadline_s)
        try:
            reply = json.loads(line)
        except ValueError:
            detail = f"the answer is no JSON: {line[:80]!r}"
            raise InventoryUnavailable(InventoryFault.DRIVER_FAULT, detail) from None
        if "fault" in reply:
            raise InventoryUnavailable(InventoryFault(reply["fault"]), reply["detail"])
        rows: list[Row] = reply["rows"]
        return rows

    def _line(self, within_s: float) -> bytes:
        poll = select.poll()
        poll.register(self._answers, select.POLLIN)
        until = time.monotonic() + within_s
        while b"\n" not in self._unread:
            left_s = until - time.monotonic()
            if left_s <= 0 or not poll.poll(left_s * 1000):
                detail = f"no answer within {within_s:g} s"
                raise InventoryUnavailable(InventoryFault.TIMED_OUT, detail)
            chunk = self._answers.read(65536)
            if not chunk:
                raise self._gone()
            self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _gone(self) -> InventoryUnavailable:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        detail = f"the process that asked it ended with code {self._process.returncode}"
        return InventoryUnavailable(InventoryFault.DRIVER_FAULT, detail)

    def close(self) -> None:
        self._questions.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        self.kill()

    def kill(self) -> None:
        self._process.kill()
        self._questions.close()
        self._answers.close()
        # In uninterruptible sleep it dies only when the driver lets go of it.
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
