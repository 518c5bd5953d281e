"""An onlooker at the Docker daemon: which containers ran when, by its own eyes."""

import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import docker
import requests
from docker.errors import DockerException
from urllib3.exceptions import HTTPError

from tests.rig.daemon import PrivateDaemon

EVERY_S = 0.25
FAILURES = (DockerException, requests.RequestException, HTTPError, OSError, ValueError)


@dataclass(slots=True)
class Sighting:
    """One container. It surely ran from its start to `last_running_at`."""

    name: str
    job: str
    attempt: int
    last_running_at: float = 0.0
    died_at: float = 0.0


class Watcher:
    def __init__(self, daemon: PrivateDaemon, is_over: threading.Event) -> None:
        self._daemon = daemon
        self._is_over = is_over
        self.containers: dict[str, Sighting] = {}
        # "JOB: NAME and NAME" of a job with two that ran at once.
        self.doubles: set[str] = set()
        self.looks = 0

    def look(self) -> None:
        """A thread: samples what runs, whenever the daemon answers."""
        client = self._daemon.client(timeout=10)
        while not self._is_over.wait(EVERY_S):
            with suppress(*FAILURES):
                began_at = time.time()
                self._take(client.api.containers(all=True), began_at)
                self.looks += 1
        client.close()

    def listen(self) -> None:
        """A thread: the exact time of each death, but for those while it is down."""
        while not self._is_over.wait(0.1):
            with suppress(*FAILURES):
                client = docker.DockerClient(self._daemon.base_url, timeout=None)
                for event in client.events(decode=True, filters={"event": "die"}):
                    self._die(event)

    def _take(self, listed: list[dict[str, Any]], began_at: float) -> None:
        running: Counter[str] = Counter()
        for container in listed:
            labels = container["Labels"]
            if "gpujobs.job" not in labels:
                continue
            seen = self._sighting(container["Id"], labels, container["Names"][0])
            if container["State"] == "running":
                seen.last_running_at = began_at
                running[seen.job] += 1
        for job, count in running.items():
            if count > 1:
                self.doubles.add(f"{job}: {count} containers at once")

    def _die(self, event: dict[str, Any]) -> None:
        labels = event["Actor"]["Attributes"]
        if "gpujobs.job" in labels:
            seen = self._sighting(event["Actor"]["ID"], labels, labels["name"])
            seen.died_at = event["timeNano"] / 1e9

    def _sighting(self, pk: str, labels: dict[str, str], name: str) -> Sighting:
        made = Sighting(
            name=name.lstrip("/"),
            job=labels["gpujobs.job"],
            attempt=int(labels["gpujobs.attempt"]),
        )
        return self.containers.setdefault(pk, made)
