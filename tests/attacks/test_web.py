"""T54, T60: what other origins may read, and with what settings nothing is served."""

import os
import subprocess
import sys
from typing import Any

import pytest
from django.test import Client

ORIGIN = "https://lab.example"


@pytest.mark.django_db
class TestOtherOrigins:
    def asks(self, origin: str, path: str = "/api/v1/jobs") -> Any:
        headers = {
            "Origin": origin,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization",
        }
        return Client().options(path, headers=headers)

    @pytest.mark.parametrize("origin", [ORIGIN, "null", "http://localhost:3000", "*"])
    def test_none_may_by_default(self, origin: str) -> None:
        assert "Access-Control-Allow-Origin" not in self.asks(origin).headers

    def test_one_that_was_named_may_and_never_with_cookies(self, settings: Any) -> None:
        settings.CORS_ALLOWED_ORIGINS = [ORIGIN]
        headers = self.asks(ORIGIN).headers
        assert headers["Access-Control-Allow-Origin"] == ORIGIN
        assert "Access-Control-Allow-Credentials" not in headers

    @pytest.mark.parametrize(
        "origin",
        [
            "https://lab.example.evil.example",
            "http://lab.example",
            "https://lab.example:8443",
            "https://evil.example/https://lab.example",
            "null",
        ],
    )
    def test_one_that_looks_like_it_may_not(self, settings: Any, origin: str) -> None:
        settings.CORS_ALLOWED_ORIGINS = [ORIGIN]
        assert "Access-Control-Allow-Origin" not in self.asks(origin).headers

    @pytest.mark.parametrize("path", ["/", "/admin/login/", "/login/"])
    def test_pages_are_for_none(self, settings: Any, path: str) -> None:
        settings.CORS_ALLOWED_ORIGINS = [ORIGIN]
        answer = self.asks(ORIGIN, path)
        assert "Access-Control-Allow-Origin" not in answer.headers


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"GPUJOBS_ALLOWED_HOSTS": "*"}, "E010"),
        ({"GPUJOBS_DEBUG": "1", "GPUJOBS_ALLOWED_HOSTS": "gpu.lab"}, "E011"),
        ({"GPUJOBS_SECRET_KEY": "secret" * 10}, "E012"),
        ({"GPUJOBS_SECRET_KEY": ""}, "Set GPUJOBS_SECRET_KEY"),
        ({"GPUJOBS_SECRET_KEY": "short"}, "at least 50 characters"),
        ({"GPUJOBS_JOB_USER": "0:0"}, "E004"),
        ({"GPUJOBS_POLICY": "/"}, "E009"),
    ],
)
def test_nothing_is_served_with(
    changes: dict[str, str], told: str, tmp_path: Any
) -> None:
    """T60: by a web server, which asks no manage.py."""
    key = "0123456789abcdefghijklmnopqrstuvwxyz" * 2
    env = {
        **{k: v for k, v in os.environ.items() if not k.startswith("GPUJOBS_")},
        "GPUJOBS_DATA_ROOT": str(tmp_path),
        "GPUJOBS_SECRET_KEY": key,
        **changes,
    }
    serve = [sys.executable, "-c", "import gpujobs.wsgi"]
    done = subprocess.run(serve, env=env, check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert told in done.stderr
