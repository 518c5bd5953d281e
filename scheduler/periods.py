"""What is to be done now and then, by a clock that nobody sets."""

from time import monotonic


class Periods:
    def __init__(self) -> None:
        self._due: dict[str, float] = {}

    def is_due(self, what: str, every_s: float) -> bool:
        """True at first, and then once in each `every_s` seconds in which it is asked."""
        now = monotonic()
        if what in self._due and now < self._due[what]:
            return False
        self._due[what] = now + every_s
        return True
