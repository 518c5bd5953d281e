"""What must hold, whatever was killed and when. Each check is pure.

The names are those of the plan: I1 GPUs are held once, I2 one end, I3 nothing is held
at the end, I4 no container is left, I5 one start per attempt, I6 no false success, I8
logs, I9 nothing below Docker, I10 the API, I11 cancels, I12 a quiet end.
"""

from collections.abc import Callable, Iterator

from tests.chaos.evidence import Evidence, Violation
from tests.chaos.invariants import faces, gpus, jobs, quiet

CHECKS: tuple[Callable[[Evidence], Iterator[Violation]], ...] = (
    jobs.one_job_per_key,
    jobs.every_job_ends_right,
    jobs.one_terminal_event,
    jobs.one_usage_record_per_attempt,
    jobs.one_start_per_attempt,
    jobs.again_only_for_infra,
    gpus.no_overlap_in_rows,
    gpus.no_overlap_in_containers,
    gpus.no_lock_was_taken,
    gpus.one_container_per_job,
    faces.logs_are_whole,
    faces.artifacts_are_there,
    faces.api_answered,
    faces.cancels_were_quick,
    quiet.nothing_is_held,
    quiet.nothing_is_left,
    quiet.verify_agrees,
    quiet.kills_worked,
)


def violations(evidence: Evidence) -> list[Violation]:
    return [found for check in CHECKS for found in check(evidence)]


def too_few_kills(evidence: Evidence, least: int) -> list[Violation]:
    """A run in which little was killed has shown little."""
    count = len(evidence.kills)
    text = f"only {count} of {least}"
    return [Violation(rule="harness", subject="kills", text=text)] * (count < least)
