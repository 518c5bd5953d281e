"""From what was observed to how an attempt ended: one pure function.

The rows are those of a table: the first that matches is the ending. Success is exit 0
*seen*, of a container that really started, with no stop wish and no interruption.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from jobs.status import Reason
from scheduler.runner.base import ContainerState, Observation
from scheduler.signatures import cuda_oom

CLOCKS_DIFFER = timedelta(seconds=1)
_SIGNALS = {1: "HUP", 2: "INT", 4: "ILL", 6: "ABRT", 7: "BUS", 8: "FPE", 9: "KILL"}
_SIGNALS |= {11: "SEGV", 13: "PIPE", 15: "TERM"}

_CANCELLED = "It was stopped because its cancel was requested."
_ORDERED = {
    Reason.TIMED_OUT: "It ran to its time limit. Ask for a larger timeout_s.",
    Reason.POLICY_DENIED: "It was not as it was to be when it started, and was killed.",
    Reason.SCRATCH_FULL: (
        "It wrote more outside /artifacts than a job may and was stopped. Write less, "
        "or into a volume."
    ),
    Reason.ARTIFACT_CAP: (
        "It wrote more into /artifacts than a job may and was stopped. Write less, or "
        "into a volume."
    ),
}

# With an init in the container the command is looked for only after the start.
_INIT_FAILED = "[FATAL tini ("


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What we knew of the attempt when its container was looked at."""

    stop_reason: Reason | None = None
    stop_requested_at: datetime | None = None
    # What more there is to say of the order to stop.
    stop_text: str = ""
    # The daemon was seen to kill it although no wish stood.
    kill_seen: bool = False
    # The node restarted between its start and the first look that found it ended.
    boot_changed: bool = False
    # False where it was found dead, and its exit code is made up.
    is_exit_seen: bool = True
    # One of its GPUs vanished while it had it.
    gpu_lost: bool = False
    # The last of its log: text is a hint, never the sole proof of anything.
    log_tail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    reason: Reason
    text: str
    exit_code: int | None = None
    evidence: dict[str, Any] = field(default_factory=dict)


def judge(found: Observation | None, known: Known) -> Ending:
    """How the attempt ended. `found` is what was there, None if nothing was."""
    exit_code = found.exit_code if found and found.started_at else None
    reason, text = _ordered(found, known) or _seen(found, known)
    evidence = {
        "oom_killed": bool(found and found.oom_killed),
        "kill_seen": known.kill_seen,
        "boot_changed": known.boot_changed,
        "is_exit_seen": known.is_exit_seen,
        "gpu_lost": known.gpu_lost,
        "daemon_error": found.error if found else "",
    }
    return Ending(reason=reason, text=text, exit_code=exit_code, evidence=evidence)


def _ordered(found: Observation | None, known: Known) -> tuple[Reason, str] | None:
    """An exit after our own order is judged by the order, whatever the code."""
    if known.stop_reason is None or _was_over(found, known):
        return None
    text = _ORDERED.get(known.stop_reason, _CANCELLED)
    return known.stop_reason, f"{text} {known.stop_text}".rstrip()


def _was_over(found: Observation | None, known: Known) -> bool:
    """It had ended before the wish, beyond what two clocks may differ by."""
    if not (found and found.started_at and found.finished_at):
        return False
    asked_at = known.stop_requested_at
    return asked_at is not None and found.finished_at < asked_at - CLOCKS_DIFFER


def _seen(found: Observation | None, known: Known) -> tuple[Reason, str]:
    if found is None:
        return Reason.CONTAINER_GONE, "Its container is gone: somebody removed it."
    if found.state is ContainerState.CREATED:
        return _never_started(found)
    if known.boot_changed:
        # Also with exit code 0: a program may trap the TERM of a shutdown.
        text = "The node restarted, and nobody saw it end before."
        return Reason.NODE_LOST, text
    if known.kill_seen:
        return Reason.INTERRUPTED, "Docker stopped it although nobody here asked."
    if not known.is_exit_seen:
        return Reason.INTERRUPTED, "Docker was away when it ended: nobody saw how."
    return _exited(found, known)


def _never_started(found: Observation) -> tuple[Reason, str]:
    """The exit code of a container that never ran tells why, not how it ended."""
    if found.exit_code in (126, 127):
        return _not_run(found.exit_code, found.error)
    return Reason.LAUNCH_FAULT, f"Its container was made but never ran. {found.error}"


def _not_run(code: int, told: str) -> tuple[Reason, str]:
    if code == 127:
        return Reason.COMMAND_NOT_FOUND, f"The image has no such command. {told}"
    return Reason.NOT_EXECUTABLE, f"The command can not be run. {told}"


def _exited(found: Observation, known: Known) -> tuple[Reason, str]:
    code = found.exit_code
    if code == 0:
        return Reason.COMPLETED, "It ended well, with exit code 0."
    if code is None:
        return Reason.UNKNOWN, "It ended, and nobody saw with which exit code."
    if found.oom_killed and code == 137:
        return Reason.MEMORY_OOM, (
            "It used more memory than it may and was killed. Ask for more memory_mb."
        )
    if known.gpu_lost:
        return Reason.GPU_LOST, f"The driver lost its GPU, and it ended with {code}."
    if code == 137:
        text = "It was killed by signal 9, sender unknown."
        return Reason.KILLED_EXTERNALLY, text
    if code in (126, 127) and _INIT_FAILED in known.log_tail:
        return _not_run(code, known.log_tail.strip())
    if said_by := cuda_oom(known.log_tail):
        return Reason.CUDA_OOM, (
            f"Exit code {code}, and {said_by} said in its log that the GPU's memory was "
            "not enough."
        )
    return Reason.NONZERO_EXIT, f"Exit code {code}{_signal(code)}. See the log's end."


def _signal(code: int) -> str:
    name = _SIGNALS.get(code - 128)
    return f" (signal {name})" if name else ""
