"""Whether the anchor says of the sealings what the table does, one line for each."""

from collections.abc import Iterable, Iterator

from jobs.sealing import anchor, rows
from jobs.sealing.anchor import Line
from jobs.sealing.flaws import Flaw

# What an operator writes who begins the file anew: it tells of nothing before `from`.
RENEWED = "audit.anchor_renewed"


class Told:
    """The lines beside the seals: `meet` each anchored seal in order, then `rest`."""

    def __init__(self, lines: Iterable[Line], *, first: int) -> None:
        """`first` is the first seal there is a row of: of those before, retention has
        left only lines, or nobody looks at them now."""
        self.count = 0
        self._lines = iter(lines)
        self._first = first
        self._told = 0
        self._untold: list[int] = []
        self._flaws: list[Flaw] = []
        self._next = self._take()

    def _take(self) -> Line | None:
        """The next one that can be read; of the others, that they can not."""
        for line in self._lines:
            self.count += 1
            if line.is_intact and line.number > self._told:
                self._told = line.number
                return line
            self._flaws.append(_broken(line, self._told))
        return None

    def meet(self, number: int, hash_: str, at: str) -> Iterator[Flaw]:
        while self._next and self._next.number < number:
            yield from self._unknown(self._next)
            self._next = self._take()
        if self._next is None or self._next.number != number:
            self._untold.append(number)
        else:
            if (self._next.hash, self._next.at) != (hash_, at):
                what = f"It tells of seal {number} what the table does not."
                yield Flaw(code="anchor_differs", where=_at(self._next), what=what)
            self._next = self._take()
        yield from self._gathered()

    def rest(self, last: int) -> Iterator[Flaw]:
        """After the last seal, whose number is `last`."""
        while self._next:
            if self._next.number > last:
                yield _cut(self._next, last)
            else:
                yield from self._unknown(self._next)
            self._next = self._take()
        yield from self._gathered()
        yield from self._missing(last)

    def _gathered(self) -> Iterator[Flaw]:
        found, self._flaws = self._flaws, []
        yield from found

    def _unknown(self, line: Line) -> Iterator[Flaw]:
        if line.number >= self._first:
            what = f"It tells of seal {line.number}, with which no sealing ended."
            yield Flaw(code="anchor_differs", where=_at(line), what=what)

    def _missing(self, last: int) -> Iterator[Flaw]:
        untold = _not_renewed(self._untold) if self._untold else []
        if untold:
            some = ", ".join(map(str, untold[:5])) + (", ..." if untold[5:] else "")
            told = "has no line of" if self.count else "is missing or empty, and had"
            yield Flaw(
                code="anchor_cut",
                where=anchor.NAME,
                what=f"It {told} the sealings that ended with seal {some}.",
                is_passing=untold == [last],
            )


def _not_renewed(untold: list[int]) -> list[int]:
    starts = [each.get("from") for each in rows.details_of(RENEWED)]
    start = max((each for each in starts if isinstance(each, int)), default=0)
    return [number for number in untold if number >= start]


def _at(line: Line) -> str:
    return f"{anchor.NAME} line {line.position}"


def _broken(line: Line, told: int) -> Flaw:
    if line.is_intact:
        what = (
            f"It goes on after seal {told} with seal {line.number}: the end of the table "
            "was cut, or the database is an older one."
        )
        return Flaw(code="cut_tail", where=_at(line), what=what)
    what = "It was changed, or a line before it was."
    return Flaw(code="anchor_altered", where=_at(line), what=what)


def _cut(line: Line, last: int) -> Flaw:
    what = (
        f"It tells of seal {line.number}, and the table ends with {last}: its end was "
        "cut, or the database is an older one."
    )
    return Flaw(code="cut_tail", where=_at(line), what=what)
