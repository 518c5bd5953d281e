import pytest
from django.utils import timezone

from jobs.models import Attempt, Job, JobEvent
from jobs.templatetags import jobs as tags


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (12, "12s"),
        (527, "8m 47s"),
        (3780, "1h 03m"),
        (7200, "2h 00m"),
        (180000, "2d 02h"),
        (-3, "0s"),
    ],
)
def test_durations(seconds: int, text: str) -> None:
    assert tags.duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (2, "2 B"),
        (18_400, "18.4 kB"),
        (3_100_000, "3.1 MB"),
        (5 * 10**12, "5,000.0 GB"),
    ],
)
def test_sizes(count: int, text: str) -> None:
    assert tags.size(count) == text


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("\x1b[1;32mINFO\x1b[0m ok", "INFO ok"),
        ("10%\r20%\r30%", "30%"),
        ("windows\r", "windows"),
        ("tab\tstays", "tab\tstays"),
        ("bell\x07 \u202eoops", "bell\ufffd \ufffdoops"),
    ],
)
def test_lines_of_logs(line: str, text: str) -> None:
    assert tags.readable(line) == text


def test_events_without_a_sentence_show_their_values() -> None:
    event = JobEvent(
        event_type="gpu_lost", payload={"gpus": ["a", "b"], "exit_code": 0}
    )
    assert tags.event_name(event) == "Gpu lost"
    assert tags.event_details(event) == "gpus a, b, exit code 0"


@pytest.mark.parametrize(
    ("asked", "peaks", "is_over", "text"),
    [
        (24_576, {"a": 10_000}, True, "It asked for 24.0 GB: with 11.7 GB"),
        (24_576, {"a": 10_000, "b": 20_000}, True, ""),
        (24_576, {"a": 10_000}, False, ""),
        (24_576, {}, True, ""),
        (None, {"a": 10_000}, True, ""),
    ],
    ids=[
        "much more than it used",
        "one of its GPUs came near",
        "it may still come to more",
        "nobody measured it",
        "it asked for no size",
    ],
)
def test_who_asked_for_too_much_is_told(
    asked: int | None, peaks: dict[str, int], is_over: bool, text: str
) -> None:
    attempt = Attempt(peak_vram_mb=peaks, ended_at=timezone.now() if is_over else None)
    told = tags.vram_advice(Job(min_vram_mb=asked), attempt)
    assert told.startswith(text) if text else told == ""
