"""For how long attempts have run, by a clock that nobody sets."""

from datetime import timedelta
from time import monotonic

from django.utils import timezone

from jobs.models import Attempt


class RunClock:
    """What was before the first look is taken from the rows; from then on the seconds
    are counted, so that a clock that jumps, or a machine that sleeps, ends no job."""

    def __init__(self) -> None:
        self._first: dict[str, tuple[float, timedelta]] = {}

    def ran_for(self, attempt: Attempt) -> timedelta:
        if attempt.started_at is None:
            return timedelta(0)
        key, now = str(attempt.pk), monotonic()
        if key not in self._first:
            before = timezone.now() - attempt.started_at
            self._first[key] = now, max(before, timedelta(0))
        since, before = self._first[key]
        return before + timedelta(seconds=now - since)

    def forget_but(self, live: set[str]) -> None:
        for key in self._first.keys() - live:
            del self._first[key]
