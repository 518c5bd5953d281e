"""Which process a pid means: pids are used again."""

from pathlib import Path

from scheduler.runner.base import boot_id


def fields(pid: int) -> list[str]:
    """Of /proc/PID/stat, from the state on: the name before it may hold anything."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return text.rpartition(")")[2].split()


def born(pid: int) -> str:
    """When the process started, in clock ticks of a boot; empty if it is gone or a
    zombie. A pid is used again; a pid with its time of birth is not.
    """
    told = fields(pid)
    if not told or told[0] == "Z":
        return ""
    return f"{told[19]}@{boot_id()}"
