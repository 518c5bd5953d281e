"""The stored form of records and seals, and the text of each that its hash covers.

A record has the same text on both databases, and every other stored form has another
text: also one that Django would read as the same, such as a blank more in the JSON.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from decimal import Decimal
from hashlib import sha256
from json.encoder import encode_basestring_ascii
from typing import Any, cast

from django.db import connection

START = "0" * 64
# Asked for with each row it would cost more than the rest.
IS_SQLITE = connection.vendor == "sqlite"

# The plus keeps SQLite's driver from converting what it finds; PostgreSQL tells times in
# the time zone of the connection, which Django sets to UTC.
_RECORD = {
    "sqlite": "+r.id, +r.at, +r.actor, +r.action, +r.target, +r.address, +r.details",
    "postgresql": (
        "r.id, r.at::text, r.actor, r.action, r.target, r.address, r.details::text"
    ),
}
_SEAL = {
    "sqlite": (
        "+s.number, +s.record_id, +s.previous, +s.hash, +s.sealed_at, +s.is_anchored"
    ),
    "postgresql": (
        "s.number, s.record_id, s.previous, s.hash, s.sealed_at::text, s.is_anchored"
    ),
}
# Else PostgreSQL's planner reads all records again for each page of seals.
_JOINED = {
    "sqlite": "jobs_auditrecord r ON r.id = s.record_id",
    "postgresql": (
        "LATERAL (SELECT * FROM jobs_auditrecord WHERE id = s.record_id OFFSET 0) r "
        "ON true"
    ),
}
AT_ONCE = 2000


def unsealed(most: int) -> list[tuple[Any, ...]]:
    """Committed records that wait for their seal."""
    sql = (
        "SELECT RECORD FROM jobs_unsealedrecord u "
        "JOIN jobs_auditrecord r ON r.id = u.record_id ORDER BY r.id LIMIT %s"
    )
    return _rows(sql, most)


def waiting(most: int) -> list[tuple[int, int | None, Any]]:
    """What waits for its seal: the id, the same or None if it is gone, and the time."""
    sql = (
        "SELECT u.record_id, RECORD FROM jobs_unsealedrecord u "
        "LEFT JOIN jobs_auditrecord r ON r.id = u.record_id ORDER BY u.record_id LIMIT %s"
    )
    return [(row[0], row[1], time_text(row[2])) for row in _rows(sql, most)]


def details_of(action: str) -> list[dict[str, Any]]:
    """What the records of an action say, of those that can be read."""
    sql = "SELECT RECORD FROM jobs_auditrecord r WHERE action = %s"
    found = []
    for row in _rows(sql, action):
        with suppress(ValueError, TypeError):
            found.append(json.loads(row[6]))
    return [each for each in found if isinstance(each, dict)]


def sealed(first: int, last: int) -> Iterator[tuple[Any, ...]]:
    """Seals in their order, each as the six columns of its own and the seven of its
    record, which are None where there is none.

    Page by page, so that nothing is held while it takes long.
    """
    sql = (
        "SELECT SEAL, RECORD FROM jobs_auditseal s LEFT JOIN JOINED "
        "WHERE s.number BETWEEN %s AND %s ORDER BY s.number"
    )
    start = _next(first)
    while start is not None and start <= last:
        yield from _rows(sql, start, min(start + AT_ONCE - 1, last))
        start = _next(start + AT_ONCE)


def _next(number: int) -> int | None:
    """The first seal from there on: numbers may be missing, and must not be counted
    through."""
    sql = "SELECT min(number) FROM jobs_auditseal WHERE number >= %s"
    ((found,),) = _rows(sql, number)
    return cast(int | None, found)


def _rows(sql: str, *parameters: int | str) -> list[tuple[Any, ...]]:
    for word, its in (("SEAL", _SEAL), ("RECORD", _RECORD), ("JOINED", _JOINED)):
        sql = sql.replace(word, its[connection.vendor], 1)
    with _whatever_bytes(), connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return list(cursor.fetchall())


@contextmanager
def _whatever_bytes() -> Iterator[None]:
    """On SQLite a text column may hold what is no text: that is to be found, and must
    not keep us from looking."""
    if not IS_SQLITE:
        yield
        return
    connection.ensure_connection()
    raw: Any = connection.connection
    before, raw.text_factory = raw.text_factory, _any_text
    try:
        yield
    finally:
        raw.text_factory = before


def _any_text(stored: bytes) -> str:
    return stored.decode(errors="surrogateescape")


def seal_text(
    number: int,
    previous: Any,
    sealed_at: str,
    is_anchored: bool,
    record: tuple[Any, ...],
) -> str:
    """What the hash of a seal covers: one line of JSON."""
    pk, at, *texts, details = record
    actor, action, target, address = map(_quoted, texts)
    return (
        f'{{"number":{number},"previous":{_quoted(previous)},'
        f'"sealed_at":{_quoted(sealed_at)},'
        f'"is_anchored":{"true" if is_anchored else "false"},'
        f'"record":{{"id":{pk},"at":{_quoted(time_text(at))},"actor":{actor},'
        f'"action":{action},"target":{target},"address":{address},'
        f'"details":{_details(details)}}}}}'
    )


def hash_of(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def iso(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}Z"


def time_text(stored: Any) -> str:
    """As `iso` writes it. What Django never stores so is marked by a question mark."""
    if type(stored) is not str:
        return f"?{stored!r}"
    text = stored
    if not IS_SQLITE:
        text = stored.removesuffix("+00")
        if len(text) > 20:  # it leaves out the last zeros
            text = text.ljust(26, "0")
    if text[10:11] == " ":
        if len(text) == 26 and (text[20:] != "000000"):
            return f"{text[:10]}T{text[11:]}Z"
        if len(text) == 19:
            return f"{text[:10]}T{text[11:]}.000000Z"
    return f"?{stored}"


def _quoted(stored: Any) -> str:
    if type(stored) is str:
        return encode_basestring_ascii(stored)
    # Of another type than its column: never like any text.
    return f"[{encode_basestring_ascii(repr(stored))}]"


def _number(text: str) -> float | Decimal:
    """Databases write exponents and signs of zero differently: what has any, or digits
    that a float does not keep, stays as it is."""
    value = float(text)
    is_plain = repr(value) == text and "e" not in text and text != "-0.0"
    return value if is_plain else Decimal(text)


_loads = json.JSONDecoder(parse_float=_number).decode
_sorted = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), check_circular=False
).encode
_as_stored = json.JSONEncoder(check_circular=False).encode


def _details(stored: Any) -> str:
    try:
        value = _loads(stored)
        if IS_SQLITE and not _is_as_written(value, stored):
            return _quoted(f"?{stored}")
    except (ValueError, TypeError, RecursionError):
        return _quoted(f"?{stored!r}")
    try:
        return _sorted(value)
    except TypeError:
        return _exact(value)


def _is_as_written(value: Any, stored: str) -> bool:
    """PostgreSQL has one form for each value, SQLite keeps the bytes."""
    try:
        return _as_stored(value) == stored
    except TypeError:
        return _as_stored(json.loads(stored)) == stored


def _exact(value: Any) -> str:
    """The same, with numbers as the digits that they have."""
    if isinstance(value, Decimal):
        return f"{abs(value) if value.is_zero() else value:f}"
    if isinstance(value, list):
        return f"[{','.join(map(_exact, value))}]"
    if isinstance(value, dict):
        pairs = (f"{_quoted(key)}:{_exact(value[key])}" for key in sorted(value))
        return f"{{{','.join(pairs)}}}"
    return _sorted(value)


def exported() -> Iterator[str]:
    """All seals as lines of JSON. The hash is that of the bytes after `"sealed":` up to
    the last brace, as they stand there."""
    for row in sealed(0, 2**62):
        text = "null"
        if row[6] is not None:
            text = seal_text(row[0], row[2], time_text(row[4]), row[5] == 1, row[6:])
        yield f'{{"hash":{_quoted(row[3])},"sealed":{text}}}'
