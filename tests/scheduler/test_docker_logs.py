"""What Docker keeps of a log: told by its entries, as the driver stores them."""

import struct

import pytest

from scheduler.runner.docker.logs import FILES, PART, followed, kept, log_config

MB = 1024 * 1024


def host_config(cap_mb: int = 1) -> dict[str, object]:
    return {"LogConfig": {"Config": log_config(cap_mb)}}


def body(*entries: bytes) -> bytes:
    return b"".join(struct.pack(">BxxxL", 1, len(e)) + e for e in entries)


@pytest.mark.parametrize("cap_mb", [1, 2, 16, 1000])
def test_with_ours_it_is_three_times_the_cap_at_most(cap_mb: int) -> None:
    config = log_config(cap_mb)
    size = int(config["max-size"].removesuffix("k")) * 1000
    # A file grows beyond its size by an entry at most.
    most = (size + PART + 200) * int(config["max-file"])
    marks = 200
    assert most + cap_mb * MB + marks <= 3 * cap_mb * MB


def test_what_was_never_rotated_is_whole() -> None:
    entries = [b"line\n"] * 1000
    assert [*kept(body(*entries), host_config())] == [b"".join(entries)]
    assert [*kept(b"", host_config())] == [b""]


def test_it_is_said_where_a_file_may_have_gone() -> None:
    entries = [b"x" * 99 + b"\n"] * (2_000_000 * (FILES - 1) // FILES // 125)
    first, data = kept(body(*entries), host_config())
    assert (first, data) == (b"", b"".join(entries))


def test_nothing_is_followed_across_a_rotation() -> None:
    entries = [b"x" * 99 + b"\n"] * 10_000
    *got, last = followed(entries, host_config())
    assert last == b""
    assert got == entries[: len(got)]
    assert 350_000 < len(b"".join(got)) < 500_000


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        ([b"x" * PART, b"xx", b"next\n"], b"x" * (PART + 2) + b"\nnext\n"),
        # Docker releases that keep the end of the line.
        ([b"x" * PART, b"xx\n", b"next\n"], b"x" * (PART + 2) + b"\nnext\n"),
        ([b"x" * PART, b"x" * PART, b"x"], b"x" * (2 * PART + 1)),
        # Two streams, of which one ended with no newline.
        ([b"no newline", b"other\n"], b"no newlineother\n"),
    ],
)
def test_the_end_of_a_line_that_came_in_parts_is_put_back(
    entries: list[bytes], text: bytes
) -> None:
    assert b"".join(kept(body(*entries), host_config())) == text
    assert b"".join(followed(entries, host_config())) == text
