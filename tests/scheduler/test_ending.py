"""From observation to ending: the table. Each row carries its sentence."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from jobs.status import Fault, Reason, Status
from scheduler.ending import Known, judge
from scheduler.runner.base import ContainerState, Observation

STARTED = datetime(2026, 11, 30, 12, tzinfo=UTC)
RAN = Observation(
    name="gpujob-x-1",
    nonce="n",
    container_id="c",
    state=ContainerState.EXITED,
    exit_code=0,
    started_at=STARTED,
    finished_at=STARTED,
)
MADE = replace(RAN, state=ContainerState.CREATED, started_at=None, finished_at=None)


def exited(code: int | None, **fields: object) -> Observation:
    return replace(RAN, exit_code=code, **fields)  # type: ignore[arg-type]


def made(code: int) -> Observation:
    return replace(MADE, exit_code=code)


TABLE = [
    ("exit 0, seen, of a container that ran", exited(0), Known(), Reason.COMPLETED),
    (
        "a container made but never started says 0 too: no success",
        made(0),
        Known(),
        Reason.LAUNCH_FAULT,
    ),
    ("the image lacks the command", made(127), Known(), Reason.COMMAND_NOT_FOUND),
    ("the command may not be executed", made(126), Known(), Reason.NOT_EXECUTABLE),
    ("the GPU hook failed", made(128), Known(), Reason.LAUNCH_FAULT),
    (
        "the init in the container did not find the command",
        exited(127),
        Known(log_tail="[FATAL tini (7)] exec /x failed: No such file"),
        Reason.COMMAND_NOT_FOUND,
    ),
    (
        "the init in the container could not run the command",
        exited(126),
        Known(log_tail="[FATAL tini (7)] exec /x failed: Permission denied"),
        Reason.NOT_EXECUTABLE,
    ),
    (
        "a script of the user's ended with 127",
        exited(127),
        Known(log_tail="sh: x: not found"),
        Reason.NONZERO_EXIT,
    ),
    ("the program failed", exited(3), Known(), Reason.NONZERO_EXIT),
    ("the program crashed", exited(139), Known(), Reason.NONZERO_EXIT),
    (
        "the program ended by TERM that it sent itself",
        exited(143),
        Known(),
        Reason.NONZERO_EXIT,
    ),
    (
        "exit 255 that was seen, with no reboot, is the program's own",
        exited(255),
        Known(),
        Reason.NONZERO_EXIT,
    ),
    (
        "exit 255 that nobody saw is Docker's word for dead, and no news how",
        exited(255),
        Known(is_exit_seen=False),
        Reason.INTERRUPTED,
    ),
    (
        "it was stopped as asked, and nobody saw how it ended",
        exited(255),
        Known(is_exit_seen=False, stop_reason=Reason.TIMED_OUT),
        Reason.TIMED_OUT,
    ),
    (
        "exit 255 after a reboot",
        exited(255),
        Known(boot_changed=True),
        Reason.NODE_LOST,
    ),
    (
        "it trapped the TERM of the shutdown and exited 0: no success",
        exited(0),
        Known(boot_changed=True),
        Reason.NODE_LOST,
    ),
    (
        "the driver lost its GPU, and it failed",
        exited(1),
        Known(gpu_lost=True),
        Reason.GPU_LOST,
    ),
    (
        "the driver lost its GPU, and it was killed",
        exited(137),
        Known(gpu_lost=True),
        Reason.GPU_LOST,
    ),
    (
        "the driver lost its GPU when it had done its work",
        exited(0),
        Known(gpu_lost=True),
        Reason.COMPLETED,
    ),
    (
        "its memory was not enough on a GPU that was lost as well",
        exited(137, oom_killed=True),
        Known(gpu_lost=True),
        Reason.MEMORY_OOM,
    ),
    (
        "the memory limit killed it",
        exited(137, oom_killed=True),
        Known(),
        Reason.MEMORY_OOM,
    ),
    (
        "only a child was killed by the memory limit, and it exited 7",
        exited(7, oom_killed=True),
        Known(),
        Reason.NONZERO_EXIT,
    ),
    (
        "killed, nobody here asked, no memory limit",
        exited(137),
        Known(),
        Reason.KILLED_EXTERNALLY,
    ),
    (
        "CUDA's memory was not enough",
        exited(1),
        Known(log_tail="RuntimeError: CUDA out of memory. Tried"),
        Reason.CUDA_OOM,
    ),
    (
        "the log speaks of CUDA's memory but all went well",
        exited(0),
        Known(log_tail="CUDA out of memory, retrying"),
        Reason.COMPLETED,
    ),
    (
        "Docker stopped it, and it trapped TERM and exited 0: no success",
        exited(0),
        Known(kill_seen=True),
        Reason.INTERRUPTED,
    ),
    (
        "Docker stopped it with KILL",
        exited(137),
        Known(kill_seen=True),
        Reason.INTERRUPTED,
    ),
    ("its container is gone", None, Known(), Reason.CONTAINER_GONE),
    ("it ended and nobody saw how", exited(None), Known(), Reason.UNKNOWN),
    (
        "cancelled, and it exited 0",
        exited(0),
        Known(stop_reason=Reason.CANCELLED_BY_USER),
        Reason.CANCELLED_BY_USER,
    ),
    (
        "cancelled by an operator, killed",
        exited(137),
        Known(stop_reason=Reason.CANCELLED_BY_OPERATOR),
        Reason.CANCELLED_BY_OPERATOR,
    ),
    (
        "its time was over, and it exited 0",
        exited(0),
        Known(stop_reason=Reason.TIMED_OUT),
        Reason.TIMED_OUT,
    ),
    (
        "it had ended well before the cancel was asked for",
        exited(0),
        Known(
            stop_reason=Reason.CANCELLED_BY_USER,
            stop_requested_at=STARTED + timedelta(seconds=5),
        ),
        Reason.COMPLETED,
    ),
    (
        "it ended just as the cancel was asked for: clocks differ, the wish counts",
        exited(0),
        Known(
            stop_reason=Reason.CANCELLED_BY_USER,
            stop_requested_at=STARTED + timedelta(milliseconds=500),
        ),
        Reason.CANCELLED_BY_USER,
    ),
    (
        "our own kill is no interruption",
        exited(137),
        Known(stop_reason=Reason.TIMED_OUT, kill_seen=True),
        Reason.TIMED_OUT,
    ),
    (
        "cancelled before it was created",
        None,
        Known(stop_reason=Reason.CANCELLED_BY_USER),
        Reason.CANCELLED_BY_USER,
    ),
]


@pytest.mark.parametrize(
    ("found", "known", "reason"), [r[1:] for r in TABLE], ids=[r[0] for r in TABLE]
)
def test_it_ends_with(found: Observation | None, known: Known, reason: Reason) -> None:
    assert judge(found, known).reason is reason


def test_the_exit_code_of_what_never_ran_is_not_told_as_the_jobs() -> None:
    assert judge(made(128), Known()).exit_code is None
    assert judge(exited(3), Known()).exit_code == 3


def test_a_signal_is_named() -> None:
    assert "signal SEGV" in judge(exited(139), Known()).text


def test_the_evidence_tells_what_was_seen() -> None:
    found = exited(137, oom_killed=True, error="oops")
    assert judge(found, Known(kill_seen=True)).evidence == {
        "oom_killed": True,
        "kill_seen": True,
        "boot_changed": False,
        "is_exit_seen": True,
        "gpu_lost": False,
        "daemon_error": "oops",
    }


@pytest.mark.parametrize("reason", list(Reason))
def test_each_reason_has_one_status_and_one_fault(reason: Reason) -> None:
    assert reason.status in (Status.SUCCEEDED, Status.FAILED, Status.CANCELLED)
    assert (reason.status is Status.SUCCEEDED) == (reason.fault is Fault.NOBODY)
