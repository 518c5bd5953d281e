"""Telling a database that is away from a query that is wrong."""

import sqlite3

from django.db import Error, InterfaceError, OperationalError

RETRY_AFTER_S = 5
# What failed last may have been the answer to a commit.
TEXT = (
    "The database can not be used just now. Try again soon. Look first whether a"
    " change was made, or send it with the Idempotency-Key that it had."
)

# read_only_sql_transaction: another server took over, and this one only follows.
# idle_in_transaction_session_timeout: we stood still for too long.
_AWAY = {"25006", "25P03"}
# program_limit_exceeded: too many columns or arguments.
_WRONG = "54"
# SQLite has one word for a database that is away and for a query that is wrong.
_SQLITE_AWAY = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_NOTADB,
}


def is_outage(error: BaseException | None) -> bool:
    """Whether an error of Django's database layer says nothing about the query."""
    if not isinstance(error, Error):
        return False
    code = getattr(error.__cause__, "sqlite_errorcode", None)
    if code is not None:
        return code & 0xFF in _SQLITE_AWAY  # above these bits it says more
    state = getattr(error.__cause__, "sqlstate", None) or ""
    is_away = isinstance(error, (OperationalError, InterfaceError))
    return state in _AWAY or (is_away and not state.startswith(_WRONG))
