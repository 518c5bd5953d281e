import pytest
from django.core.exceptions import ValidationError

from jobs.spec import array


@pytest.mark.parametrize(
    ("text", "indices", "limit"),
    [
        ("0", (0,), None),
        ("7", (7,), None),
        ("0-3", (0, 1, 2, 3), None),
        ("5-5", (5,), None),
        ("0-99%4", tuple(range(100)), 4),
        ("1,3,5-7", (1, 3, 5, 6, 7), None),
        ("0-20:5", (0, 5, 10, 15, 20), None),
        ("0-9:4,1%2", (0, 1, 4, 8), 2),
        ("0-9:100", (0,), None),
        ("9,1,5", (1, 5, 9), None),
        ("007", (7,), None),
        ("1000000", (1_000_000,), None),
        ("999999-1000000", (999_999, 1_000_000), None),
        ("0-1000000:1000001", (0,), None),
        ("0-999", tuple(range(1000)), None),
        ("3%1", (3,), 1),
        ("3%1000", (3,), 1000),
    ],
)
def test_indices_and_a_limit_are_read(
    text: str, indices: tuple[int, ...], limit: int | None
) -> None:
    assert array.parse(text) == array.Array(indices, limit)


@pytest.mark.parametrize(
    ("text", "code", "what"),
    [
        ("", "bad_array", "nothing"),
        (" 1", "bad_array", "a space in front"),
        ("1 ", "bad_array", "a space behind"),
        ("1, 2", "bad_array", "a space inside"),
        ("1\n", "bad_array", "a newline behind"),
        ("1\t-2", "bad_array", "a tab"),
        ("1\x00", "bad_array", "a NUL"),
        ("1\ud800", "bad_array", "half a surrogate pair"),
        ("\u0661", "bad_array", "an Arabic digit"),
        ("\u00b2", "bad_array", "a superscript digit"),
        ("1\u20133", "bad_array", "an en dash"),
        ("-1", "bad_array", "a negative index"),
        ("1-", "bad_array", "a range without its end"),
        ("-", "bad_array", "a dash"),
        (",", "bad_array", "a comma"),
        ("1,", "bad_array", "a comma behind"),
        (",1", "bad_array", "a comma in front"),
        ("1,,2", "bad_array", "two commas"),
        ("a-z", "bad_array", "letters"),
        ("1.5", "bad_array", "a fraction"),
        ("1e3", "bad_array", "an exponent"),
        ("0x10", "bad_array", "hexadecimal"),
        ("+1", "bad_array", "a sign"),
        ("1_000", "bad_array", "an underscore"),
        ("1:2", "bad_array", "a step of one index"),
        ("1-2-3", "bad_array", "two dashes"),
        ("1-9:2:3", "bad_array", "two steps"),
        ("1-9:", "bad_array", "an empty step"),
        ("1-9:-1", "bad_array", "a negative step"),
        ("1-9:0", "bad_step", "a step of nothing"),
        ("9-1", "backwards", "a range that runs backwards"),
        ("1000001", "index_too_large", "an index over a million"),
        ("0-1000001:1000001", "index_too_large", "an end over a million"),
        ("9" * 190, "index_too_large", "an index of 190 digits"),
        ("1,1", "doubled_index", "an index twice"),
        ("1-5,3", "doubled_index", "an index in a range and alone"),
        ("0-4:2,2-8:3", "doubled_index", "an index in two ranges"),
        ("01,1", "doubled_index", "an index in two writings"),
        ("0-1000", "too_many_tasks", "1,001 tasks"),
        ("0-1000000", "too_many_tasks", "a million tasks"),
        ("0-999,1000000", "too_many_tasks", "a thousand and one more"),
        ("1%", "bad_limit", "an empty limit"),
        ("1%0", "bad_limit", "a limit of nothing"),
        ("1%-1", "bad_limit", "a negative limit"),
        ("1%2%3", "bad_limit", "two limits"),
        ("1%2,3", "bad_limit", "indices behind the limit"),
        ("1% 2", "bad_limit", "a space in the limit"),
        ("1%\u0662", "bad_limit", "an Arabic limit"),
        ("%4", "bad_array", "a limit of nothing at all"),
        ("1," * 100 + "1", "max_length", "201 characters"),
        ("1" * 100_000, "max_length", "100,000 characters"),
    ],
)
def test_what_is_no_array_is_refused(text: str, code: str, what: str) -> None:
    with pytest.raises(ValidationError) as caught:
        array.parse(text)
    assert caught.value.code == code, what


def test_the_error_shows_how_to_write_one_and_no_control_character() -> None:
    with pytest.raises(ValidationError) as caught:
        array.parse("1\x07")
    assert caught.value.message.startswith(r"'1\x07' is no range")
    assert "0-20:5" in caught.value.message
