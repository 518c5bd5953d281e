import re
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver
from drf_spectacular.generators import SchemaGenerator
from rest_framework.test import APIClient

from jobs.api.problems import CONTENT_TYPE
from jobs.models import User
from tests.factories import make_artifact, make_job

pytestmark = pytest.mark.django_db

OPEN = {"register", "login", "refresh", "logout", "health"}


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return SchemaGenerator().get_schema(request=None, public=True)


def operations(schema: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (path, method, operation)
        for path, methods in schema["paths"].items()
        for method, operation in methods.items()
    ]


def test_the_schema_is_valid_and_leaves_nothing_to_guess(tmp_path: Any) -> None:
    file = str(tmp_path / "schema.yaml")
    call_command("spectacular", validate=True, fail_on_warn=True, file=file)


def test_every_route_of_the_api_is_in_the_schema(schema: dict[str, Any]) -> None:
    documented = {re.sub(r"\{\w+\}", "{}", path) for path in schema["paths"]}
    assert set(_routes(get_resolver().url_patterns, "/")) == documented


def _routes(patterns: list[Any], prefix: str) -> list[str]:
    found = []
    for pattern in patterns:
        route = prefix + str(pattern.pattern).lstrip("^")
        if isinstance(pattern, URLResolver):
            found += _routes(pattern.url_patterns, route)
        elif isinstance(pattern, URLPattern) and route.startswith("/api/v1/"):
            path = re.sub(r"\(\?P<\w+>[^)]*\)", "{}", route.removesuffix("/?$"))
            found.append(path)
    return [path for path in found if not path.endswith(("/schema", "/docs", "/v1"))]


def test_every_operation_names_its_problems(schema: dict[str, Any]) -> None:
    for path, method, operation in operations(schema):
        assert CONTENT_TYPE in operation["responses"]["default"]["content"], (
            path,
            method,
        )


def test_every_operation_but_those_of_strangers_asks_for_a_login(
    schema: dict[str, Any], alice: User
) -> None:
    job = make_job(alice, status="succeeded")
    for path, method, _ in operations(schema):
        url = path.replace("{id}", str(job.pk)).replace("{policy}", "sentiment")
        status = getattr(APIClient(), method)(url, {}).status_code
        if path.rpartition("/")[2] not in OPEN:
            assert status == 401, (path, method)


def test_a_job_is_described_as_it_is_sent(
    schema: dict[str, Any], api: Any, alice: User
) -> None:
    described = schema["components"]["schemas"]
    job = make_job(alice, status="succeeded")
    make_artifact(job.attempts.get())
    for path, name in [("", "Job"), ("/artifact", "Result")]:
        body = api(alice).get(f"/api/v1/jobs/{job.pk}{path}").json()
        assert body.keys() == described[name]["properties"].keys()
    for path, name in [("/events", "Event"), ("/attempts", "Attempt")]:
        body = api(alice).get(f"/api/v1/jobs/{job.pk}{path}").json()["results"][0]
        assert body.keys() == described[name]["properties"].keys()


def test_the_bounds_of_a_spec_are_those_of_the_model(schema: dict[str, Any]) -> None:
    spec = schema["components"]["schemas"]["JobSubmit"]["properties"]
    assert (spec["gpu_count"]["minimum"], spec["gpu_count"]["maximum"]) == (0, 64)
    assert spec["env"]["additionalProperties"] == {"type": "string"}


@pytest.mark.parametrize("slash", ["", "/"])
def test_the_schema_is_served(slash: str) -> None:
    answer = APIClient().get("/api/v1/schema" + slash)
    assert answer.status_code == 200
    assert b"openapi: 3" in answer.content


def test_the_browsable_page_needs_nothing_from_elsewhere() -> None:
    answer = APIClient().get("/api/v1/docs")
    assert answer.status_code == 200
    links = re.findall(rb'(?:src|href)="([^"]*)"', answer.content)
    assert links
    assert all(link.startswith((b"/", b"?")) for link in links), links
    assert b"<script>" not in answer.content


def test_styles_from_scripts_are_allowed_on_that_page_only() -> None:
    docs = APIClient().get("/api/v1/docs")["Content-Security-Policy"]
    assert "style-src 'self' 'unsafe-inline'" in docs
    assert "unsafe" not in docs.replace("style-src 'self' 'unsafe-inline'", "")
    other = APIClient().get("/api/v1/jobs")["Content-Security-Policy"]
    assert "unsafe" not in other


@pytest.mark.parametrize("root", ["/api/v1", "/api/v1/"])
def test_the_root_of_the_api_leads_to_its_description(
    client: Client, root: str
) -> None:
    answer = client.get(root)
    assert (answer.status_code, answer["Location"]) == (302, "/api/v1/docs")


def test_a_browsable_page_offers_to_log_in(client: Client) -> None:
    answer = client.get("/api/v1/jobs", headers={"accept": "text/html"})
    assert answer.status_code == 401
    assert "/api/session/login/" in answer.content.decode()
