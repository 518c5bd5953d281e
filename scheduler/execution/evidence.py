"""What the kernel says of a container once it runs: kept on its attempt, and acted on."""

from dataclasses import asdict, replace

from jobs import lifecycle
from jobs.models import Attempt
from jobs.status import Reason
from scheduler import hostpolicy
from scheduler.execution.ground import BY, node_runner
from scheduler.execution.launchspec import launch_spec
from scheduler.execution.refusing import node_policy
from scheduler.execution.staging import staged
from scheduler.runner.base import Observation


def check_rights(attempt: Attempt, found: Observation) -> None:
    """One that may or sees more than it was to is killed at once, with no grace."""
    allowed = node_policy().capabilities
    meant = replace(launch_spec(attempt), mounts=staged(attempt), capabilities=allowed)
    rights = node_runner().rights(found.container_id, meant.mounts)
    if rights is None:
        return
    attempt.evidence = {**attempt.evidence, "rights": asdict(rights)}
    attempt.save(update_fields=["evidence"])
    if text := hostpolicy.objection(meant, rights):
        lifecycle.request_stop(attempt, Reason.POLICY_DENIED, text=text, by=BY)
        node_runner().stop(found.container_id, force=True)
