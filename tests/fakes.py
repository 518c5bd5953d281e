"""A runner that keeps its containers in a dictionary, and fails when it is told to.

tests/contracts holds it to the same cases as the real ones.
"""

from collections.abc import Generator, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

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
)


class FakeRunner:
    def __init__(self) -> None:
        self.containers: dict[str, Observation] = {}
        self.specs: dict[str, LaunchSpec] = {}
        self.output: dict[str, bytes] = {}
        self.images: set[str] = set()
        self.starts: list[str] = []
        self.signals: list[tuple[str, bool]] = []
        # Programs that do not end on SIGTERM, and containers that can not be removed.
        self.deaf: set[str] = set()
        self.stuck: set[str] = set()
        # What the kernel says of a container; of others nothing.
        self.has: dict[str, Rights] = {}
        self.holders: dict[int, str] = {}
        # Containers that are none of ours, by their ids.
        self.names: dict[str, str] = {}
        # What a pull tells of itself: bytes done and in all.
        self.steps: list[tuple[int, int]] = [(0, 480_000_000), (480_000_000,) * 2]
        # What runs below the runner, by container id, and what of it was ended.
        self.below: dict[str, Stray] = {}
        self.ended_strays: list[Stray] = []
        # What `events` tells, and then its stream ends.
        self.happened: list[tuple[str, str]] = []
        # The next call of a verb raises its fault, before or after its effect.
        # `create` is the part of `launch` before anything is there.
        self.faults: dict[str, BaseException] = {}
        self.late_faults: dict[str, BaseException] = {}

    def _fail(self, verb: str, faults: dict[str, BaseException]) -> None:
        if fault := faults.pop(verb, None):
            raise fault

    def has_image(self, image: str) -> bool:
        self._fail("has_image", self.faults)
        return image in self.images

    def pull(self, image: str, progress: Progress) -> str:
        self._fail("pull", self.faults)
        for done, total in self.steps:
            progress(done, total)
        self.images.add(image)
        return f"sha256:{image}"

    def launch(self, spec: LaunchSpec) -> Observation:
        if spec.name in self.containers:
            return self.containers[spec.name]
        if not spec.command or spec.command[0].startswith("/no/"):
            raise RunnerFault(Reason.COMMAND_NOT_FOUND, "no such command")
        self._fail("create", self.faults)
        self.create(spec)
        self._fail("launch", self.faults)
        self.specs[spec.name] = spec
        self.starts.append(spec.name)
        self.change(spec.name, state=ContainerState.RUNNING, exit_code=None)
        self._fail("launch", self.late_faults)
        return self.containers[spec.name]

    def create(self, spec: LaunchSpec) -> None:
        self.containers[spec.name] = Observation(
            name=spec.name,
            nonce=spec.nonce,
            container_id=(spec.nonce * 2)[:64],
            state=ContainerState.CREATED,
            exit_code=0,
        )

    def change(self, name: str, **fields: object) -> None:
        fields.setdefault("started_at", datetime.now(UTC))
        self.containers[name] = replace(self.containers[name], **fields)  # type: ignore[arg-type]

    def end(self, name: str, exit_code: int = 0, **fields: object) -> None:
        started_at = self.containers[name].started_at
        self.change(
            name,
            state=ContainerState.EXITED,
            exit_code=exit_code,
            started_at=started_at,
            finished_at=datetime.now(UTC),
            **fields,
        )

    def sees(self, path: Path) -> bool:
        return True

    def rights(self, name: str, mounts: Iterable[Mount]) -> Rights | None:
        self._fail("rights", self.faults)
        return self.has.get(self._name(name))

    def observe(self, name: str | None = None) -> list[Observation]:
        self._fail("observe", self.faults)
        found = self.containers.values()
        return [o for o in found if name in (None, o.name, o.container_id)]

    def _name(self, container: str) -> str:
        """By its id too, as Docker takes it."""
        found = (o.name for o in self.containers.values())
        names = {self.containers[name].container_id: name for name in found}
        return names.get(container, container)

    def stop(self, name: str, *, force: bool) -> None:
        self._fail("stop", self.faults)
        name = self._name(name)
        found = self.containers.get(name)
        if found and found.state is ContainerState.RUNNING:
            self.signals.append((name, force))
            if force or name not in self.deaf:
                self.end(name, 137 if force else 143)

    def logs(self, name: str, *, follow: bool) -> Generator[bytes]:
        self._fail("logs", self.faults)
        name = self._name(name)
        if name in self.output:
            yield self.output[name]

    def remove(self, name: str) -> None:
        self._fail("remove", self.faults)
        name = self._name(name)
        if name not in self.stuck:
            self.containers.pop(name, None)
        self._fail("remove", self.late_faults)

    def _known(self) -> set[str]:
        return {o.container_id for o in self.containers.values()}

    def strays(self) -> list[Stray]:
        self._fail("strays", self.faults)
        known = self._known()
        return [s for s in self.below.values() if s.container_id not in known]

    def end_stray(self, stray: Stray) -> bool:
        self._fail("end_stray", self.faults)
        if stray.container_id in self._known():
            return False
        self.ended_strays.append(stray)
        self.below.pop(stray.container_id, None)
        return True

    def holder(self, pid: int) -> str | None:
        return self.holders.get(pid)

    def name_of(self, container_id: str) -> str:
        self._fail("name_of", self.faults)
        ours = {o.container_id: o.name for o in self.containers.values()}
        return {**ours, **self.names}.get(container_id, container_id[:12])

    def events(self, since: datetime | None) -> Iterator[tuple[str, str]]:
        self._fail("events", self.faults)
        while self.happened:
            yield self.happened.pop(0)


class Clock:
    """The clock that counts seconds since whenever, in our hands."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s
