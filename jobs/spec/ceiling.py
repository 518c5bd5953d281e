"""What no job may have here, told before it is accepted."""

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError

from jobs.hostpolicy import LIMITS, HostPolicy


def ceiling_errors(
    data: Mapping[str, Any], policy: HostPolicy
) -> dict[str, ValidationError]:
    """By field, of a cleaned spec."""
    found = {
        name: (policy.refusal_of_size(name, data.get(name)), "over_the_limit")
        for name in LIMITS
    }
    if image := data.get("image"):
        found["image"] = policy.refusal_of_image(image), "image_not_allowed"
        found["network"] = _network(policy, data.get("network")), "network_not_allowed"
        found["volumes"] = next(_volumes(policy, data), ""), "mount_not_allowed"
    return {name: ValidationError(*told) for name, told in found.items() if told[0]}


def _network(policy: HostPolicy, network: str | None) -> str:
    """Of the one that is asked for: whether the site's own may be used is its
    operator's matter."""
    if network and settings.RUNNER == "process":
        return "A process has the host's network. Leave this out."
    return policy.refusal_of_network(network) if network else ""


def _volumes(policy: HostPolicy, data: Mapping[str, Any]) -> Iterator[str]:
    for volume in data.get("volumes") or []:
        source = volume["source"]
        refusal = policy.refusal_of_volume(source, volume["mode"])
        declared = policy.declared(source)
        path = str(declared.path) if declared else source
        yield from filter(None, [refusal or refusal_of_our_own(path)])


def refusal_of_our_own(source: str) -> str:
    """Our logs, rows and artifacts are no volume, wherever they lie."""
    path = PurePosixPath(source)
    for ours in map(PurePosixPath, (settings.DATA_ROOT, settings.RUN_ROOT)):
        if path.is_relative_to(ours) or ours.is_relative_to(path):
            return f"{source} may not be mounted: GPU Jobs keeps its own files there."
    return ""
