"""Containers in Docker: the product. Nothing else imports docker."""

import logging
import re
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from http.client import HTTPException
from pathlib import Path
from time import monotonic, sleep, time
from typing import Any

import docker
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from requests.exceptions import ReadTimeout
from urllib3.exceptions import HTTPError

from jobs.failpoints import failpoint
from jobs.status import Reason
from scheduler.runner.base import (
    LaunchSpec,
    Mount,
    Observation,
    Progress,
    Rights,
    RunnerFault,
    Stray,
)
from scheduler.runner.docker import below, logs, rights
from scheduler.runner.docker.creation import creation
from scheduler.runner.docker.faults import reason_of, told
from scheduler.runner.docker.observing import hung_observation, observation
from scheduler.runner.docker.pulling import fault_of, follow

logger = logging.getLogger(__name__)

APPEARS_WITHIN_S = 5.0
QUICK_S = 10
HUNG_S = 30.0
FOUND_DEAD = 255
# As Docker shortens the id of a container that has no better name.
SHORT_ID = 12

# A connection that fails is an OSError of requests, a stream that breaks off one of
# the libraries below, and half a line of JSON a ValueError: none is one of docker's.
FAILURES = (DockerException, OSError, HTTPError, HTTPException, ValueError)
# What the daemon sends when it stops a container; others, like USR1, end nothing.
DEADLY = {"2", "3", "9", "15"}


class DockerRunner:
    def __init__(self, url: str, instance: str) -> None:
        self._url = url
        self._instance = instance
        # Containers that did not answer, and until when they are not asked again.
        self._hung: dict[str, float] = {}

    # Made at first use: a daemon that is down must not keep the supervisor from
    # starting. A call that answers late is ambiguous; the name tells what came of it.
    @cached_property
    def _client(self) -> docker.DockerClient:
        return docker.DockerClient(base_url=self._url, timeout=60)

    # For what the daemon answers at once, unless the container hangs that is asked for:
    # one of them must not take the node from all others.
    @cached_property
    def _quick(self) -> docker.DockerClient:
        return docker.DockerClient(base_url=self._url, timeout=QUICK_S)

    def has_image(self, image: str) -> bool:
        with _daemon():
            try:
                self._client.images.get(image)
            except ImageNotFound:
                return False
        return True

    def pull(self, image: str, progress: Progress) -> str:
        repository, tag = _repository_and_tag(image)
        with _daemon():
            try:
                follow(
                    self._client.api.pull(repository, tag, stream=True, decode=True),
                    progress,
                )
            except APIError as error:
                raise fault_of(told(error), error.status_code) from error
            return str(self._client.images.get(image).id)

    def sees(self, path: Path) -> bool:
        with _daemon():
            return rights.seen_by_peer(self._url, path)

    def launch(self, spec: LaunchSpec) -> Observation:
        try:
            arguments = creation(spec, self._instance)
            container = self._client.containers.create(**arguments)
        except FAILURES as error:
            return self._found_or_fault(spec.name, error)
        failpoint("launch.created")
        try:
            container.start()
        except FAILURES as error:
            raise self._start_fault(spec.name, error) from error
        failpoint("launch.started")
        return self._one(spec.name)

    def rights(self, name: str, mounts: Iterable[Mount]) -> Rights | None:
        with _daemon():
            try:
                pid = self._quick.containers.get(name).attrs["State"]["Pid"]
            except NotFound:
                return None
        return rights.rights(pid, mounts) if pid else None

    def _found_or_fault(self, name: str, error: Exception) -> Observation:
        """After a create that failed: somebody was first, or it can not be made."""
        if isinstance(error, ImageNotFound):
            raise RunnerFault(Reason.IMAGE_NOT_FOUND, told(error)) from error
        if isinstance(error, APIError) and error.status_code == 409:
            return self._one(name)
        raise RunnerFault(reason_of(error), told(error)) from error

    def _start_fault(self, name: str, error: Exception) -> RunnerFault:
        """A start that fails leaves `created` with 126, 127 or 128, and a text."""
        found = self.observe(name)
        code = found[0].exit_code if found else None
        if code == 127:
            return RunnerFault(Reason.COMMAND_NOT_FOUND, told(error))
        if code == 126:
            return RunnerFault(Reason.NOT_EXECUTABLE, told(error))
        return RunnerFault(reason_of(error), told(error))

    def _one(self, name: str) -> Observation:
        """A name that is taken may not be found yet: the daemon is still making it."""
        until = monotonic() + APPEARS_WITHIN_S
        while not (found := self.observe(name)):
            if monotonic() > until:
                text = f"Container {name} was there and went."
                raise RunnerFault(Reason.LAUNCH_FAULT, text)
            sleep(0.05)
        return found[0]

    def observe(self, name: str | None = None) -> list[Observation]:
        ours = {"label": f"gpujobs.instance={self._instance}"}
        with _daemon():
            try:
                if name is not None:
                    found = observation(self._quick.containers.get(name))
                    return [self._doubted(found)]
            except NotFound:
                return []
            listed = self._quick.api.containers(all=True, filters=ours)
            seen = map(self._seen, listed)
            return [each for each in seen if each]

    def _doubted(self, found: Observation) -> Observation:
        """A daemon that comes back to a container which ended without it says 255. The
        die that a daemon saw it tells before it shows the container as exited, and
        remembers for its last 256 events: none means that nobody saw this one."""
        if found.exit_code != FOUND_DEAD:
            return found
        died = {"container": found.container_id, "event": "die"}
        # Of the moment, in nanoseconds: the stream ends with what is remembered.
        until = f"{time():.9f}"
        events = self._quick.events(since=1, until=until, filters=died)
        return replace(found, is_exit_seen=any(events))

    def _seen(self, listed: dict[str, Any]) -> Observation | None:
        """None if it went meanwhile. One that can not be looked at is not judged: the
        list tells that it is there, and it counts as running."""
        container_id = listed["Id"]
        if monotonic() < self._hung.get(container_id, 0.0):
            return hung_observation(listed)
        try:
            return observation(self._quick.containers.get(container_id))
        except NotFound:
            return None
        except ReadTimeout:
            logger.warning("container %s hangs", container_id)
            self._hung[container_id] = monotonic() + HUNG_S
            return hung_observation(listed)

    def stop(self, name: str, *, force: bool) -> None:
        # 409: it is not running any more.
        with _daemon(), _gone_is_fine():
            self._quick.api.kill(name, "SIGKILL" if force else "SIGTERM")

    def logs(self, name: str, *, follow: bool) -> Generator[bytes]:
        with _daemon(), _gone_is_fine():
            container = self._client.containers.get(name)
            host_config = container.attrs["HostConfig"]
            if follow:
                with closing(container.logs(stream=True, follow=True)) as entries:
                    yield from logs.followed(entries, host_config)
            else:
                yield from logs.kept(self._log_body(container.id), host_config)

    def _log_body(self, container_id: str) -> bytes:
        """At once: entry by entry takes almost three times as long, and what the log
        driver keeps is bounded. Docker's own client does not tell entries apart."""
        api = self._client.api
        url = f"{api.base_url}/v{api.api_version}/containers/{container_id}/logs"
        answer = api.get(url, params={"stdout": 1, "stderr": 1}, timeout=60)
        answer.raise_for_status()
        return bytes(answer.content)

    def remove(self, name: str) -> None:
        # 409: a removal is under way.
        with _daemon(), _gone_is_fine():
            self._client.containers.get(name).remove(force=True, v=True)

    def strays(self) -> list[Stray]:
        # Processes first: the daemon knew a container before anything of it ran.
        found = below.look()
        with _daemon():
            known = {each["Id"] for each in self._client.api.containers(all=True)}
        return [stray for stray in found if stray.container_id not in known]

    def end_stray(self, stray: Stray) -> bool:
        with _daemon():
            try:
                self._client.containers.get(stray.container_id)
            except NotFound:
                below.end(stray)
                return True
        return False

    def holder(self, pid: int) -> str | None:
        try:
            groups = Path(f"/proc/{pid}/cgroup").read_text()
        except OSError:
            return None
        found = re.search(r"[0-9a-f]{64}", groups)
        return found.group() if found else None

    def name_of(self, container_id: str) -> str:
        with _daemon():
            try:
                return str(self._client.containers.get(container_id).name)
            except NotFound:
                return container_id[:SHORT_ID]

    def events(self, since: datetime | None) -> Iterator[tuple[str, str]]:
        ours = {"type": "container", "label": f"gpujobs.instance={self._instance}"}
        with _daemon():
            for event in self._client.events(
                decode=True, filters=ours, since=since and int(since.timestamp())
            ):
                of = event["Actor"]["Attributes"]
                if event["Action"] != "kill" or of.get("signal") in DEADLY:
                    yield event["Action"], of["name"]


@contextmanager
def _daemon() -> Iterator[None]:
    """Whatever goes wrong between us and the daemon is the daemon's fault."""
    try:
        yield
    except FAILURES as error:
        raise RunnerFault(Reason.DAEMON_FAULT, told(error)) from error


@contextmanager
def _gone_is_fine() -> Iterator[None]:
    try:
        yield
    except APIError as error:
        if error.status_code not in (404, 409):
            raise


def _repository_and_tag(image: str) -> tuple[str, str | None]:
    if "@" in image:
        return image, None
    repository, colon, tag = image.rpartition(":")
    return (repository, tag) if colon and "/" not in tag else (image, "latest")
