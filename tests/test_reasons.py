"""Every reason is explained, and docs/reasons.md says what the code says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.lifecycle.attempts import MOST_INFRA_ENDINGS
from jobs.reasons import ENDINGS, WAITING, Told
from jobs.status import Fault, Reason, WaitReason

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "reasons.md").read_text()
# A list: the two enums have a word in common, which in one dict would be one key.
EVERY = [*WAITING.items(), *ENDINGS.items()]
# Long enough to say something, short enough to be read in a row of a table.
SHORTEST, LONGEST = 20, 100


def test_the_page_is_what_the_script_prints() -> None:
    command = [sys.executable, "-m", "scripts.reasons"]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout == PAGE, "run: python -m scripts.reasons > docs/reasons.md"


def test_every_word_of_the_lists_is_told_in_their_order() -> None:
    assert list(WAITING) == list(WaitReason)
    assert list(ENDINGS) == list(Reason)
    assert re.findall(r"^\| `(\w+)`", PAGE, re.M) == [*WaitReason, *Reason]


@pytest.mark.parametrize(
    "told", [told for _, told in EVERY], ids=[word.value for word, _ in EVERY]
)
def test_what_it_means_and_what_to_do_are_a_short_sentence_each(told: Told) -> None:
    for text in told:
        assert SHORTEST <= len(text) <= LONGEST
        assert re.fullmatch(r"[A-Z][^|\n]+[^.]\.", text)
        assert ". " not in text


def test_no_two_reasons_are_told_alike() -> None:
    assert len({told.means for _, told in EVERY}) == len(EVERY)


@pytest.mark.parametrize("reason", Reason)
def test_what_starts_again_is_not_charged_and_what_does_not_is(reason: Reason) -> None:
    [row] = re.findall(rf"^\| `{reason}` \| (\w.*)", PAGE, re.M)[-1:]
    status, fault, again, charged, *_ = row.split(" | ")
    assert fault == reason.fault
    expected = ("yes", "no") if fault == Fault.INFRA else ("no", "yes")
    assert (again, charged) == expected
    assert status.startswith("queued") if again == "yes" else status == reason.status


def test_the_page_knows_after_how_many_endings_a_job_gives_up() -> None:
    assert MOST_INFRA_ENDINGS == 5
    assert "the fifth in a row ends it" in PAGE
