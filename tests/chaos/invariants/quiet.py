"""When all is quiet nothing is held, and nothing is left."""

from collections.abc import Iterator

from tests.chaos.evidence import Evidence, Violation

# A stand-in GPU is used by nobody but us.
ENABLED = "enabled"


def nothing_is_held(seen: Evidence) -> Iterator[Violation]:
    for hold in seen.rows.holds:
        if hold.released_at is None:
            text = f"attempt {hold.attempt_id} still holds {hold.vram_mb} MiB"
            yield Violation(rule="I3", subject=hold.gpu, text=text)
    for attempt in seen.rows.attempts:
        if attempt.ended_at is None:
            text = f"attempt {attempt.number} is live ({attempt.phase})"
            yield Violation(rule="I3", subject=attempt.job_id, text=text)
    for gpu in seen.rows.gpus:
        if gpu.state != ENABLED or not gpu.is_present or gpu.foreign_mb:
            text = f"is {gpu.state}, present {gpu.is_present}, foreign {gpu.foreign_mb}"
            yield Violation(rule="I12", subject=gpu.uuid, text=text)


def nothing_is_left(seen: Evidence) -> Iterator[Violation]:
    kinds = (
        ("I4", "container", seen.left.containers),
        ("I9", "process in a container's cgroup", seen.left.container_processes),
        ("I9", "shim", seen.left.shims),
        ("I12", "process of a service", seen.left.processes),
        ("I12", "work folder", seen.left.work_folders),
    )
    for rule, kind, names in kinds:
        for name in names:
            yield Violation(rule=rule, subject=kind, text=f"{name} is left")


def verify_agrees(seen: Evidence) -> Iterator[Violation]:
    if seen.verified:
        yield Violation(rule="verify", subject="manage.py verify", text=seen.verified)


def kills_worked(seen: Evidence) -> Iterator[Violation]:
    """A harness that could not do what it meant to has shown nothing."""
    for told in seen.kill_failures:
        yield Violation(rule="harness", subject="kill", text=told)
