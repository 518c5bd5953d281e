"""The node's own ring: what a container may be started with, whatever a row says, and
whether what was started is no more than that."""

from collections.abc import Iterator

from jobs.hostpolicy import CAPABILITIES, LIMITS, HostPolicy
from scheduler.runner.base import LaunchSpec, Rights


def refusal(spec: LaunchSpec, timeout_s: int, policy: HostPolicy) -> str:
    """Why the node does not start this; empty if it does."""
    return next(filter(None, _refusals(spec, timeout_s, policy)), "")


def _refusals(spec: LaunchSpec, timeout_s: int, policy: HostPolicy) -> Iterator[str]:
    yield policy.refusal_of_image(spec.image)
    yield policy.refusal_of_user(*spec.user)
    yield policy.refusal_of_network(spec.network)
    asked = {
        "gpu_count": len(spec.gpu_uuids),
        "cpus": spec.cpus,
        "memory_mb": spec.memory_mb,
        "shm_mb": spec.shm_mb,
        "timeout_s": timeout_s,
    }
    for name in LIMITS:
        told = policy.refusal_of_size(name, asked[name])
        yield f"{name} of {asked[name]:,} is too much. {told}" if told else ""


def objection(spec: LaunchSpec, rights: Rights) -> str:
    """What a container that was started has and should not; empty if nothing."""
    return next(filter(None, _objections(spec, rights)), "")


def _objections(spec: LaunchSpec, rights: Rights) -> Iterator[str]:
    allowed = sum(1 << CAPABILITIES[name] for name in spec.capabilities)
    if more := rights.capabilities & ~allowed:
        yield f"It has capabilities that it should not have: {more:#x}."
    if not rights.no_new_privileges:
        yield "It may gain privileges that it has not."
    if rights.user != spec.user:
        yield f"It runs as {rights.user[0]}:{rights.user[1]}, not as {_text(spec.user)}."
    gpus = len(spec.gpu_uuids) if spec.requests_devices else 0
    if len(rights.gpu_devices) > gpus:
        seen = ", ".join(rights.gpu_devices)
        yield f"It sees {seen}, and has {gpus} GPUs."
    for target, is_meant in rights.mounts.items():
        if not is_meant:
            yield f"What it sees at {target} is not what was to be mounted there."


def _text(user: tuple[int, int]) -> str:
    return f"{user[0]}:{user[1]}"
