"""Invariants of rows alone, as they were at one moment."""

from collections.abc import Iterable, Iterator, Mapping, Set
from datetime import timedelta
from itertools import pairwise

from jobs.status import LIVE, TERMINAL, Fault, Kind, Reason, Status
from scheduler.invariants.facts import (
    Allocated,
    AttemptFacts,
    Finding,
    GpuFacts,
    JobFacts,
)

# By so much the clocks of two hosts may differ, or one's from itself.
CLOCKS_DIFFER = timedelta(seconds=1)
_STORY = "Read the job's events and the logs of cluster and supervisor of that time."
_RELEASE = (
    "See that nothing of it runs (docker ps, nvidia-smi); the supervisor of its node "
    "releases what ended."
)


def check_job(job: JobFacts) -> Iterator[Finding]:
    """A job with all its attempts and their allocations."""
    yield from _state(job)
    yield from _live_attempts(job)
    yield from _success(job)
    yield from _starts(job)
    for attempt in job.attempts:
        yield from _holding(job, attempt)


def _state(job: JobFacts) -> Iterator[Finding]:
    is_over = job.status in TERMINAL
    if is_over != (job.finished_at is not None):
        told = "has no finished_at" if is_over else "has a finished_at"
        yield Finding(
            invariant="I2",
            code="finished_at",
            what=f"The job is {job.status} and {told}.",
            rows=(f"job {job.job_id}",),
            do=_STORY,
        )
    if job.endings != int(is_over):
        yield Finding(
            invariant="I2",
            code="endings",
            what=f"The job is {job.status}, and {job.endings} events tell of its end.",
            rows=(f"job {job.job_id}",),
            do=_STORY,
        )


def _live_attempts(job: JobFacts) -> Iterator[Finding]:
    live = [each for each in job.attempts if each.is_live]
    if job.status in LIVE:
        own = [each for each in live if each.kind == Kind.JOB]
        if len(own) != 1:
            yield Finding(
                invariant="I3",
                code="live_job",
                what=f"The job is {job.status}, with {len(own)} live attempts.",
                rows=(f"job {job.job_id}", *_names(own)),
                do=_STORY,
            )
    elif live:
        yield Finding(
            invariant="I3",
            code="ended_job",
            what=f"The job is {job.status}, and {len(live)} of its attempts are live.",
            rows=(f"job {job.job_id}", *_names(live)),
            do=_RELEASE,
        )


def _success(job: JobFacts) -> Iterator[Finding]:
    if job.status != Status.SUCCEEDED:
        return
    well = [a for a in job.attempts if a.kind == Kind.JOB and a.reason == "completed"]
    against = _against(job, well[-1]) if well else "no attempt ended well"
    if against:
        yield Finding(
            invariant="I6",
            code="false_success",
            what=f"The job succeeded, but {against}.",
            rows=(f"job {job.job_id}", *_names(well[-1:])),
            do=f"Do not trust its result. {_STORY}",
        )


def _against(job: JobFacts, attempt: AttemptFacts) -> str:
    """What speaks against that success, if anything."""
    if (job.exit_code, attempt.exit_code) != (0, 0):
        return f"its exit code is {attempt.exit_code}, and the job's {job.exit_code}"
    if attempt.started_at is None:
        return "its container was never seen to start"
    if attempt.kill_seen:
        return "Docker was seen to stop it although nobody here asked"
    if attempt.stop_requested_at and not _was_over(attempt):
        return f"it was asked to stop before it exited ({attempt.stop_reason})"
    return ""


def _was_over(attempt: AttemptFacts) -> bool:
    asked_at, exited_at = attempt.stop_requested_at, attempt.exited_at
    assert asked_at is not None
    return exited_at is not None and exited_at < asked_at - CLOCKS_DIFFER


def _starts(job: JobFacts) -> Iterator[Finding]:
    """Numbers without a gap, and another start only after an infra fault or by a
    decision to try something else."""
    numbers = [each.number for each in job.attempts]
    if numbers != list(range(1, len(numbers) + 1)):
        yield Finding(
            invariant="I5",
            code="attempt_numbers",
            what=f"The job's attempts are numbered {numbers}.",
            rows=(f"job {job.job_id}",),
            do=_STORY,
        )
    own = [each for each in job.attempts if each.kind == Kind.JOB]
    for attempt, following in pairwise(own):
        if not _may_follow(attempt, following):
            why = attempt.reason or "nothing: it is still live"
            yield Finding(
                invariant="I5",
                code="started_again",
                what=f"Attempt {following.number} was started after {why}.",
                rows=(f"job {job.job_id}", f"attempt {attempt.name}"),
                do=_STORY,
            )


def _may_follow(attempt: AttemptFacts, following: AttemptFacts) -> bool:
    is_infra = bool(attempt.reason) and Reason(attempt.reason).fault is Fault.INFRA
    return is_infra or (not attempt.is_live and attempt.decision != following.decision)


def _holding(job: JobFacts, attempt: AttemptFacts) -> Iterator[Finding]:
    held = attempt.held
    where = {each.gpu_node for each in held} - {attempt.node}
    if where:
        yield Finding(
            invariant="I3",
            code="other_node",
            what=f"The attempt runs on {attempt.node} and holds GPUs of {min(where)}.",
            rows=(f"attempt {attempt.name}", *_ids(held)),
            do=_STORY,
        )
    wanted = job.gpu_count if attempt.may_hold else 0
    if len(held) != wanted and attempt.kind == Kind.JOB:
        phase = attempt.phase if attempt.is_live else "over"
        yield Finding(
            invariant="I3",
            code="holds",
            what=f"The attempt is {phase}, should hold {wanted} GPUs, holds {len(held)}.",
            rows=(f"attempt {attempt.name}", *_ids(held)),
            do=_RELEASE,
        )


def check_gpu(gpu: GpuFacts, allocations: Iterable[Allocated]) -> Iterator[Finding]:
    """One GPU with its allocations, in the order in which they were reserved."""
    held: list[Allocated] = []
    for each in allocations:
        held = [one for one in held if _overlaps(one, each)]
        yield from (_beside(gpu, one, each) for one in held if _excludes(one, each))
        held.append(each)
    now = [each for each in held if each.is_open]
    for each in now:
        if not each.may_hold:
            yield Finding(
                invariant="I3",
                code="held_by_nobody",
                what=f"GPU {gpu.uuid} is held by an attempt that has no container.",
                rows=(f"attempt {each.attempt}", *_ids([each])),
                do=_RELEASE,
            )
    yield from _sum(gpu, now)


def _overlaps(earlier: Allocated, later: Allocated) -> bool:
    until = earlier.released_at
    return until is None or until > later.reserved_at + CLOCKS_DIFFER


def _excludes(one: Allocated, other: Allocated) -> bool:
    return one.is_exclusive or other.is_exclusive


def _beside(gpu: GpuFacts, earlier: Allocated, later: Allocated) -> Finding:
    tense = "is" if earlier.is_open and later.is_open else "was"
    return Finding(
        invariant="I1",
        code="exclusive_not_alone",
        what=f"GPU {gpu.uuid} {tense} held beside an attempt that has it for itself.",
        rows=(
            *_ids([earlier, later]),
            f"attempt {earlier.attempt}",
            f"attempt {later.attempt}",
        ),
        do="If the clock was not set back then, this is a fault of GPU Jobs: report it.",
    )


def _sum(gpu: GpuFacts, now: list[Allocated]) -> Iterator[Finding]:
    """A headroom that was raised over running jobs is no fault: what was opened before
    stays, and the rule is of the moment of opening."""
    promised = sum(each.vram_mb for each in now)
    if promised <= gpu.usable_mb:
        return
    is_broken = promised > gpu.hardware_mb
    most = gpu.hardware_mb if is_broken else gpu.usable_mb
    yield Finding(
        invariant="I1",
        code="over_allocated",
        what=f"{promised:,} MiB of GPU {gpu.uuid} are promised, of {most:,} MiB.",
        rows=(f"gpu {gpu.uuid}", *_ids(now)),
        do="Drain the GPU, and report this: the database should have refused it."
        if is_broken
        else "Its headroom was raised while jobs ran; it is kept as soon as they end.",
        is_information=not is_broken,
    )


def check_guards(
    expected: Mapping[str, Set[str]], found: Mapping[str, Set[str]]
) -> Iterator[Finding]:
    """Triggers and constraints by table: what the database refuses the illegal with."""
    for table, names in sorted(expected.items()):
        missing = sorted(names - found.get(table, set()))
        if missing:
            yield Finding(
                invariant="I7",
                code="guards",
                what=f"Guards of table {table} are gone or off: {', '.join(missing)}.",
                rows=(f"table {table}",),
                do="Find out who dropped them, and restore them from the migrations.",
            )


def _names(attempts: Iterable[AttemptFacts]) -> list[str]:
    return [f"attempt {each.name}" for each in attempts]


def _ids(allocations: Iterable[Allocated]) -> list[str]:
    return [f"allocation {each.allocation_id}" for each in allocations]
