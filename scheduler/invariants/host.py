"""Invariants of one node: rows against containers, processes and files.

All of these may be seen in flight: who asks compares two looks.
"""

from collections.abc import Iterator
from datetime import timedelta
from itertools import combinations

from jobs.status import Phase
from scheduler.invariants.facts import AttemptFacts, Finding, HostFacts
from scheduler.runner.base import ContainerState, Observation

# So long a container may stay after its attempt ended.
GONE_WITHIN = timedelta(seconds=60)
# So long after its grace what was asked to stop may still run.
STOPPED_WITHIN = timedelta(seconds=10)
MIB = 2**20
# What marks a cut, beside the head and the tail that the cap is for.
MARKS = 4096
_SUPERVISOR = "See that the supervisor and the cluster of this node run."


def check_host(facts: HostFacts) -> Iterator[Finding]:
    for check in (_containers, _missing, _shared, _below, _on_gpus, _wishes, _files):
        yield from check(facts)


def _owner(facts: HostFacts, found: Observation) -> AttemptFacts | None:
    """The attempt that the container was made for: nonce and name say the same one."""
    attempt = facts.attempts.get(found.nonce)
    return attempt if attempt and attempt.name == found.name else None


def _containers(facts: HostFacts) -> Iterator[Finding]:
    """Each against its attempt."""
    for found in facts.containers or ():
        attempt = _owner(facts, found)
        if attempt is None:
            yield _foreign(found)
        elif not attempt.is_live:
            yield from _left(facts, attempt)
        elif found.state is ContainerState.RUNNING:
            yield from _running(attempt, found)


def _foreign(found: Observation) -> Finding:
    return Finding(
        invariant="I4",
        code="foreign",
        what="A container is labelled as one of ours, and no attempt ever had its nonce.",
        rows=(f"container {found.name}",),
        do="It is left alone. After a restored backup it may be a job of before: stop it"
        " (docker stop) if nobody wants it.",
        is_information=True,
    )


def _left(facts: HostFacts, attempt: AttemptFacts) -> Iterator[Finding]:
    assert attempt.ended_at is not None
    # Either way: a clock that was set back must not hide it for hours.
    if abs(facts.now - attempt.ended_at) > GONE_WITHIN:
        yield Finding(
            invariant="I4",
            code="left",
            what="The attempt ended, and its container is still there.",
            rows=(f"attempt {attempt.name}",),
            do=f"{_SUPERVISOR} If it stays: docker rm -f {attempt.name}",
        )


def _running(attempt: AttemptFacts, found: Observation) -> Iterator[Finding]:
    if not attempt.may_hold:
        yield Finding(
            invariant="I4",
            code="runs_on",
            what=f"The attempt is {attempt.phase}, and its container still runs: its GPUs"
            " may be given to others.",
            rows=(f"attempt {attempt.name}",),
            do="Drain this node, then docker kill the container.",
        )
    extra = set(found.gpu_uuids) - {each.uuid for each in attempt.held}
    if attempt.may_hold and extra:
        yield Finding(
            invariant="I1",
            code="gpu_not_held",
            what=f"Its container was given {', '.join(sorted(extra))}, not held by it.",
            rows=(f"attempt {attempt.name}",),
            do="Drain those GPUs, and report this.",
        )


def _missing(facts: HostFacts) -> Iterator[Finding]:
    if facts.containers is None:
        return
    nonces = {each.nonce for each in facts.containers}
    for nonce, attempt in facts.attempts.items():
        is_running = attempt.is_live and attempt.phase == Phase.RUNNING
        if is_running and nonce not in nonces:
            yield Finding(
                invariant="I4",
                code="no_container",
                what="The attempt is said to run, and has no container.",
                rows=(f"attempt {attempt.name}",),
                do=_SUPERVISOR,
            )


def _shared(facts: HostFacts) -> Iterator[Finding]:
    """No two that run share a GPU that one of them has for itself."""
    running = [
        (found, attempt)
        for found in facts.containers or ()
        if found.state is ContainerState.RUNNING and (attempt := _owner(facts, found))
    ]
    for (one, its), (other, others) in combinations(running, 2):
        alone = {
            each.uuid
            for attempt in (its, others)
            for each in attempt.allocations
            if each.is_exclusive
        }
        both = alone & set(one.gpu_uuids) & set(other.gpu_uuids)
        if both:
            yield Finding(
                invariant="I1",
                code="containers_share",
                what=f"Two containers run on {', '.join(sorted(both))}, which one of them"
                " has for itself.",
                rows=(f"container {one.name}", f"container {other.name}"),
                do="Drain the GPU, and report this.",
            )


def _below(facts: HostFacts) -> Iterator[Finding]:
    for each in facts.strays:
        pids = ", ".join(str(pid) for pid, _ in each.stray.processes)
        yield Finding(
            invariant="I9",
            code="stray",
            what=f"Docker has forgotten this container, whose processes {pids} run on.",
            rows=(f"attempt {each.name}", f"container {each.stray.container_id}"),
            do=f"{_SUPERVISOR} It ends them; if they stay, kill -9 them.",
        )


def _on_gpus(facts: HostFacts) -> Iterator[Finding]:
    """Processes that a driver lists, in containers that are ours."""
    owners: dict[str, AttemptFacts] = {
        found.container_id: attempt
        for found in facts.containers or ()
        if (attempt := _owner(facts, found))
    }
    forgotten = {each.stray.container_id: each.name for each in facts.strays}
    for process in facts.processes:
        id_ = process.container_id or ""
        attempt = owners.get(id_)
        name = attempt.name if attempt else forgotten.get(id_, "")
        held = {each.uuid for each in attempt.held} if attempt else set()
        if name and process.uuid not in held:
            yield Finding(
                invariant="I9",
                code="gpu_process",
                what=f"Process {process.pid} of a container of ours uses GPU"
                f" {process.uuid}, which its attempt does not hold.",
                rows=(f"attempt {name}", f"gpu {process.uuid}"),
                do="End it (docker kill, or kill -9), and drain the GPU until it is gone.",
            )


def _wishes(facts: HostFacts) -> Iterator[Finding]:
    for attempt in facts.attempts.values():
        asked_at = attempt.stop_requested_at
        if not attempt.may_hold or asked_at is None:
            continue
        due = timedelta(seconds=attempt.grace_s) + STOPPED_WITHIN
        if abs(facts.now - asked_at) > due:
            yield Finding(
                invariant="I11",
                code="not_stopped",
                what=f"It was asked to stop ({attempt.stop_reason}), and is still there"
                f" after its grace of {attempt.grace_s} s.",
                rows=(f"attempt {attempt.name}",),
                do=f"{_SUPERVISOR} A process that not even SIGKILL ends waits for the"
                " driver or a disk: reboot the node.",
            )


def _files(facts: HostFacts) -> Iterator[Finding]:
    yield from _logs(facts)
    yield from _artifacts(facts)
    for name in facts.folders:
        yield Finding(
            invariant="I12",
            code="work_folder",
            what="A work folder is left that no live attempt has.",
            rows=(f"folder {name}",),
            do="Look what is in it; nothing needs it any more, and it may be removed.",
        )


def _logs(facts: HostFacts) -> Iterator[Finding]:
    most = facts.log_cap_mb * MIB + MARKS
    for log in facts.logs:
        if log.size is not None and log.size <= most:
            continue
        told = "is missing" if log.size is None else f"has {log.size:,} bytes"
        yield Finding(
            invariant="I8",
            code="log",
            what=f"The log {log.path} {told}; its cap is {facts.log_cap_mb} MiB.",
            rows=(f"attempt {log.attempt}",),
            do="If the cap was lowered since, wait a day; else report this."
            if log.size
            else "Find out who removed it; if the disk is sound, restore a backup.",
        )


def _artifacts(facts: HostFacts) -> Iterator[Finding]:
    for each in facts.artifacts:
        if each.is_hashed and each.stored_size == each.size:
            continue
        there = "nothing" if each.stored_size is None else f"{each.stored_size:,} bytes"
        told = f"{each.size:,} bytes" if each.is_hashed else "never hashed"
        yield Finding(
            invariant="I12",
            code="artifact",
            what=f"The result {each.path!r} should be {told}, and there is {there}.",
            rows=(f"attempt {each.attempt}", f"artifact {each.path}"),
            do="The result can not be trusted: restore it from a backup, or run it again.",
        )
