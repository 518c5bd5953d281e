"""No GPU is held twice: by the rows, by Docker and the hook, and by the programs."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tests.chaos.evidence import Evidence, Violation
from tests.chaos.programs import Program


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """Of one GPU: `vram_mb` of it, or the whole where that is None."""

    who: str
    gpu: str
    begin: float
    end: float
    vram_mb: int | None


def overlaps(uses: Iterable[Use], usable_mb: dict[str, int]) -> Iterator[str]:
    """Each use that began while others left no room for it."""
    by_gpu: dict[str, list[Use]] = {}
    for use in sorted(uses, key=lambda use: use.begin):
        live = [o for o in by_gpu.get(use.gpu, []) if o.end > use.begin]
        by_gpu[use.gpu] = [*live, use]
        if live and not _fits(by_gpu[use.gpu], usable_mb[use.gpu]):
            beside = ", ".join(other.who for other in live)
            yield f"{use.who} began on {use.gpu} beside {beside}"


def _fits(uses: list[Use], usable_mb: int) -> bool:
    sizes = [use.vram_mb for use in uses if use.vram_mb is not None]
    return len(sizes) == len(uses) and sum(sizes) <= usable_mb


def no_overlap_in_rows(seen: Evidence) -> Iterator[Violation]:
    numbers = {a.id: f"{a.job_id} attempt {a.number}" for a in seen.rows.attempts}
    uses = [
        Use(
            who=numbers[hold.attempt_id],
            gpu=hold.gpu,
            begin=hold.reserved_at,
            end=hold.released_at or float("inf"),
            vram_mb=None if hold.is_exclusive else hold.vram_mb,
        )
        for hold in seen.rows.holds
    ]
    for text in overlaps(uses, _usable(seen)):
        yield Violation(rule="I1", subject="allocations", text=text)


def _usable(seen: Evidence) -> dict[str, int]:
    return {gpu.uuid: gpu.usable_mb for gpu in seen.rows.gpus}


def no_overlap_in_containers(seen: Evidence) -> Iterator[Violation]:
    """From the hook's log of starts to when each was last seen to run, or died. One
    that nobody saw again is counted for its start alone: what is found is certain."""
    programs = seen.program_of
    uses = []
    for start in seen.gpu_starts:
        found = seen.containers.get(start.container_id)
        if found is None or found.job not in programs:
            continue
        end = found.died_at or found.last_running_at
        who = f"{found.job} attempt {found.attempt}"
        size = _size(programs[found.job])
        uses += [
            Use(who=who, gpu=gpu, begin=start.at, end=end, vram_mb=size)
            for gpu in start.uuids
        ]
    for text in overlaps(uses, _usable(seen)):
        yield Violation(rule="I1", subject="containers", text=text)


def _size(program: Program) -> int | None:
    return int(program.asks["min_vram_mb"]) if program.asks.get("share") else None


def no_lock_was_taken(seen: Evidence) -> Iterator[Violation]:
    for line in seen.conflicts:
        job, attempt, gpu = line.split()
        text = f"was started on {gpu} while another job's processes had it"
        yield Violation(rule="I1", subject=f"{job} attempt {attempt}", text=text)


def one_container_per_job(seen: Evidence) -> Iterator[Violation]:
    for told in sorted(seen.doubles):
        job, _, text = told.partition(": ")
        yield Violation(rule="I5", subject=job, text=text)
    made: dict[tuple[str, int], set[str]] = {}
    begun = {start.container_id for start in seen.gpu_starts}
    for pk, found in seen.containers.items():
        if pk in begun:
            made.setdefault((found.job, found.attempt), set()).add(pk)
    for (job, attempt), ids in made.items():
        if len(ids) > 1:
            text = f"{len(ids)} containers with GPUs were started for it"
            yield Violation(rule="I5", subject=f"{job} attempt {attempt}", text=text)
