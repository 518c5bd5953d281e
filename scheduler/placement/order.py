"""Who is first: effective priority, then fair share, then age.

The first job of a lane gains a point of priority for each `aging_s` that it has been
the first, so that every wait is bounded; the jobs behind it begin to age when it has
started, so that a flood of jobs does not age as one.
"""

import heapq
from collections.abc import Iterator, Sequence

from scheduler.placement.terms import CHARGED_AT_ONCE_S, Lane, Snapshot

Key = tuple[float, int, float, float, float, str]


def effective_priority(snapshot: Snapshot, lane: Lane, position: int) -> int:
    if position or snapshot.aging_s <= 0:
        return lane.priority
    waited = max(0.0, snapshot.now - lane.aged_from)
    return lane.priority + int(waited // snapshot.aging_s)


class LineUp:
    """The order of the line, one job after another. Whoever takes a job out of it says
    whether the next one of its lane is to follow."""

    def __init__(self, snapshot: Snapshot, lanes: Sequence[Lane]) -> None:
        self._snapshot = snapshot
        self._lanes = lanes
        self._usage: dict[tuple[str, str], float] = {}
        # A GPU of no stated size counts as the largest.
        sizes = [gpu.usable_mb for gpu in snapshot.gpus.values()]
        self._whole_mb = max(sizes, default=1)
        self._heap = [(self._key(i, 0), i, 0) for i in range(len(lanes))]
        heapq.heapify(self._heap)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Indices of lanes, each with the position of the job in its lane."""
        while self._heap:
            key, index, position = heapq.heappop(self._heap)
            # Its owner may have been charged since: keys only grow.
            fresh = self._key(index, position)
            if fresh > key:
                heapq.heappush(self._heap, (fresh, index, position))
            else:
                yield index, position

    def advance(self, index: int, position: int) -> None:
        """The job is placed or has a reservation: charge it, let the next one follow."""
        lane = self._lanes[index]
        request = lane.request
        vram_mb = (request.min_vram_mb if request.share else None) or self._whole_mb
        cost = request.gpu_count * vram_mb * min(request.limit_s, CHARGED_AT_ONCE_S)
        for account in (("owner", lane.owner), ("group", lane.group)):
            self._usage[account] = self._usage.get(account, 0.0) + cost
        if position + 1 < len(lane.jobs):
            key = self._key(index, position + 1)
            heapq.heappush(self._heap, (key, index, position + 1))

    def _key(self, index: int, position: int) -> Key:
        lane = self._lanes[index]
        job_id, created_at = lane.jobs[position]
        own = self._used("owner", lane.owner)
        shared = self._used("group", lane.group) if lane.group else own
        priority = effective_priority(self._snapshot, lane, position)
        return -lane.topped_at, -priority, shared, own, created_at, job_id

    def _used(self, kind: str, name: str) -> float:
        accounts = self._snapshot.owners if kind == "owner" else self._snapshot.groups
        account = accounts.get(name)
        charged = self._usage.get((kind, name), 0.0)
        if account is None:
            return charged
        return (account.usage + charged) / account.shares
