"""Secrets: sealed at rest, and masked in whatever shape and however it is cut."""

import base64
import itertools
import json
import shlex
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.secrets import Masker, Unreadable, mask_text, masked, seal, shapes, unseal

KEY = "k" * 50
SECRET = "s3cr3t-Пароль/+='\"$x"


def out(chunks: list[bytes], *values: str) -> bytes:
    return b"".join(masked(chunks, values))


class TestSealed:
    def test_it_comes_back_with_the_same_key(self) -> None:
        assert unseal(seal(SECRET, KEY), KEY) == SECRET

    def test_it_does_not_with_another(self) -> None:
        with pytest.raises(Unreadable):
            unseal(seal(SECRET, KEY), KEY + "x")

    def test_nor_when_a_byte_was_changed(self) -> None:
        sealed = seal(SECRET, KEY)
        with pytest.raises(Unreadable):
            unseal(sealed[:-8] + ("A" if sealed[-8] != "A" else "B") + sealed[-7:], KEY)

    def test_two_of_the_same_look_different(self) -> None:
        assert seal(SECRET, KEY) != seal(SECRET, KEY)


PLAIN = SECRET.encode()
SHAPES = [
    ("plain", PLAIN),
    ("in a URL", quote(SECRET, safe="").encode()),
    ("in a URL's path", quote(SECRET).encode()),
    ("in a form", quote_plus(SECRET).encode()),
    ("in JSON", json.dumps(SECRET)[1:-1].encode()),
    ("in JSON as it is", json.dumps(SECRET, ensure_ascii=False)[1:-1].encode()),
    ("in a shell's quotes", shlex.quote(SECRET).encode()),
    ("as sh -x prints it", SECRET.replace("'", r"'\''").encode()),
    ("in hexadecimal", PLAIN.hex().encode()),
]


@pytest.mark.parametrize("shape", [s[1] for s in SHAPES], ids=[s[0] for s in SHAPES])
def test_it_is_masked(shape: bytes) -> None:
    told = out([b"before " + shape + b" after"], SECRET)
    assert told.startswith(b"before ")
    assert told.endswith(b" after")
    assert b"***" in told
    assert shape not in told
    assert len(told) <= len(b"before *** after") + 4


@given(st.binary(max_size=9), st.binary(max_size=9), st.booleans())
def test_in_base64_it_is_masked_wherever_it_begins(
    before: bytes, after: bytes, is_for_urls: bool
) -> None:
    encode = base64.urlsafe_b64encode if is_for_urls else base64.b64encode
    encoded = encode(before + PLAIN + after)
    told = out([encoded], SECRET)
    assert b"***" in told
    # Nothing is left from which a byte of it could be told, but for the edges' bits.
    assert len(told) <= len(encoded) - len(PLAIN) * 8 // 6 + 1 + len(b"***")


texts = st.text(st.sampled_from("ab"), min_size=1, max_size=6)


@given(
    st.lists(texts, min_size=1, max_size=3),
    st.binary(max_size=60).map(lambda data: bytes(97 + byte % 3 for byte in data)),
    st.lists(st.integers(0, 60), max_size=8),
)
def test_what_comes_out_does_not_depend_on_where_it_was_cut(
    values: list[str], data: bytes, cuts: list[int]
) -> None:
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    chunks = [data[a:b] for a, b in itertools.pairwise(edges) if a < b]
    assert out(chunks, *values) == out([data] if data else [], *values)
    for value in values:
        assert value.encode() not in out(chunks, *values)


def test_one_cut_into_single_bytes_is_masked() -> None:
    data = b"token=" + PLAIN + b"\n"
    assert out([bytes([byte]) for byte in data], SECRET) == b"token=***\n"


def test_what_is_no_beginning_of_one_is_shown_at_once() -> None:
    masker = Masker(["password1"])
    assert masker.feed(b"epoch 1\n") == b"epoch 1\n"
    assert masker.feed(b"epoch 2 pass") == b"epoch 2 "
    assert masker.feed(b"ed\n") == b"passed\n"


def test_of_two_that_overlap_the_longer_is_masked() -> None:
    assert out([b"x abcdefgh12 y"], "abcdefgh", "abcdefgh12") == b"x *** y"


def test_each_line_of_one_is_masked_alone() -> None:
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBg\n-----END KEY-----"
    assert out([b"line: MIIEvQIBADANBg\n"], key) == b"line: ***\n"


def test_with_no_secret_nothing_is_changed_or_kept_back() -> None:
    assert list(masked([b"a", b"", b"b"], [])) == [b"a", b"", b"b"]


def test_an_empty_chunk_stays_one() -> None:
    assert list(masked([b"", b"pass", b"", b"x"], ["password1"])) == [
        *(b"", b"pass", b"", b"x")
    ]


def test_a_text_is_masked_too() -> None:
    assert mask_text(f"bad env A={SECRET}", [SECRET]) == "bad env A=***"
    assert mask_text("", [SECRET]) == ""


def test_no_shape_is_so_short_that_it_would_blacken_a_log() -> None:
    assert min(map(len, shapes("12345678"))) >= 8
