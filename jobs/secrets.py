"""Secrets: sealed at rest, and masked in whatever comes out.

The key is derived from the site's own (GPUJOBS_SECRET_KEY), which no database and no
backup of one holds.
"""

import base64
import json
import re
import shlex
from collections.abc import Iterable, Iterator
from functools import lru_cache
from urllib.parse import quote, quote_plus

from cryptography.fernet import Fernet, InvalidToken
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

MASK = b"***"
# Masking what is shorter would blacken half of a log.
LEAST_BYTES = 8


class Unreadable(Exception):
    """It was sealed with another key."""


@lru_cache(maxsize=2)
def _fernet(site_key: str) -> Fernet:
    derived = HKDF(SHA256(), length=32, salt=None, info=b"gpujobs.secrets")
    return Fernet(base64.urlsafe_b64encode(derived.derive(site_key.encode())))


def seal(value: str, site_key: str) -> str:
    return _fernet(site_key).encrypt(value.encode()).decode()


def unseal(sealed: str, site_key: str) -> str:
    try:
        return _fernet(site_key).decrypt(sealed.encode()).decode()
    except InvalidToken as error:
        raise Unreadable from error


# --- Masks ---------------------------------------------------------------------------


def shapes(value: str) -> set[bytes]:
    """How a value may stand in a text: plain, in a URL, in JSON, in a shell's quotes, in
    hexadecimal, and in base64 wherever it begins in what was encoded."""
    plain = value.encode()
    texts = {
        *(value, quote(value, safe=""), quote(value), quote_plus(value)),
        *(json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]),
        *(shlex.quote(value), value.replace("'", r"'\''"), plain.hex()),
        *(repr(value)[1:-1], value.replace("$", r"\$").replace('"', r"\"")),
    }
    found = {text.encode() for text in texts}
    # An encoder of several lines, or a program that prints line by line.
    found |= {line for line in plain.splitlines() if len(line) >= LEAST_BYTES}
    return (found | set(_in_base64(plain))) - {b""}


def _in_base64(plain: bytes) -> Iterator[bytes]:
    """What is the same whatever stands before and after it."""
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + plain)
        first = (shift * 8 + 5) // 6
        whole = (shift + len(plain)) * 8 // 6
        yield encoded[first:whole]
        yield encoded[first:whole].replace(b"+", b"-").replace(b"/", b"_")


class Masker:
    """Replaces each shape of some values by ***, in a stream of chunks of any size.

    What comes out does not depend on where the chunks were cut: what may be the
    beginning of a shape is kept back until it is told.
    """

    def __init__(self, values: Iterable[str]) -> None:
        found = {shape for value in values for shape in shapes(value)}
        # The longest first: where one holds another, all of it is masked.
        self._shapes = sorted(found, key=lambda shape: (-len(shape), shape))
        self._pattern = re.compile(b"|".join(map(re.escape, self._shapes)))
        self._longest = max(map(len, self._shapes), default=0)
        self._firsts = {shape[0] for shape in self._shapes}
        self._kept = b""

    def feed(self, chunk: bytes) -> bytes:
        return self._take(self._kept + chunk, is_last=False)

    def rest(self) -> bytes:
        return self._take(self._kept, is_last=True)

    def _take(self, data: bytes, *, is_last: bool) -> bytes:
        if not self._shapes:
            return data
        out, at = bytearray(), 0
        while True:
            hold = len(data) if is_last else self._hold(data, at)
            found = self._pattern.search(data, at)
            if found is None or found.start() >= hold:
                out += data[at:hold]
                self._kept = data[hold:]
                return bytes(out)
            out += data[at : found.start()] + MASK
            at = found.end()

    def _hold(self, data: bytes, at: int) -> int:
        """From where on the data may be the beginning of a shape."""
        for start in range(max(at, len(data) - self._longest + 1), len(data)):
            if data[start] not in self._firsts:
                continue
            end = data[start:]
            if any(len(s) > len(end) and s.startswith(end) for s in self._shapes):
                return start
        return len(data)


def masked(chunks: Iterable[bytes], values: Iterable[str]) -> Iterator[bytes]:
    """The chunks with their values masked. An empty one stays one: it tells that bytes
    may be missing where it stands."""
    masker = Masker(values)
    for chunk in chunks:
        if not chunk:
            if rest := masker.rest():
                yield rest
            yield b""
        elif out := masker.feed(chunk):
            yield out
    if rest := masker.rest():
        yield rest


def mask_text(text: str, values: Iterable[str]) -> str:
    data = text.encode(errors="surrogatepass")
    return b"".join(masked([data] if data else [], values)).decode(errors="replace")
