"""What Docker tells of a container, as an observation."""

from datetime import UTC, datetime
from typing import Any

from scheduler.runner.base import ContainerState, Observation

_STATES = {
    "created": ContainerState.CREATED,
    "exited": ContainerState.EXITED,
    "dead": ContainerState.EXITED,
    # Shown once it does not run any more.
    "removing": ContainerState.EXITED,
}


def observation(container: Any) -> Observation:
    state = container.attrs["State"]
    kind = _STATES.get(state["Status"], ContainerState.RUNNING)
    started_at = _time(state["StartedAt"])
    if started_at is None:
        kind = ContainerState.CREATED
    return Observation(
        name=container.name,
        nonce=container.labels.get("gpujobs.nonce", ""),
        container_id=container.id,
        state=kind,
        exit_code=None if kind is ContainerState.RUNNING else state["ExitCode"],
        started_at=started_at,
        finished_at=_time(state["FinishedAt"]),
        oom_killed=state["OOMKilled"],
        error=state["Error"],
        image_digest=container.attrs["Image"],
        layer=((container.attrs.get("GraphDriver") or {}).get("Data") or {}).get(
            "UpperDir", ""
        ),
        gpu_uuids=_gpu_uuids(container.attrs["HostConfig"]),
    )


def hung_observation(listed: dict[str, Any]) -> Observation:
    return Observation(
        name=listed["Names"][0].lstrip("/"),
        nonce=listed["Labels"].get("gpujobs.nonce", ""),
        container_id=listed["Id"],
        state=ContainerState.RUNNING,
        started_at=datetime.fromtimestamp(listed["Created"], UTC),
    )


def _gpu_uuids(host_config: dict[str, Any]) -> tuple[str, ...]:
    requests = host_config.get("DeviceRequests") or []
    return tuple(uuid for each in requests for uuid in each.get("DeviceIDs") or [])


def _time(text: str) -> datetime | None:
    if text.startswith("0001-"):
        return None
    # Docker gives nanoseconds.
    return datetime.fromisoformat(text[:19]).replace(
        tzinfo=UTC, microsecond=int((text[20:].rstrip("Z") or "0").ljust(6, "0")[:6])
    )
