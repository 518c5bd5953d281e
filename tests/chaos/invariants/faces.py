"""What people see: logs, artifacts, answers of the API, and how soon a cancel ends."""

from collections.abc import Iterator

from jobs.status import Reason
from tests.chaos.evidence import Evidence, Violation
from tests.chaos.kills import Kill
from tests.chaos.programs import Program
from tests.chaos.rows import JobRow

CANCEL_S = 10.0


def logs_are_whole(seen: Evidence) -> Iterator[Violation]:
    """Who came to its end printed every line; who did not, the first of them.

    A dockerd that is killed takes the lines along that it has read and not written,
    and those of a program that ends before the next dockerd listens: then lines may be
    missing. In their order and once they are in any case.
    """
    for job, program, text in _not_whole(seen):
        if _met_dockerds_death(seen, job):
            text = wrong_order(seen.logs.get(job.id, b""))
        if text:
            subject = f"{job.id} ({program.kind}, {job.reason})"
            yield Violation(rule="I8", subject=subject, text=text)


def logs_cut(seen: Evidence) -> int:
    """Those that a death of dockerd excuses."""
    return sum(_met_dockerds_death(seen, job) for job, _, _ in _not_whole(seen))


def _not_whole(seen: Evidence) -> Iterator[tuple[JobRow, Program, str]]:
    programs = seen.program_of
    for job in seen.rows.jobs:
        program, log = programs[job.id], seen.logs.get(job.id, b"")
        is_whole = job.reason in (Reason.COMPLETED, Reason.NONZERO_EXIT)
        text = wrong_log(log, program, is_whole=is_whole)
        if text:
            yield job, program, text


def _met_dockerds_death(seen: Evidence, job: JobRow) -> bool:
    attempts = seen.attempts_of[job.id]
    began = attempts[-1].started_at if attempts else None
    ended = (attempts[-1].ended_at if attempts else None) or float("inf")
    deaths = [k for k in seen.kills if k.victim == "dockerd"]
    return began is not None and any(
        began < k.at + k.down_s and k.at < ended for k in deaths
    )


def wrong_log(log: bytes, program: Program, *, is_whole: bool) -> str:
    told = log.decode(errors="replace").splitlines()
    expected = [f"line {number}" for number in range(1, program.lines + 1)]
    if is_whole and told == expected:
        return ""
    if not is_whole and told == expected[: len(told)]:
        return ""
    for number, (line, right) in enumerate(zip(told, expected, strict=False), start=1):
        if line != right:
            return f"line {number} of the log is {line[:80]!r}, of {len(told)} lines"
    return f"the log has {len(told)} lines of {len(expected)}"


def wrong_order(log: bytes) -> str:
    last = 0
    for line in log.decode(errors="replace").splitlines():
        if line.startswith("[gpujobs: ") or not line:
            continue
        number = line.removeprefix("line ")
        if not number.isdigit() or int(number) <= last:
            return f"{line[:80]!r} comes after line {last} in the log"
        last = int(number)
    return ""


def artifacts_are_there(seen: Evidence) -> Iterator[Violation]:
    programs = seen.program_of
    for job in seen.rows.jobs:
        right = programs[job.id].artifact
        if right and job.reason == Reason.COMPLETED:
            got = seen.artifacts.get(job.id, "nothing").strip()
            if got != right:
                text = f"its artifact is {got[:80]!r}, not {right!r}"
                yield Violation(rule="I6", subject=job.id, text=text)


def api_answered(seen: Evidence) -> Iterator[Violation]:
    for told in seen.refused:
        yield Violation(rule="I10", subject="API", text=told)
    for told, count in seen.web_errors.items():
        text = f"{count} unhandled errors: {told[:200]}"
        yield Violation(rule="I10", subject="web", text=text)


def cancel_waits(seen: Evidence) -> list[tuple[str, float, float]]:
    """Of each accepted cancel: the job, the seconds to its end, and those allowed."""
    ended = {job.id: job.finished_at for job in seen.rows.jobs}
    programs = seen.program_of
    waits = []
    for job_id, cancel in seen.cancels.items():
        at = ended.get(job_id)
        if at is not None:
            allowed_s = programs[job_id].grace_s + CANCEL_S
            allowed_s += _held_up_s(seen.kills, cancel.accepted_at, at)
            waits.append((job_id, max(0.0, at - cancel.accepted_at), allowed_s))
    return waits


def _held_up_s(kills: list[Kill], begin: float, end: float) -> float:
    """Also by a kill of a little before, from which it has not recovered."""
    met = [k for k in kills if k.at < end and k.at + k.holds_up_s > begin]
    return sum(kill.holds_up_s for kill in met)


def cancels_were_quick(seen: Evidence) -> Iterator[Violation]:
    for job_id, waited_s, allowed_s in cancel_waits(seen):
        if waited_s > allowed_s:
            text = f"took {waited_s:.1f} s to end; {allowed_s:.1f} s are allowed"
            yield Violation(rule="I11", subject=job_id, text=text)
