"""What an owner and a group may have at once, and what stands against a job."""

from collections.abc import Iterator

from scheduler.placement.terms import Account, Lane, Snapshot


class Ledger:
    """What each account has in this pass: what runs, what was just placed, and what
    has a reservation. A limit that this fills stands against those behind, who could
    else delay whom the reservation is for."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        # By kind and name: jobs, GPUs, MiB placed or reserved by this pass.
        self._added: dict[tuple[str, str], tuple[int, int, int]] = {}
        self._tasks: dict[str, int] = {}

    def refusal(self, lane: Lane) -> str:
        """Which limit stands against one more job of the lane; empty if none."""
        running = lane.array_running + self._tasks.get(lane.array_id, 0)
        if lane.array_limit is not None and running >= lane.array_limit:
            return f"Its array lets {lane.array_limit} of its tasks run at once."
        for kind, name, account in self._accounts(lane):
            text = self._over(kind, name, account, lane.request.gpu_count)
            if text:
                return text
        return ""

    def over_vram(self, lane: Lane, wanted: int) -> str:
        """As `refusal`, of so many MiB of VRAM that it would take."""
        for kind, name, account in self._accounts(lane):
            most = account.limits.vram_mb
            has = account.vram_mb + self._of(kind, name)[2]
            if most is not None and has + wanted > most:
                return (
                    f"{_subject(kind, name)} {has:,} of {most:,} MiB of VRAM; this "
                    f"takes {wanted:,} more."
                )
        return ""

    def add(self, lane: Lane, vram_mb: int) -> None:
        self._tasks[lane.array_id] = self._tasks.get(lane.array_id, 0) + 1
        for kind, name, _ in self._accounts(lane):
            jobs, gpus, had_mb = self._of(kind, name)
            gpus += lane.request.gpu_count
            self._added[kind, name] = jobs + 1, gpus, had_mb + vram_mb

    def _accounts(self, lane: Lane) -> Iterator[tuple[str, str, Account]]:
        if lane.owner in self._snapshot.owners:
            yield "owner", lane.owner, self._snapshot.owners[lane.owner]
        if lane.group in self._snapshot.groups:
            yield "group", lane.group, self._snapshot.groups[lane.group]

    def _of(self, kind: str, name: str) -> tuple[int, int, int]:
        return self._added.get((kind, name), (0, 0, 0))

    def _over(self, kind: str, name: str, account: Account, gpu_count: int) -> str:
        limits, (jobs, gpus, _) = account.limits, self._of(kind, name)
        subject = _subject(kind, name)
        jobs, gpus = jobs + account.running_jobs, gpus + account.gpus
        if limits.running_jobs is not None and jobs >= limits.running_jobs:
            added = " or next" if jobs > account.running_jobs else ""
            return f"{subject} {jobs} of {limits.running_jobs} jobs running{added}."
        if limits.gpus is not None and gpus + gpu_count > limits.gpus:
            return f"{subject} {gpus} of {limits.gpus} GPUs; this takes {gpu_count}."
        hours = account.gpu_seconds / 3600
        if gpu_count and limits.gpu_hours is not None and hours >= limits.gpu_hours:
            return (
                f"{subject} used {hours:,.1f} of {limits.gpu_hours:,} GPU-hours in 30 "
                "days. It waits until enough of them are longer ago."
            )
        return ""


def _subject(kind: str, name: str) -> str:
    return f"{name} has" if kind == "owner" else f"The group {name} has"
