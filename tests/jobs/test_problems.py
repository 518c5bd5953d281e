from typing import Any

import pytest
from django.core.exceptions import BadRequest, PermissionDenied, SuspiciousOperation
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path
from rest_framework.exceptions import ValidationError
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from jobs.api.problems import Problem, Unplaceable, pointer
from tests.asserts import assert_problem

ERRORS: dict[str, Exception] = {
    "not-allowed": PermissionDenied("Ask an operator."),
    "denied": PermissionDenied(),
    "suspicious": SuspiciousOperation("with a secret"),
    "bug": RuntimeError("with a secret"),
    "unplaceable": Unplaceable("No GPU is that large.", gpus=[1]),
    "own": Problem("Odd.", "odd"),
    "nested": ValidationError(
        {"a": [{"b/c": ["wrong"]}], "d": {"~": ["bad", "worse"]}}
    ),
    "list": ValidationError(["one thing"]),
}


class FailingView(APIView):
    permission_classes = (AllowAny,)

    def get(self, request: Request, name: str) -> Response:
        raise ERRORS[name]


def fail_outside_rest(request: HttpRequest) -> HttpResponse:
    raise BadRequest("with a secret")


handler400 = "jobs.api.problems.bad_request"
handler404 = "jobs.api.problems.not_found"
handler500 = "jobs.api.problems.server_error"
urlpatterns = [
    path("api/<name>", FailingView.as_view()),
    path("api/plain/bad", fail_outside_rest),
    path("pages/<name>", FailingView.as_view()),
    path("pages/plain/bad", fail_outside_rest),
]
pytestmark = pytest.mark.urls("tests.jobs.test_problems")


@pytest.fixture
def client() -> Client:
    return Client(raise_request_exception=False)


@pytest.mark.parametrize(
    ("name", "status", "code"),
    [
        ("not-allowed", 403, "permission_denied"),
        ("denied", 403, "permission_denied"),
        ("suspicious", 400, "bad_request"),
        ("plain/bad", 400, "bad_request"),
        ("unplaceable", 422, "never_fits"),
        ("own", 500, "odd"),
        ("bug", 500, "server_error"),
        ("nested", 400, "invalid"),
        ("list", 400, "invalid"),
        ("no/such/path", 404, "not_found"),
    ],
)
def test_every_error_is_a_problem(
    client: Client, name: str, status: int, code: str
) -> None:
    body = assert_problem(client.get(f"/api/{name}"), status, code)
    assert body["instance"] == f"/api/{name}"
    assert body["title"]
    assert "secret" not in str(body)


def test_an_error_with_members_of_its_own_keeps_them(client: Client) -> None:
    body = client.get("/api/unplaceable").json()
    assert (body["detail"], body["gpus"]) == ("No GPU is that large.", [1])


def test_errors_within_errors_are_pointed_at(client: Client) -> None:
    body = client.get("/api/nested").json()
    assert [(e["pointer"], e["detail"]) for e in body["errors"]] == [
        ("/a/0/b~1c", "wrong"),
        ("/d/~0", "bad"),
        ("/d/~0", "worse"),
    ]


def test_one_error_of_no_field_is_the_detail(client: Client) -> None:
    body = client.get("/api/list").json()
    assert (body["detail"], body["errors"][0]["pointer"]) == ("one thing", "")


@pytest.mark.parametrize(("path", "status"), [("plain/bad", 400), ("bug", 500)])
def test_pages_get_pages(client: Client, path: str, status: int) -> None:
    answer = client.get(f"/pages/{path}")
    assert answer.status_code == status
    assert answer["Content-Type"].startswith("text/html")


@pytest.mark.parametrize(
    ("steps", "text"),
    [((), ""), (("a", 0), "/a/0"), (("a/b", "c~d", ""), "/a~1b/c~0d/")],
)
def test_a_pointer_is_that_of_rfc_6901(steps: Any, text: str) -> None:
    assert pointer(steps) == text
