"""Each threat of the list is tried by tests that are there, or the list says why not."""

import re

import pytest

from tests.test_architecture import ROOT

LIST = (ROOT / "docs" / "threats.md").read_text()
ROWS = re.findall(r"^\| (T\d\d)(?:-(T\d\d))? [^|]*\| ([^|]*) \|$", LIST, re.MULTILINE)
KNOWN = {*range(1, 19), *range(20, 34), *range(40, 48), *range(50, 64)}


def test_every_threat_is_in_the_list_once() -> None:
    listed = [
        number
        for first, last, _ in ROWS
        for number in range(int(first[1:]), int((last or first)[1:]) + 1)
    ]
    assert sorted(listed) == sorted(KNOWN)


@pytest.mark.parametrize(("first", "told"), [(row[0], row[2]) for row in ROWS])
def test_what_tries_it_is_there(first: str, told: str) -> None:
    named = re.findall(r"tests/[\w/]+(?:\.py)?", told)
    assert named or told.startswith("not "), first
    assert [path for path in named if not (ROOT / path).exists()] == []
