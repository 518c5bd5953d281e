import json
from io import BytesIO
from typing import Any

import pytest
from django.test import Client
from rest_framework.exceptions import APIException

from jobs.api.parsers import StrictJSONParser
from tests.asserts import assert_problem

DEEP = 5000


def parse(body: bytes, media_type: str = "application/json") -> Any:
    return StrictJSONParser().parse(BytesIO(body), media_type)


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b' {"a": [1, -2.5, true, null, "\\u00e9\\ud83d\\ude00"]} ',
        '{"ключ": "значение"}'.encode(),
        b'{"most": 9223372036854775807, "least": -9223372036854775808}',
        b'{"a":' * 63 + b"{}" + b"}" * 63,
    ],
)
def test_an_object_is_read_as_json_reads_it(body: bytes) -> None:
    assert parse(body) == json.loads(body)


@pytest.mark.parametrize("charset", ["utf-8", "UTF-8", "utf8", "us-ascii"])
def test_utf_8_may_be_named(charset: str) -> None:
    assert parse(b"{}", f"application/json; charset={charset}") == {}


HOSTILE = [
    (b"", "bad_json", "nothing"),
    (b"{", "bad_json", "half of it"),
    (b"{'a': 1}", "bad_json", "quotes of Python"),
    (b'{"a": 1} {"b": 2}', "bad_json", "two of them"),
    (b'{"a": "\t"}', "bad_json", "a raw tab in a string"),
    (b'{"a": "\\x"}', "bad_json", "an escape that is none"),
    (b"\xef\xbb\xbf{}", "bad_json", "a byte order mark"),
    (b'{"a": "\xff"}', "bad_charset", "a byte that is not UTF-8"),
    ("{}".encode("utf-16"), "bad_charset", "UTF-16"),
    (b"[]", "not_an_object", "a list"),
    (b"null", "not_an_object", "null"),
    (b'"x"', "not_an_object", "a string"),
    (b"7", "not_an_object", "a number"),
    (b'{"a": NaN}', "bad_number", "NaN"),
    (b'{"a": [-Infinity]}', "bad_number", "minus infinity"),
    (b'{"a": 1e999}', "bad_number", "a number that becomes infinite"),
    (b'{"a": 9223372036854775808}', "bad_number", "2^63"),
    (b'{"a": ' + b"9" * 400 + b"}", "bad_number", "400 digits"),
    (b'{"a": ' + b"9" * 5000 + b"}", "bad_number", "more digits than Python reads"),
    (b'{"a": "x\\u0000y"}', "bad_text", "a NUL in a value"),
    (b'{"a": {"b\\u0000": 1}}', "bad_text", "a NUL in a key"),
    (b'{"a": ["\\ud800"]}', "bad_text", "half of a surrogate pair"),
    (b'{"\\udfff": 1}', "bad_text", "half of a surrogate pair in a key"),
    (b'{"a": 1, "a": 2}', "duplicate_key", "a key twice"),
    (b'{"a": {"b": 1, "\\u0062": 2}}', "duplicate_key", "a key twice, once escaped"),
    (b'{"a":' * 65 + b"1" + b"}" * 65, "too_deep", "65 deep"),
    (b'{"a":' + b"[" * DEEP + b"]" * DEEP + b"}", "too_deep", "5,000 lists deep"),
    (b'{"a":' * DEEP + b"1" + b"}" * DEEP, "too_deep", "5,000 objects deep"),
]


@pytest.mark.parametrize(("body", "code", "what"), HOSTILE)
def test_what_is_refused_is_refused_by_code(body: bytes, code: str, what: str) -> None:
    with pytest.raises(APIException) as caught:
        parse(body)
    assert (caught.value.status_code, caught.value.get_codes()) == (400, code), what


@pytest.mark.django_db
@pytest.mark.parametrize(("body", "code", "what"), HOSTILE)
def test_and_is_a_problem_of_every_endpoint(
    api: Any, alice: Any, body: bytes, code: str, what: str
) -> None:
    if body:  # nothing at all is a request without a body
        for path in ("/api/v1/jobs", "/api/v1/auth/login"):
            answer = api(alice).generic("POST", path, body, "application/json")
            assert_problem(answer, 400, code)


@pytest.mark.parametrize("charset", ["utf-16", "latin-1", "bz2", "no-such", "", "\x00"])
def test_another_charset_is_refused(charset: str) -> None:
    with pytest.raises(APIException) as caught:
        parse(b"{}", f"application/json; charset={charset}")
    assert caught.value.get_codes() == "bad_charset"


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/api/v1/jobs", "/api/v1/auth/login"])
def test_3_mb_are_too_large_and_the_answer_is_no_page(
    api: Any, alice: Any, path: str
) -> None:
    body = b'{"image": "' + b"x" * 3_000_000 + b'"}'
    answer = api(alice).generic("POST", path, body, "application/json")
    assert "1,048,576 bytes" in assert_problem(answer, 413, "too_large")["detail"]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("media_type", "body"),
    [
        ("application/x-www-form-urlencoded", b"image=busybox"),
        ("multipart/form-data; boundary=x", b"--x--"),
        ("multipart/form-data", b"no boundary"),
        ("text/plain", b"{}"),
        ("application/xml", b"<image/>"),
        ("nonsense", b"{}"),
    ],
)
def test_only_json_is_taken(api: Any, alice: Any, media_type: str, body: bytes) -> None:
    answer = api(alice).generic("POST", "/api/v1/jobs", body, media_type)
    assert_problem(answer, 415, "unsupported_media_type")


@pytest.mark.django_db
def test_a_form_of_3_mb_from_a_browser_is_not_even_read(alice: Any) -> None:
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(alice)
    browser.cookies["csrftoken"] = "x" * 32
    form = "application/x-www-form-urlencoded"
    answer = browser.generic("POST", "/api/v1/jobs", b"a=" + b"x" * 3_000_000, form)
    assert_problem(answer, 415, "unsupported_media_type")


@pytest.mark.django_db
def test_no_body_is_an_empty_object(api: Any, alice: Any) -> None:
    answer = api(alice).generic("POST", "/api/v1/jobs", b"", "application/json")
    assert_problem(answer, 400, "required", "/image")


def test_the_refusal_points_at_the_value() -> None:
    with pytest.raises(APIException, match="/env/A~1B/0"):
        parse(b'{"env": {"A/B": ["\\u0000"]}}')


def test_the_refusal_does_not_repeat_the_body() -> None:
    with pytest.raises(APIException) as caught:
        parse(b'{"password": "secret-word"')
    assert "secret-word" not in str(caught.value)
