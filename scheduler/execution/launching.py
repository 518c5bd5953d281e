"""Launch: from GPUs that are reserved to a container that runs, or to the reason."""

import errno
import os
from dataclasses import replace
from pathlib import Path

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from jobs import lifecycle, storage
from jobs.failpoints import failpoint
from jobs.models import Attempt
from jobs.secrets import mask_text
from jobs.status import Fault, Phase, Reason
from scheduler import ending
from scheduler.execution.asked import asked_of
from scheduler.execution.evidence import check_rights
from scheduler.execution.ground import (
    BY,
    attempt_lock,
    look,
    node_runner,
    read,
    wipe,
)
from scheduler.execution.inputs import write_inputs
from scheduler.execution.launchspec import launch_spec
from scheduler.execution.pausing import pause_if_starts_fail
from scheduler.execution.refusing import node_policy, refusal
from scheduler.execution.sealing import given_values, take_secrets
from scheduler.execution.staging import stage
from scheduler.models import ImageState, Node, NodeImage
from scheduler.mounting import NotAllowed
from scheduler.reservation import end_held, wake
from scheduler.runner.base import (
    ContainerState,
    LaunchSpec,
    Mount,
    Observation,
    RunnerFault,
    boot_id,
)

# The key under which an attempt's evidence tells that its container is not wanted.
GIVEN_UP = "given_up"


def launch(attempt_id: str) -> None:
    """starting -> running, or the end of the attempt if it can not be started."""
    with attempt_lock(attempt_id) as held:
        attempt = read(attempt_id) if held else None
        if attempt is None or not attempt.is_live or attempt.phase != Phase.STARTING:
            return
        found = look(attempt)
        if found is not None:
            _settle(attempt, found)
        elif given_up := attempt.evidence.get(GIVEN_UP):
            _end_given_up(attempt, given_up)
        elif attempt.stop_reason:
            _end_unstarted(attempt, *_ordered(attempt))
        else:
            _create(attempt)


def _ordered(attempt: Attempt) -> tuple[Reason, str]:
    known = ending.Known(stop_reason=Reason(attempt.stop_reason))
    ended = ending.judge(None, known)
    return ended.reason, ended.text


def _settle(attempt: Attempt, found: Observation) -> None:
    """Adopt what runs or ran. What was only made is never started: the start of a
    launcher that died may still be on its way inside the daemon."""
    if found.state is not ContainerState.CREATED:
        if found.state is ContainerState.RUNNING:
            check_rights(attempt, found)
        failpoint("launch.checked")
        mark_running(attempt, found)
        return
    ended = ending.judge(found, ending.Known())
    _give_up(attempt, found, ended.reason, ended.text)


def _give_up(attempt: Attempt, found: Observation, reason: Reason, text: str) -> None:
    """Remove what was made, and end the attempt once nothing of it is there.

    Written down first: were it forgotten after the removal, a launch would make another
    container for this attempt, whose program may have been started by the first.
    """
    told = {"container": found.container_id, "reason": reason, "text": text}
    attempt.evidence = {GIVEN_UP: told}
    attempt.save(update_fields=["evidence"])
    node_runner().remove(attempt.container)
    failpoint("launch.removed")
    # A removal that is under way is no evidence yet, and launch is asked for again.
    if look(attempt) is None:
        _end_given_up(attempt, told)


def _end_given_up(attempt: Attempt, told: dict[str, str]) -> None:
    """Also what the daemon has forgotten may run: its GPU is held until it is ended."""
    for stray in node_runner().strays():
        if stray.container_id == told["container"]:
            node_runner().end_stray(stray)
            return
    _end_unstarted(attempt, Reason(told["reason"]), told["text"])


def mark_running(attempt: Attempt, found: Observation) -> None:
    assert found.started_at is not None
    lifecycle.mark_running(
        attempt,
        container_id=found.container_id,
        image_digest=found.image_digest,
        boot_id=attempt.boot_id or boot_id(),
        started_at=found.started_at,
        by=BY,
    )
    failpoint("launch.running")


def _create(attempt: Attempt) -> None:
    failpoint("launch.begun")
    # Before anything of it can run: after a restart of the node nobody knows else.
    attempt.boot_id = boot_id()
    versions = Node.objects.values_list("versions", flat=True).get(name=attempt.node)
    attempt.evidence = {**attempt.evidence, "versions": versions}
    attempt.save(update_fields=["boot_id", "evidence"])
    try:
        found = _launch(attempt)
    except NotAllowed as refused:
        _end_unstarted(attempt, Reason.POLICY_DENIED, str(refused))
        return
    except RunnerFault as fault:
        # The daemon may say again what it was given.
        text = mask_text(str(fault), given_values(attempt))
        _after_fault(attempt, RunnerFault(fault.reason, text))
        return
    failpoint("launch.launched")
    if found.nonce == attempt.nonce:
        _settle(attempt, found)
    else:
        text = f"Another container is named {attempt.container_name}."
        _end_unstarted(attempt, Reason.LAUNCH_FAULT, text)


def _launch(attempt: Attempt) -> Observation:
    policy = node_policy()
    spec = launch_spec(attempt)
    if refused := refusal(attempt, spec, policy):
        raise NotAllowed(refused)
    given = take_secrets(attempt)
    mounts = stage(attempt, policy)
    _refuse_unseen(mounts)
    spec = replace(
        spec,
        # What is ours stays ours, whatever a secret is called.
        env={**given, **spec.env},
        mounts=mounts,
        capabilities=policy.capabilities,
    )
    failpoint("launch.staged")
    try:
        _make_folders(spec)
        write_inputs(attempt)
        storage.open_log(attempt)
    except OSError as error:
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        reason = Reason.DISK_FULL if is_full else Reason.DAEMON_FAULT
        raise RunnerFault(reason, f"Its folders can not be made: {error}") from error
    failpoint("launch.prepared")
    return node_runner().launch(spec)


def _refuse_unseen(mounts: tuple[Mount, ...]) -> None:
    """A job that found an empty folder for its data might end well with it."""
    for mount in mounts:
        if not node_runner().sees(Path(mount.source)):
            text = (
                "Docker does not see what manage.py cluster mounts: run it in the "
                "host's mount namespace (no PrivateMounts, PrivateTmp, ProtectSystem)."
            )
            raise RunnerFault(Reason.DAEMON_FAULT, text)


def _after_fault(attempt: Attempt, fault: RunnerFault) -> None:
    """A launch that failed may have started all the same: look before judging.

    Where even looking fails the GPUs stay reserved, and launch is asked for again.
    """
    found = look(attempt)
    if found is not None and found.state is not ContainerState.CREATED:
        _settle(attempt, found)
        return
    reason = fault.reason
    image = asked_of(attempt).image
    if reason is Reason.IMAGE_NOT_FOUND:
        # It was there when the job was placed: look for it again, then try again.
        NodeImage.objects.filter(node__name=attempt.node, image=image).update(
            state=ImageState.WANTED, updated_at=timezone.now()
        )
        reason = Reason.LAUNCH_FAULT
    # Only what is there and ours: with its name alone it may be somebody else's.
    if found is not None:
        _give_up(attempt, found, reason, str(fault))
    else:
        _end_unstarted(attempt, reason, str(fault))


def _end_unstarted(attempt: Attempt, reason: Reason, text: str) -> None:
    wipe(attempt)
    failpoint("launch.wiped")
    with transaction.atomic():
        end_held(attempt, reason, text, by=BY)
        failpoint("launch.ended_unstarted")
    failpoint("launch.committed_unstarted")
    if reason.fault is Fault.INFRA:
        pause_if_starts_fail(attempt.node, text)
    wake()


def _make_folders(spec: LaunchSpec) -> None:
    """The job's user may pass through those above its own, and look into none."""
    spec.artifacts.parent.mkdir(parents=True, exist_ok=True)
    for folder in (settings.RUN_ROOT, *list(spec.artifacts.parents)[:2]):
        folder.chmod(0o711)
    for folder in (spec.artifacts, spec.scratch):
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        if os.geteuid() == 0:
            os.chown(folder, *spec.user)
