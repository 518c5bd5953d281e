"""Whose doing it is that the daemon did not do what it was asked to."""

from docker.errors import APIError, DockerException

from jobs.status import Reason

# What the daemon says where GPUs can not be given to any container: the node's trouble.
_GPU_SET_UP = (
    "nvidia-container-cli",
    "nvidia-container-runtime-hook",
    "could not select device driver",
    "cdi device injection failed",
    "failed to inject cdi devices",
)


def reason_of(error: Exception) -> Reason:
    if not isinstance(error, DockerException):
        return Reason.DAEMON_FAULT  # it did not answer
    text = str(error).lower()
    if "no space left" in text or "disk quota exceeded" in text:
        return Reason.DISK_FULL
    if any(words in text for words in _GPU_SET_UP):
        return Reason.DAEMON_FAULT
    if "no command specified" in text:
        return Reason.COMMAND_NOT_FOUND
    if "bind source path does not exist" in text:
        return Reason.BAD_VOLUME
    return Reason.LAUNCH_FAULT


def told(error: Exception) -> str:
    explained = error.explanation if isinstance(error, APIError) else None
    return str(explained or error)[:1000]
