"""PostgreSQL for whoever answers requests: nothing is waited for without an end.

A server may stand still while the kernel under it keeps its connections alive: neither
keepalives nor its own statement_timeout tell of that.
"""

from typing import Any, TypeVar

import psycopg
from django.db.backends.postgresql import base
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus

T = TypeVar("T")

QUERY_S = 4.0
# A connection that was idle and does not answer at once is made anew, which takes time.
CHECK_S = 1.0
# Given up by us a query would still be done, long after we said that it was not.
STATEMENT_MS = 3500


class Connection(psycopg.Connection[Any]):
    patience_s = QUERY_S

    def wait(
        self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None
    ) -> T:
        limit_s = self.patience_s if timeout is None else timeout
        try:
            return super().wait(gen, interval=interval, timeout=limit_s)
        except psycopg.OperationalError:
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                # Given up in its middle: what comes next would be its answer.
                self.pgconn.finish()
            raise


class _Driver:
    """psycopg, with connections of ours."""

    connect = Connection.connect

    def __getattr__(self, name: str) -> Any:
        return getattr(psycopg, name)


class DatabaseWrapper(base.DatabaseWrapper):
    Database: Any = _Driver()

    def init_connection_state(self) -> None:
        super().init_connection_state()
        with self.connection.cursor() as cursor:
            cursor.execute(f"SET statement_timeout = {STATEMENT_MS}")

    def is_usable(self) -> bool:
        if self.connection is None:
            return False
        self.connection.patience_s = CHECK_S
        try:
            return bool(super().is_usable())
        finally:
            self.connection.patience_s = QUERY_S
