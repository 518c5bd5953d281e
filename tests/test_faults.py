"""Each fault of the list is tried by tests that are there, or the list says why not."""

import re

from tests.test_architecture import ROOT

LIST = (ROOT / "docs" / "reliability.md").read_text()
ROWS = re.findall(r"^\| (F\d\d)(?:-(F\d\d))? [^|]*\| ([^|]*) \|$", LIST, re.MULTILINE)


def test_every_fault_is_in_the_list() -> None:
    listed = {
        number
        for first, last, _ in ROWS
        for number in range(int(first[1:]), int((last or first)[1:]) + 1)
    }
    assert listed == set(range(1, 40))


def test_what_tries_it_is_there() -> None:
    for first, _, told in ROWS:
        named = re.findall(r"tests/[\w/]+(?:\.py)?", told)
        assert named or "not" in told, first
        assert [path for path in named if not (ROOT / path).exists()] == []
