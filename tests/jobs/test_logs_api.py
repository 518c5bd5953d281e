from io import BytesIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.api import logs
from jobs.models import Job, User
from tests.asserts import assert_problem, whole
from tests.factories import finish, make_attempt, make_job, write_log

pytestmark = pytest.mark.django_db

TEXT = "epoch 1: loss 0.7 \u00e9 \u20ac \U0001f600\n" * 3


def path(job: Job, query: str = "") -> str:
    return f"/api/v1/jobs/{job.pk}/logs{query}"


def told(answer: Any) -> tuple[int, int, str]:
    assert answer.status_code == 200, answer.content
    return (
        int(answer["X-Log-Offset"]),
        int(answer["X-Log-Size"]),
        answer["X-Log-Complete"],
    )


@pytest.mark.parametrize("slash", ["", "/"])
def test_the_log_is_plain_text(api: Any, alice: User, slash: str) -> None:
    job = make_job(alice, status="running")
    write_log(job, TEXT.encode())
    answer = api(alice).get(path(job, slash))
    assert answer.content.decode() == TEXT
    assert answer["Content-Type"] == "text/plain; charset=utf-8"
    size = len(TEXT.encode())
    assert told(answer) == (size, size, "false")


@pytest.mark.parametrize("status", ["succeeded", "failed"])
def test_the_log_of_an_ended_job_is_complete(
    api: Any, alice: User, status: str
) -> None:
    job = make_job(alice, status=status)
    write_log(job, b"hello\n")
    assert told(api(alice).get(path(job))) == (6, 6, "true")


def test_what_a_program_wrote_is_no_page_of_ours(api: Any, alice: User) -> None:
    job = make_job(alice, status="succeeded")
    write_log(job, b"<script>alert(1)</script>")
    for query in ("", "?download=1"):
        answer = api(alice).get(path(job, query), headers={"Accept": "text/html"})
        assert answer.getvalue() == b"<script>alert(1)</script>"
        assert answer["Content-Type"].startswith("text/plain")
        assert answer["X-Content-Type-Options"] == "nosniff"
        assert answer["Content-Security-Policy"] == "sandbox"


@pytest.mark.parametrize("accept", ["*/*", "text/plain", "application/json", "x/y"])
def test_the_log_comes_whatever_is_accepted(api: Any, alice: User, accept: str) -> None:
    job = make_job(alice, status="running")
    write_log(job, b"hello\n")
    answer = api(alice).get(path(job), headers={"Accept": accept})
    assert answer.content == b"hello\n"


def test_a_job_that_has_not_started_has_an_empty_log(api: Any, alice: User) -> None:
    answer = api(alice).get(path(make_job(alice)))
    assert (answer.content, told(answer)) == (b"", (0, 0, "false"))


def test_a_job_that_never_started_has_an_empty_complete_log(
    api: Any, alice: User
) -> None:
    answer = api(alice).get(path(make_job(alice, status="cancelled"), "?offset=9"))
    assert (answer.content, told(answer)) == (b"", (0, 0, "true"))


def test_a_log_that_has_been_lost_is_empty(api: Any, alice: User) -> None:
    answer = api(alice).get(path(make_job(alice, status="failed")))
    assert (answer.content, told(answer)) == (b"", (0, 0, "true"))


def test_a_reader_gets_on_from_offset_to_offset(api: Any, alice: User) -> None:
    job = make_job(alice, status="succeeded")
    write_log(job, TEXT.encode())
    read, offset, complete = b"", 0, "false"
    while complete == "false":
        answer = api(alice).get(path(job, f"?offset={offset}&limit=5"))
        offset, _, complete = told(answer)
        answer.content.decode()  # each chunk is whole characters
        assert 0 < len(answer.content) <= 5
        read += answer.content
    assert read.decode() == TEXT


def test_a_character_half_written_waits_for_its_other_half(
    api: Any, alice: User
) -> None:
    job = make_job(alice, status="running")
    write_log(job, "caf\u00e9".encode()[:-1])
    answer = api(alice).get(path(job))
    assert (answer.content, told(answer)) == (b"caf", (3, 4, "false"))


def test_a_character_never_finished_is_shown_at_the_end(api: Any, alice: User) -> None:
    job = make_job(alice, status="failed")
    write_log(job, "caf\u00e9".encode()[:-1])
    answer = api(alice).get(path(job))
    assert (answer.content, told(answer)) == (b"caf\xc3", (4, 4, "true"))


def test_an_offset_behind_the_end_is_answered_with_the_end(
    api: Any, alice: User
) -> None:
    job = make_job(alice, status="running")
    write_log(job, b"hello\n")
    for offset in (6, 7, 2**63 - 1):
        answer = api(alice).get(path(job, f"?offset={offset}"))
        assert (answer.content, told(answer)) == (b"", (6, 6, "false"))


def test_the_log_is_that_of_the_latest_attempt(api: Any, alice: User) -> None:
    job = make_job(alice)
    first = make_attempt(job)
    write_log(job, b"first\n")
    finish(first, "node_lost")
    make_attempt(job)
    write_log(job, b"second\n")
    assert api(alice).get(path(job)).content == b"second\n"


@pytest.mark.parametrize(
    ("query", "code", "what"),
    [
        ("offset=-1", "min_value", "before the start"),
        ("offset=" + "9" * 30, "max_value", "an offset of 30 digits"),
        ("offset=" + "9" * 5000, "max_string_length", "an offset of 5,000 digits"),
        ("offset=x", "invalid", "a word"),
        ("offset=", "invalid", "nothing"),
        ("offset=%00", "invalid", "a NUL"),
        ("offset=1.5", "invalid", "one and a half"),
        ("limit=0", "min_value", "no bytes"),
        ("limit=3", "min_value", "less than a character may need"),
        ("limit=1048577", "max_value", "more than 1 MiB"),
        ("limit=-1", "min_value", "negative bytes"),
        ("download=maybe", "invalid", "no boolean"),
        ("tail=5", "unknown_parameter", "a parameter of another tool"),
    ],
)
def test_a_question_that_makes_no_sense_is_400(
    api: Any, alice: User, query: str, code: str, what: str
) -> None:
    job = make_job(alice, status="running")
    write_log(job, b"hello\n")
    name = query.partition("=")[0]
    assert_problem(api(alice).get(path(job, "?" + query)), 400, code, f"/{name}"), what


def test_no_more_than_the_limit_is_read(api: Any, alice: User) -> None:
    job = make_job(alice, status="running")
    write_log(job, b"x" * 3_000_000)
    assert told(api(alice).get(path(job))) == (65_536, 3_000_000, "false")
    most = api(alice).get(path(job, "?limit=1048576"))
    assert len(most.content) == 1_048_576


def test_the_whole_log_can_be_saved(api: Any, alice: User) -> None:
    job = make_job(alice, status="succeeded")
    write_log(job, b"x" * 3_000_000)
    answer = api(alice).get(path(job, "?download=1"))
    assert len(whole(answer)) == 3_000_000
    assert answer["Content-Disposition"] == f'attachment; filename="{job.pk}.log"'


def test_a_log_that_is_not_there_saves_as_an_empty_file(api: Any, alice: User) -> None:
    answer = api(alice).get(path(make_job(alice), "?download=1"))
    assert whole(answer) == b""
    assert answer["Content-Disposition"].startswith("attachment")


@given(
    content=st.binary(max_size=60),
    limit=st.integers(4, 20),
    is_final=st.booleans(),
)
def test_whatever_the_bytes_a_reader_gets_on_and_misses_none(
    content: bytes,
    limit: int,
    is_final: bool,
) -> None:
    log = BytesIO(content)
    got, offset = b"", 0
    while True:
        chunk = logs.read(log, offset, limit, is_final=is_final)
        if not chunk.data:
            break
        got, offset = got + chunk.data, chunk.offset
    assert content.startswith(got)
    # At most the beginning of one character is held back.
    assert len(content) - len(got) <= (0 if is_final else 3)
