"""What a run tells at its end: short for people, JSON for machines."""

from collections import Counter
from typing import Any

from tests.chaos.evidence import Evidence, Violation
from tests.chaos.invariants.faces import cancel_waits, logs_cut

MOST_SHOWN = 40


def summary(
    seen: Evidence,
    found: list[Violation],
    *,
    seed: int,
    took_s: float,
    load: tuple[float, float, float],
    notes: dict[str, Any],
) -> dict[str, Any]:
    waits = sorted(waited_s for _, waited_s, _ in cancel_waits(seen))
    requeued = [a.reason for group in seen.attempts_of.values() for a in group[:-1]]
    return {
        "seed": seed,
        "took_s": round(took_s, 1),
        "load": [round(value, 2) for value in load],
        "jobs": len(seen.rows.jobs),
        "kinds": dict(Counter(p.kind for p in seen.programs.values())),
        "ends": dict(Counter(job.reason or job.status for job in seen.rows.jobs)),
        "attempts": len(seen.rows.attempts),
        "program_starts": len(seen.starts),
        "gpu_starts": len(seen.gpu_starts),
        "requeues": dict(Counter(requeued)),
        "kills": dict(Counter(kill.victim for kill in seen.kills)),
        "kills_at": [f"{k.at:.2f} {k.victim} {k.down_s:.2f} s" for k in seen.kills],
        "kills_total": len(seen.kills),
        "logs_cut_by_dockerd": logs_cut(seen),
        "cancels": len(waits),
        "cancel_s": {name: _share(waits, of) for name, of in SHARES.items()},
        "answers": dict(sorted(seen.answers.items())),
        "failed_tasks": dict(Counter(seen.rows.failed_tasks).most_common(20)),
        **notes,
        "violations": [str(violation) for violation in found],
    }


SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


def _share(values: list[float], share: float) -> float | None:
    last = len(values) - 1
    return round(values[round(share * last)], 2) if values else None


def text(told: dict[str, Any]) -> str:
    cancels = ", ".join(f"{name} {value} s" for name, value in told["cancel_s"].items())
    size = f"{told['jobs']} jobs, {told['kills_total']} kills in {told['took_s']} s"
    lines = [
        f"chaos, seed {told['seed']}: {size}, load {told['load'][0]}",
        f"  ends      {_counts(told['ends'])}",
        f"  kills     {_counts(told['kills'])}",
        f"  attempts  {told['attempts']}, programs started {told['program_starts']}",
        f"  requeues  {_counts(told['requeues']) or 'none'}",
        f"  logs      {told['logs_cut_by_dockerd']} cut where dockerd was killed",
        f"  cancels   {told['cancels']}: {cancels}",
    ]
    if told["failed_tasks"]:
        lines += ["  failed tasks"]
        lines += [f"    {n} x {why[:150]}" for why, n in told["failed_tasks"].items()]
    violations = told["violations"]
    lines += [f"  {len(violations)} VIOLATIONS" if violations else "  no violation"]
    lines += [f"    {violation[:400]}" for violation in violations[:MOST_SHOWN]]
    return "\n".join(lines)


def _counts(counts: dict[str, int]) -> str:
    largest = sorted(counts.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{name} {count}" for name, count in largest)
