"""What the node does not start, whatever a row says: rows may have come past the API."""

from collections.abc import Iterator

from django.core.exceptions import ValidationError

from jobs import spec
from jobs.hostpolicy import HostPolicy, HostPolicyError
from jobs.models import Attempt
from jobs.models.sitepolicy import allowed
from jobs.status import Reason
from scheduler import hostpolicy
from scheduler.execution.asked import Asked, asked_of
from scheduler.runner.base import LaunchSpec, RunnerFault


def node_policy() -> HostPolicy:
    """Of this host, and of the site within it. One that can not be read is the node's trouble, and no job's."""
    try:
        return allowed()
    except HostPolicyError as error:
        raise RunnerFault(Reason.DAEMON_FAULT, str(error)) from error


def refusal(attempt: Attempt, asked: LaunchSpec, policy: HostPolicy) -> str:
    """Empty if the attempt may be started here."""
    wanted = asked_of(attempt)
    refusals = (
        *_of_its_spec(wanted),
        hostpolicy.refusal(asked, wanted.timeout_s, policy),
        *_of_its_volumes(wanted, policy),
    )
    return next(filter(None, refusals), "")


def _of_its_spec(wanted: Asked) -> Iterator[str]:
    """The rules of the API once more."""
    try:
        spec.check_image(wanted.image)
        spec.check_command(wanted.command)
        spec.check_env(wanted.env)
        spec.clean_volumes(wanted.volumes)
        spec.clean_secrets(wanted.secrets)
    except ValidationError as error:
        yield " ".join(error.messages)


def _of_its_volumes(wanted: Asked, policy: HostPolicy) -> Iterator[str]:
    for volume in wanted.volumes:
        source, declared = volume["source"], policy.declared(volume["source"])
        yield policy.refusal_of_volume(source, volume["mode"])
        yield spec.refusal_of_our_own(str(declared.path) if declared else source)
