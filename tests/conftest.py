import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import cache
from django.db import connections
from django.test import TransactionTestCase
from rest_framework.test import APIClient

from jobs.models import User
from tests.factories import make_user
from tests.rig.fixtures import daemon, machine, session_machine

__all__ = ["daemon", "machine", "session_machine"]

_flush = TransactionTestCase._fixture_teardown  # type: ignore[attr-defined]


@contextmanager
def _open_door(alias: str) -> Iterator[None]:
    """Let append-only rows go: the flush after a transactional test meets triggers."""
    connection = connections[alias]
    shut, opened = {
        "postgresql": ("RESET gpujobs.purge", "SET gpujobs.purge = 'all'"),
        "sqlite": (
            "DELETE FROM jobs_purge_pass",
            "INSERT INTO jobs_purge_pass (kind) VALUES ('all')",
        ),
    }[connection.vendor]
    with connection.cursor() as cursor:
        cursor.execute(opened)
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute(shut)


def _flush_all(case: TransactionTestCase) -> None:
    with _open_door("default"):
        _flush(case)


TransactionTestCase._fixture_teardown = _flush_all  # type: ignore[attr-defined]


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    django_db_modify_db_settings_parallel_suffix: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """SQLite in a file, as it is used: several processes share it."""
    database = connections["default"]
    if database.vendor == "sqlite":
        name = tmp_path_factory.mktemp("database") / "test.db"
        database.settings_dict["TEST"]["NAME"] = str(name)


@pytest.fixture(autouse=True)
def _quick_and_apart(settings: Any, tmp_path: Path) -> Iterator[None]:
    """Each test has its own files and throttles, and a hash that takes no time."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    settings.DATA_ROOT = tmp_path / "data"
    settings.DATA_ROOT.mkdir()
    settings.POLICY_FILE = tmp_path / "policy.toml"
    # Static files are served from where they lie: nothing was collected.
    settings.WHITENOISE_AUTOREFRESH = settings.WHITENOISE_USE_FINDERS = True
    cache.clear()
    yield
    cache.clear()


def _toml(value: Any) -> str:
    """Of texts, numbers, booleans and lists of them TOML and JSON are one."""
    if isinstance(value, dict):
        pairs = (f"{key} = {_toml(inner)}" for key, inner in value.items())
        return f"{{{', '.join(pairs)}}}"
    return json.dumps(value)


@pytest.fixture
def declare(settings: Any) -> Callable[..., None]:
    """Write what this host lets containers have: declare(read_only=["/srv"])."""

    def write(**values: Any) -> None:
        lines = [f"{name} = {_toml(value)}\n" for name, value in values.items()]
        settings.POLICY_FILE.write_text("".join(lines))

    return write


@pytest.fixture
def alice(db: None) -> User:
    """Owns the jobs of a test."""
    return make_user("alice@example.org", name="Alice")


@pytest.fixture
def bob(db: None) -> User:
    """An outsider."""
    return make_user("bob@example.org", name="Bob")


@pytest.fixture
def olga(db: None) -> User:
    """An operator."""
    return make_user("olga@example.org", name="Olga", is_staff=True)


@pytest.fixture
def api() -> Callable[..., APIClient]:
    """Make a client: `api()` is nobody, `api(alice)` is logged in as Alice."""

    def as_user(user: User | None = None) -> APIClient:
        client = APIClient()
        if user is not None:
            client.force_authenticate(user)
        return client

    return as_user
