"""A pull as the daemon tells of it: how far it has come, or why it failed.

The daemon's status code says little (releases differ, 500 is usual), so that its
words are read. They are matched narrowly: a missing image ends jobs, and "permission
denied" or "executable file not found" are the node's trouble, not the image's.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from jobs.status import Reason
from scheduler.runner.base import Progress, RateLimited, RunnerFault

_FETCHED = ("Verifying Checksum", "Download complete", "Pull complete")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Known by a status code of the daemon, or by its words."""

    reason: Reason
    words: str
    text: str
    codes: tuple[int, ...] = ()


FULL_DISK = Cause(
    reason=Reason.DISK_FULL,
    words=r"no space left on device|disk quota exceeded",
    text="The disk of this node is full. An operator should make room where Docker"
    " keeps its images (docker system df, docker image prune)",
)
RATE_LIMIT = Cause(
    reason=Reason.REGISTRY_UNREACHABLE,
    codes=(429,),
    words=r"toomanyrequests|too many requests|rate limit",
    text="The registry's rate limit is reached. Wait, or let an operator log this node"
    " in to the registry (docker login), which raises the limit",
)
NO_ACCESS = Cause(
    reason=Reason.IMAGE_AUTH,
    codes=(401, 403),
    words=r"(^|: )denied\b|pull access denied|access to the resource is denied"
    r"|access forbidden|unauthorized|no basic auth|authorization failed"
    r"|(?<!proxy )authentication required|http status: 40[13]|\b403 forbidden",
    # Registries say the same of both, so that nobody can ask what is there.
    text="The registry gives no access: there is no such image, or it is private and"
    " this node is not logged in to the registry. Check the name, or ask an operator"
    " to log the node in (docker login)",
)
NO_PLATFORM = Cause(
    reason=Reason.IMAGE_NOT_FOUND,
    words=r"no matching manifest|does not match the specified platform",
    text="The registry does not have this image for the platform of this node",
)
MISSING = Cause(
    reason=Reason.IMAGE_NOT_FOUND,
    codes=(404,),
    words=r"manifest unknown|name unknown|(manifest for|repository) \S+ not found"
    r"|failed to resolve reference .*: not found|http status: 404|\b404 not found",
    text="The registry has no such image. Check its name and its tag",
)
# The first that fits.
CAUSES = (FULL_DISK, RATE_LIMIT, NO_ACCESS, NO_PLATFORM, MISSING)
_UNREACHABLE = "The registry can not be reached, or does not answer as it should"


class Layers:
    """Bytes over all layers that the daemon has named a size of. It names one when
    the layer's turn comes, so that the total grows while a pull goes on."""

    def __init__(self) -> None:
        self._sizes: dict[str, tuple[int, int]] = {}

    def take(self, message: dict[str, Any]) -> None:
        layer, status = message.get("id", ""), message.get("status")
        told = message.get("progressDetail") or {}
        current, total = told.get("current") or 0, told.get("total") or 0
        if status == "Downloading" and total > 0:
            self._sizes[layer] = (min(current, total), total)
        elif status == "Extracting" and total > 0:
            self._sizes[layer] = (total, total)
        elif status in _FETCHED and layer in self._sizes:
            self._sizes[layer] = (self._sizes[layer][1],) * 2

    @property
    def done(self) -> int:
        return sum(done for done, _ in self._sizes.values())

    @property
    def total(self) -> int:
        return sum(total for _, total in self._sizes.values())


def follow(messages: Iterable[dict[str, Any]], progress: Progress) -> None:
    """Report each step to the end of the pull; raises RunnerFault if it failed."""
    layers, error = Layers(), ""
    for message in messages:
        error = message.get("error") or error
        layers.take(message)
        progress(layers.done, layers.total)
    if error:
        raise fault_of(error)


def fault_of(told: str, status: int | None = None) -> RunnerFault:
    """What an error of the daemon means, with a sentence on what to do next."""
    for cause in CAUSES:
        if status in cause.codes or re.search(cause.words, told, re.IGNORECASE):
            kind = RateLimited if cause is RATE_LIMIT else RunnerFault
            return kind(cause.reason, _said(cause.text, told))
    return RunnerFault(Reason.REGISTRY_UNREACHABLE, _said(_UNREACHABLE, told))


def _said(text: str, told: str) -> str:
    return f"{text}. Docker says: {told.strip()[:1000]}"
