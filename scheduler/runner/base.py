"""The contract of a runner: what starts, shows and stops the container of an attempt.

Every verb may be called twice and none waits for a container. A runner keeps nothing
in memory: whatever is asked is answered by looking.
"""

import enum
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from jobs.status import Reason

# Where a container sees what its LaunchSpec's `inputs` holds, read-only.
INPUTS = "/gpujobs"

# Told of a pull: the bytes that are here, of how many are known of so far.
Progress = Callable[[int, int], None]


def boot_id() -> str:
    """Of this run of the kernel: pids and containers of another are not this one's."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class ContainerState(enum.StrEnum):
    CREATED = "created"  # never ran, whatever its exit code says
    RUNNING = "running"
    EXITED = "exited"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    source: str
    target: str
    read_only: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSpec:
    """All that a container is made from. Sizes are MiB; `user` is (uid, gid)."""

    name: str
    job_id: str
    attempt_number: int
    nonce: str
    image: str
    command: tuple[str, ...] | None
    env: Mapping[str, str]
    gpu_uuids: tuple[str, ...]
    # False with the simulated inventory: its GPUs are no devices.
    requests_devices: bool
    user: tuple[int, int]
    artifacts: Path
    scratch: Path
    # What it is to read: a folder of files of ours, or none.
    inputs: Path | None = None
    mounts: tuple[Mount, ...] = ()
    cpus: float | None = None
    memory_mb: int | None = None
    shm_mb: int | None = None
    network: str = "none"
    capabilities: tuple[str, ...] = ()
    log_cap_mb: int = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A container as it was found."""

    name: str
    nonce: str
    container_id: str
    state: ContainerState
    exit_code: int | None = None
    # False where the code is only the runner's word for "it is dead, I know not how".
    is_exit_seen: bool = True
    started_at: datetime | None = None
    finished_at: datetime | None = None
    oom_killed: bool = False
    error: str = ""
    image_digest: str = ""
    # Where on the host it writes what is in no volume; empty if that is not known.
    layer: str = ""
    # Those that were requested of the runner; none where GPUs are no devices.
    gpu_uuids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """What the kernel says that a container's first process may do and sees."""

    # A bit for each, as in linux/capability.h.
    capabilities: int
    no_new_privileges: bool
    # 0 none, 1 strict, 2 by a filter.
    seccomp: int
    user: tuple[int, int]
    gpu_devices: tuple[str, ...]
    # By target: whether it is the file or folder that was to be mounted there.
    mounts: Mapping[str, bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stray:
    """Processes of a container that the runner does not know, whoever's it was."""

    container_id: str
    # Pairs of a pid and when it was born: a pid alone may mean another by now.
    processes: tuple[tuple[int, str], ...]
    # The host's paths that were mounted into it, where what started it still tells.
    mounts: tuple[str, ...] = ()


class RunnerFault(Exception):
    """The runner could not do it; `reason` says whose doing that is."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class RateLimited(RunnerFault):
    """A registry wants to be left alone for a while."""


class Runner(Protocol):
    def has_image(self, image: str) -> bool:
        """Whether a launch would find the image without a pull."""
        ...

    def pull(self, image: str, progress: Progress) -> str:
        """Fetch the image and return its digest; may take long, never in a task.

        `progress` is called from this thread, over all layers. Raises RunnerFault:
        image_not_found, image_auth, registry_unreachable (RateLimited is one of
        these), disk_full, daemon_fault.
        """
        ...

    def sees(self, path: Path) -> bool:
        """Whether the runner finds there what this process does, mounts included."""
        ...

    def launch(self, spec: LaunchSpec) -> Observation:
        """Create and start, or return what already has the name.

        What is returned in state `created` was made by another launcher whose start
        may still be on its way: it must never be started, only removed. Raises
        RunnerFault; the container may then be left in state `created`.
        """
        ...

    def rights(self, name: str, mounts: Iterable[Mount]) -> Rights | None:
        """What the kernel lets a container do and see, that was to have these mounts;
        None if it has ended, or if this runner isolates nothing."""
        ...

    def observe(self, name: str | None = None) -> list[Observation]:
        """Our containers, or the one with that name."""
        ...

    def stop(self, name: str, *, force: bool) -> None:
        """Send SIGTERM, or with `force` SIGKILL, and return at once."""
        ...

    def logs(self, name: str, *, follow: bool) -> Generator[bytes]:
        """All bytes of stdout and stderr in their order, from the start.

        With `follow`, until the container ends; that the stream ended is no proof
        that the container did. An empty chunk says that bytes may be missing where it
        stands, since the runner does not keep a log of any length.
        """
        ...

    def remove(self, name: str) -> None:
        """Remove the container with all that runs in it."""
        ...

    def strays(self) -> list[Stray]:
        """What runs on this host for containers that the runner knows nothing of:
        ours, those of other daemons, whatever."""
        ...

    def end_stray(self, stray: Stray) -> bool:
        """Kill its processes; False, and nothing done, if the runner knows it by now."""
        ...

    def holder(self, pid: int) -> str | None:
        """The id of the container that a process of the host belongs to, if any."""
        ...

    def name_of(self, container_id: str) -> str:
        """What people call a container that `holder` gave; ours or not."""
        ...

    def events(self, since: datetime | None) -> Iterator[tuple[str, str]]:
        """Pairs of what happened ('kill', 'die', ...) and the container's name: first
        what is remembered from `since` on, then as it happens."""
        ...
