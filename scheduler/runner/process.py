"""Jobs as processes with no isolation, for a first look where there is no Docker.

A small session-leading shell per job writes the exit code to a file, so that it
survives our restart. The folder of a process is root's, so that no job can name the process we
signal.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Generator, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jobs.status import Reason
from scheduler.runner.base import (
    ContainerState,
    LaunchSpec,
    Mount,
    Observation,
    Progress,
    Rights,
    RunnerFault,
    Stray,
    boot_id,
)
from scheduler.runner.birth import born, fields

# It waits for a word: had its launcher died before writing down the pid, the program
# never starts. A TERM for the whole group must not keep it from writing the code.
# The file for the code comes in as fd 2, as dash can name no descriptor above 9.
SHELL = """
exec 3>&2 2>&1
trap : TERM
read -r go || exit 125
(cd "$GPUJOBS_SCRATCH" && exec "$@" </dev/null) 3>&-
echo $? >&3
"""
_POLL_S = 0.1
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class ProcessRunner:
    def __init__(self, run_root: Path) -> None:
        self._folder = run_root / "processes"
        # Ours to reap; whatever else is known lies in the folder.
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def has_image(self, image: str) -> bool:
        """A process has no image: the programs of the host are there."""
        return True

    def pull(self, image: str, progress: Progress) -> str:
        return ""

    def launch(self, spec: LaunchSpec) -> Observation:
        folder = self._folder / spec.name
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            return self._one(spec.name)
        (folder / "spec.json").write_text(json.dumps({"nonce": spec.nonce}))
        self._check(spec)
        self._start(spec, folder)
        return self._one(spec.name)

    def _check(self, spec: LaunchSpec) -> None:
        """Say clearly what Popen would say of a fork."""
        if not spec.command:
            text = "A process has no image that could name a command: give one."
            raise RunnerFault(Reason.COMMAND_NOT_FOUND, text)
        if spec.mounts:
            text = "The process runner can not mount volumes."
            raise RunnerFault(Reason.BAD_VOLUME, text)
        if not shutil.which(spec.command[0], path=PATH):
            text = f"The host has no program {spec.command[0]!r}."
            raise RunnerFault(Reason.COMMAND_NOT_FOUND, text)
        if os.geteuid() == 0 and not _reachable(spec.scratch):
            text = f"The job's user can not reach {spec.scratch}: set GPUJOBS_RUN_ROOT."
            raise RunnerFault(Reason.LAUNCH_FAULT, text)

    def _start(self, spec: LaunchSpec, folder: Path) -> None:
        identity: dict[str, Any] = {}
        if os.geteuid() == 0:
            uid, gid = spec.user
            assert uid != 0, "a job never runs as root"
            identity = {"user": uid, "group": gid, "extra_groups": []}
        with (
            (folder / "output").open("wb") as out,
            (folder / "exit").open("wb") as code,
        ):
            child = subprocess.Popen(  # noqa: S603
                ["/bin/sh", "-c", SHELL, spec.name, *(spec.command or ())],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=code,
                env=_environment(spec),
                cwd="/",
                start_new_session=True,
                **identity,
            )
        self._children[spec.name] = child
        self._write_down(folder, child.pid)
        assert child.stdin is not None
        # A shell that died meanwhile is found to have exited.
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write(b"go\n")
            child.stdin.flush()
        with contextlib.suppress(BrokenPipeError):
            child.stdin.close()

    def _write_down(self, folder: Path, pid: int) -> None:
        part = folder / "pid.part"
        part.write_text(json.dumps({"pid": pid, "born": born(pid)}))
        part.replace(folder / "pid")

    def _one(self, name: str) -> Observation:
        return self.observe(name)[0]

    def sees(self, path: Path) -> bool:
        return True

    def rights(self, name: str, mounts: Iterable[Mount]) -> Rights | None:
        return None

    def observe(self, name: str | None = None) -> list[Observation]:
        for child in self._children.values():
            child.poll()
        if name is not None:
            folders = [self._folder / name]
        else:
            folders = sorted(self._folder.glob("*"))
        return [seen for folder in folders if (seen := self._seen(folder))]

    def _seen(self, folder: Path) -> Observation | None:
        try:
            return self._look(folder) if folder.is_dir() else None
        except FileNotFoundError:  # another process removes it
            return None

    def _look(self, folder: Path) -> Observation:
        spec = _read(folder / "spec.json")
        leader = _read(folder / "pid")
        state, code = ContainerState.CREATED, None
        if leader:
            alive = _lives(leader)
            if not alive:
                # As a container ends with its first process: nothing stays on its GPUs.
                _end_session(leader)
            state = ContainerState.RUNNING if alive else ContainerState.EXITED
            code = None if alive else _exit_code(folder / "exit")
        return Observation(
            name=folder.name,
            nonce=spec.get("nonce", ""),
            container_id=folder.name,
            state=state,
            exit_code=code,
            started_at=_changed(folder / "pid") if leader else None,
            finished_at=_changed(folder / "exit") if code is not None else None,
        )

    def stop(self, name: str, *, force: bool) -> None:
        leader = _read(self._folder / name / "pid")
        if not leader or not _lives(leader):
            return
        for pid in _session(leader["pid"]):
            if not (force and pid == leader["pid"]):  # it writes the exit code
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL if force else signal.SIGTERM)

    def logs(self, name: str, *, follow: bool) -> Generator[bytes]:
        output = self._folder / name / "output"
        if not output.exists():
            return
        with output.open("rb") as file:
            while True:
                found = self.observe(name)
                ended = not found or found[0].state is not ContainerState.RUNNING
                while chunk := file.read(65536):
                    yield chunk
                if ended or not follow:
                    return
                time.sleep(_POLL_S)

    def remove(self, name: str) -> None:
        leader = _read(self._folder / name / "pid")
        if leader:
            _end_session(leader)
        child = self._children.pop(name, None)
        if child is not None:
            child.wait()
        shutil.rmtree(self._folder / name, ignore_errors=True)

    def strays(self) -> list[Stray]:
        """Nothing forgets a process but its end: there are none."""
        return []

    def end_stray(self, stray: Stray) -> bool:
        return False

    def holder(self, pid: int) -> str | None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            session = os.getsid(pid)
            for path in self._folder.glob("*/pid"):
                if _read(path).get("pid") == session:
                    return path.parent.name
        return None

    def name_of(self, container_id: str) -> str:
        return container_id

    def events(self, since: datetime | None) -> Iterator[tuple[str, str]]:
        """Nothing tells of processes that are not our children: there are none."""
        return iter(())


def _environment(spec: LaunchSpec) -> dict[str, str]:
    return {
        "PATH": PATH,
        "LANG": "C.UTF-8",
        **spec.env,
        "HOME": str(spec.scratch),
        "TMPDIR": str(spec.scratch),
        "GPUJOBS_SCRATCH": str(spec.scratch),
        "GPUJOBS_ARTIFACTS": str(spec.artifacts),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(spec.gpu_uuids),
    }


def _reachable(path: Path) -> bool:
    """Whether every folder above may be passed through by anybody."""
    return all(parent.stat().st_mode & 0o001 for parent in path.parents)


def _read(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text()))
    except (FileNotFoundError, ValueError):
        return {}


def _exit_code(path: Path) -> int | None:
    """The last word: what the loader says of a variable of the job's comes before."""
    words = path.read_text(errors="replace").split() if path.exists() else []
    return int(words[-1]) if words and words[-1].isdigit() else None


def _changed(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)


def _lives(leader: dict[str, Any]) -> bool:
    """Written down without a birth it was dead already, as whatever has its pid now."""
    return bool(leader["born"]) and born(leader["pid"]) == leader["born"]


def _end_session(leader: dict[str, Any]) -> None:
    """Kill what is left of it, unless its number is another's by now."""
    same_boot = str(leader["born"]).endswith(f"@{boot_id()}")
    if not same_boot or born(leader["pid"]) not in ("", leader["born"]):
        return
    for pid in _session(leader["pid"]):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _session(leader: int) -> list[int]:
    pids = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()]
    found = [(pid, fields(pid)) for pid in pids]
    return [pid for pid, told in found if told and int(told[3]) == leader]
