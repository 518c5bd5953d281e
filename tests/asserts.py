from typing import Any


def whole(answer: Any) -> bytes:
    """What a streamed answer holds. Read to its end, it closes its file."""
    assert answer.status_code == 200, answer.content
    return b"".join(answer.streaming_content)


def assert_problem(
    answer: Any, status: int, code: str, pointer: str | None = None
) -> dict[str, Any]:
    """The answer is a complete RFC 9457 problem, and tells what is wrong and where."""
    assert answer.status_code == status, answer.content
    assert answer["Content-Type"].startswith("application/problem+json")
    body: dict[str, Any] = answer.json()
    assert {"type", "title", "status", "detail", "instance", "code"} <= body.keys()
    assert (body["status"], body["type"]) == (status, f"/problems/{body['code']}")
    assert body["code"] == code, body
    if pointer is not None:
        assert pointer in [error["pointer"] for error in body["errors"]], body
    return body
