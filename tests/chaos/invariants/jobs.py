"""Each job: there once, started once per attempt, ended once and rightly."""

from collections import Counter
from collections.abc import Iterator

from jobs.status import TERMINAL, Fault, Reason, Status
from tests.chaos.evidence import Evidence, Violation
from tests.chaos.programs import Program
from tests.chaos.rows import AttemptRow, JobRow

MOST_INFRA_ENDINGS = 5


def one_job_per_key(seen: Evidence) -> Iterator[Violation]:
    """Acknowledged is durable: the id is there at the end, and nobody else's."""
    counts = Counter(job.idempotency_key for job in seen.rows.jobs)
    for key in seen.programs:
        if counts[key] != 1:
            yield Violation(rule="I2", subject=key, text=f"has {counts[key]} jobs")
    for key in counts.keys() - seen.programs.keys():
        yield Violation(rule="I2", subject=key, text="was submitted by nobody")
    found = seen.by_key
    for key, ids in seen.acknowledged.items():
        if key in found and ids != {found[key].id}:
            text = f"was acknowledged as {sorted(ids)} and is {found[key].id}"
            yield Violation(rule="I2", subject=key, text=text)


def every_job_ends_right(seen: Evidence) -> Iterator[Violation]:
    programs, attempts = seen.program_of, seen.attempts_of
    for job in seen.rows.jobs:
        text = _wrong_end(job, programs[job.id], attempts[job.id])
        if text:
            subject = f"{job.id} ({programs[job.id].kind})"
            yield Violation(rule="I6", subject=subject, text=text)


def _wrong_end(job: JobRow, program: Program, attempts: list[AttemptRow]) -> str:
    if job.status not in TERMINAL:
        last = attempts[-1].phase if attempts else "no attempt"
        return f"is {job.status} at the end ({last})"
    reason = Reason(job.reason)
    if reason.status is not Status(job.status):
        return f"is {job.status} for {reason}"
    if reason is Reason.LAUNCH_FAULT and _gave_up(attempts):
        return ""
    if reason not in program.ends:
        return f"ended with {reason} ({job.reason_text[:200]})"
    by_itself = reason in (Reason.COMPLETED, Reason.NONZERO_EXIT)
    if by_itself and program.exit_code not in (None, job.exit_code):
        return f"has exit code {job.exit_code}, not {program.exit_code}"
    return ""


def _gave_up(attempts: list[AttemptRow]) -> bool:
    last = attempts[-MOST_INFRA_ENDINGS:]
    return len(last) == MOST_INFRA_ENDINGS and all(map(_is_infra, last))


def _is_infra(attempt: AttemptRow) -> bool:
    return bool(attempt.reason) and Reason(attempt.reason).fault is Fault.INFRA


def one_terminal_event(seen: Evidence) -> Iterator[Violation]:
    ends = Counter(e.job_id for e in seen.rows.events if e.event_type in TERMINAL)
    last = {event.job_id: event.event_type for event in seen.rows.events}
    for job in seen.rows.jobs:
        if job.status in TERMINAL and ends[job.id] != 1:
            text = f"has {ends[job.id]} terminal events"
            yield Violation(rule="I2", subject=job.id, text=text)
        elif job.status in TERMINAL and last[job.id] != job.status:
            text = f"{last[job.id]} came after its end"
            yield Violation(rule="I2", subject=job.id, text=text)


def one_usage_record_per_attempt(seen: Evidence) -> Iterator[Violation]:
    told = Counter(seen.rows.usage)
    for attempt in seen.rows.attempts:
        name = f"{attempt.job_id} {attempt.number}"
        if attempt.ended_at is not None and told[name] != 1:
            text = f"has {told[name]} usage records"
            yield Violation(rule="I2", subject=name, text=text)


def one_start_per_attempt(seen: Evidence) -> Iterator[Violation]:
    """By the programs' own word. Who ended by itself was started."""
    starts = Counter((start.job, start.attempt) for start in seen.starts)
    known = {(a.job_id, a.number): a for a in seen.rows.attempts}
    for (job, number), count in starts.items():
        subject = f"{job} attempt {number}"
        if count > 1:
            yield Violation(rule="I5", subject=subject, text=f"started {count} times")
        if (job, number) not in known:
            yield Violation(rule="I5", subject=subject, text="ran and has no row")
    for (job, number), attempt in known.items():
        ended = attempt.reason in (Reason.COMPLETED, Reason.NONZERO_EXIT)
        if ended and not starts[job, number]:
            subject = f"{job} attempt {number}"
            text = f"is {attempt.reason} and never started"
            yield Violation(rule="I6", subject=subject, text=text)


def again_only_for_infra(seen: Evidence) -> Iterator[Violation]:
    for job_id, attempts in seen.attempts_of.items():
        numbers = [attempt.number for attempt in attempts]
        if numbers != list(range(1, len(numbers) + 1)):
            text = f"has the attempts {numbers}"
            yield Violation(rule="I5", subject=job_id, text=text)
        for attempt in attempts[:-1]:
            if not _is_infra(attempt):
                text = f"was started again after {attempt.reason or attempt.phase}"
                yield Violation(rule="I5", subject=job_id, text=text)
