"""A PostgreSQL that neither answers nor goes away: who waits is told within 5 s."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
import requests

from tests.e2e.stack import PASSWORD, Person, Stack, until
from tests.postgres import Server

pytestmark = pytest.mark.postgres

WITHIN_S = 5.0
SPEC = {"image": "busybox:1", "command": "true", "gpu_count": 0}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, server: Server) -> Iterator[Stack]:
    """The web server alone, as it is installed: with no pages for developers."""
    env = {"DATABASE_URL": server.url, "GPUJOBS_DEBUG": "0"}
    stack = Stack(tmp_path_factory.mktemp("stack"), env)
    try:
        stack.manage("collectstatic", "--noinput", "-v0")
        stack.start("web")
        yield stack
    finally:
        stack.destroy()


@pytest.fixture(scope="module")
def ada(stack: Stack) -> Person:
    return stack.person("ada@example.org")


@pytest.fixture(scope="module")
def browser(stack: Stack, ada: Person) -> requests.Session:
    """Logged in at the pages."""
    session, login = requests.Session(), f"{stack.url}/login/"
    session.get(login)
    token = session.cookies["csrftoken"]
    person = {"username": "ada@example.org", "password": PASSWORD}
    session.post(login, {**person, "csrfmiddlewaretoken": token})
    return session


def told_in_time(answer: requests.Response) -> None:
    assert answer.status_code == 503, answer.text
    assert answer.elapsed.total_seconds() < WITHIN_S
    assert int(answer.headers["Retry-After"]) > 0


def test_a_server_that_stands_still(
    stack: Stack, server: Server, ada: Person, browser: requests.Session
) -> None:
    """F27. All at once, as they come: each has its own connection."""
    asked: dict[str, Callable[[], requests.Response]] = {
        "health": lambda: requests.get(f"{stack.url}/health", timeout=30),
        "list": lambda: ada.get("/jobs"),
        "submit": lambda: ada.post("/jobs", SPEC),
        "page": lambda: browser.get(f"{stack.url}/jobs/"),
    }
    server.stand_still()
    try:
        with ThreadPoolExecutor() as people:
            answers = dict(zip(asked, people.map(_ask, asked.values()), strict=True))
    finally:
        server.go_on()
    for name, answer in answers.items():
        told_in_time(answer)
        is_page = name == "page"
        kind = answer.headers["Content-Type"].partition(";")[0]
        assert kind == ("text/html" if is_page else "application/problem+json")
    until(lambda: ada.get("/jobs").status_code == 200, "an answer", 10)
    assert browser.get(f"{stack.url}/jobs/").status_code == 200


def _ask(ask: Callable[[], requests.Response]) -> requests.Response:
    return ask()


def test_a_table_that_somebody_locks(
    stack: Stack, ada: Person, browser: requests.Session
) -> None:
    """And what was given up is not done later, when the lock is free."""
    with psycopg.connect(stack.env["DATABASE_URL"]) as migration:
        migration.execute("LOCK TABLE jobs_job IN ACCESS EXCLUSIVE MODE")
        told_in_time(ada.post("/jobs", {**SPEC, "name": "given-up"}))
        told_in_time(browser.get(f"{stack.url}/jobs/"))
    assert ada.post("/jobs", SPEC).status_code == 201
    assert ada.get("/jobs", name="given-up").json()["count"] == 0


def test_a_supervisor_that_starts_before_its_database_and_ends_after_it(
    stack: Stack, server: Server, ada: Person
) -> None:
    """F27."""

    def states() -> list[str]:
        nodes = ada.get("/nodes").json().get("results", [])
        return [node["state"] for node in nodes]

    log = stack.folder / "supervisor.log"
    server.stop()
    try:
        stack.spawn("supervisor")
        until(lambda: "does not answer" in log.read_text(), "the loss to be seen")
    finally:
        server.start()
    until(lambda: states() == ["up"], "the node to be up")
    server.stop()
    try:
        stack.stop("supervisor")
    finally:
        server.start()
