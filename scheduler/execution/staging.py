"""Volumes as the node found them: bound below our own folder, where nobody swaps them."""

import errno
import os
from contextlib import suppress
from pathlib import Path

from django.conf import settings

from jobs.hostpolicy import HostPolicy
from jobs.models import Attempt
from jobs.status import Reason
from scheduler import mounting
from scheduler.execution.asked import asked_of
from scheduler.runner.base import Mount, RunnerFault


def mounts_folder(attempt: Attempt) -> Path:
    """Not in the work folder: what is removed with its content must hold no mount."""
    return Path(settings.RUN_ROOT) / "mounts" / attempt.container_name


def stage(attempt: Attempt, policy: HostPolicy) -> tuple[Mount, ...]:
    """The attempt's volumes, from where its container is to mount them.

    Raises NotAllowed, and RunnerFault: bad_volume if one is not there, daemon_fault if
    this process may not mount.
    """
    if settings.RUNNER != "docker":
        # With no isolation no mount is one: the runner refuses them.
        return tuple(_mount(v, Path(v["source"])) for v in asked_of(attempt).volumes)
    unstage(attempt)
    folder = mounts_folder(attempt)
    if asked_of(attempt).volumes:
        folder.mkdir(parents=True)
    return tuple(
        _staged(volume, folder / str(number), policy)
        for number, volume in enumerate(asked_of(attempt).volumes)
    )


def staged(attempt: Attempt) -> tuple[Mount, ...]:
    """As `stage` made them."""
    folder = mounts_folder(attempt)
    volumes = enumerate(asked_of(attempt).volumes)
    return tuple(_mount(volume, folder / str(number)) for number, volume in volumes)


def _mount(volume: dict[str, str], source: Path) -> Mount:
    is_read_only = volume["mode"] != "rw"
    return Mount(source=str(source), target=volume["target"], read_only=is_read_only)


def _staged(volume: dict[str, str], target: Path, policy: HostPolicy) -> Mount:
    source = volume["source"]
    try:
        fd = _pinned(volume, policy)
    except FileNotFoundError as error:
        raise RunnerFault(Reason.BAD_VOLUME, f"{source} is not there.") from error
    try:
        mount = _mount(volume, target)
        mounting.bind(fd, target, read_only=mount.read_only)
    except OSError as error:
        text = f"{source} can not be mounted: {error}."
        if error.errno in (errno.EPERM, errno.EACCES):
            text += " manage.py cluster needs root, or CAP_SYS_ADMIN."
        raise RunnerFault(Reason.DAEMON_FAULT, text) from error
    finally:
        os.close(fd)
    return mount


def _pinned(volume: dict[str, str], policy: HostPolicy) -> int:
    if declared := policy.declared(volume["source"]):
        return mounting.pin_as_it_is(declared.path)
    return mounting.pin(volume["source"], policy.roots_for(volume["mode"]))


def unstage(attempt: Attempt) -> None:
    unstage_all(mounts_folder(attempt))


def unstage_all(folder: Path) -> None:
    """What can not be unmounted now is tried again by the next sweep."""
    if folder.is_dir():
        for target in sorted(folder.iterdir()):
            mounting.unbind(target)
        with suppress(OSError):
            folder.rmdir()


def sweep_mounts() -> None:
    """Of attempts that ended while nobody could unmount what was theirs here."""
    folders = {f.name: f for f in (Path(settings.RUN_ROOT) / "mounts").glob("*")}
    here = Attempt.objects.live().filter(node=settings.NODE_NAME)
    live = {attempt.container_name for attempt in here}
    for name in folders.keys() - live:
        unstage_all(folders[name])
