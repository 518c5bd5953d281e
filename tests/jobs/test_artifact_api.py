import io
import zipfile
from typing import Any

import pytest

from jobs.api.artifacts import safe_name
from jobs.models import Job, User
from tests.asserts import assert_problem, whole
from tests.factories import finish, make_artifact, make_attempt, make_job

pytestmark = pytest.mark.django_db


def path(job: Job, part: str = "") -> str:
    return f"/api/v1/jobs/{job.pk}/artifact{part}"


@pytest.fixture
def job(alice: User) -> Job:
    return make_job(alice, status="succeeded")


def members(answer: Any) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(whole(answer))) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.parametrize("slash", ["", "/"])
def test_one_file_is_the_result(api: Any, alice: User, job: Job, slash: str) -> None:
    artifact = make_artifact(job.attempts.get(), mime_type="text/html")
    body = api(alice).get(path(job, slash)).json()
    assert body["files"] == [
        {
            "id": str(artifact.pk),
            "path": "model.pt",
            "size": 7,
            "sha256": artifact.sha256,
            "mime_type": "text/html",
        }
    ]
    assert (body["id"], body["job_id"]) == (str(artifact.attempt_id), str(job.pk))
    assert body["storage_path"] == artifact.storage_path
    assert body["mime_type"] == "text/html"
    assert body["created_at"].endswith("Z")


def test_several_files_are_a_folder(api: Any, alice: User, job: Job) -> None:
    for name in ("b", "a", "sub/c"):
        make_artifact(job.attempts.get(), name)
    body = api(alice).get(path(job)).json()
    assert [file["path"] for file in body["files"]] == ["a", "b", "sub/c"]
    assert body["storage_path"] == f"artifacts/{job.pk}/1"
    assert body["mime_type"] == "application/zip"


def test_the_result_is_that_of_the_attempt_that_succeeded(
    api: Any, alice: User
) -> None:
    job = make_job(alice)
    lost = make_attempt(job)
    make_artifact(lost, "lost")
    finish(lost, "node_lost")
    make_artifact(make_attempt(job, status="succeeded"), "kept")
    body = api(alice).get(path(job)).json()
    assert [file["path"] for file in body["files"]] == ["kept"]


@pytest.mark.parametrize("status", ["queued", "running", "failed", "cancelled"])
@pytest.mark.parametrize("part", ["", "/download"])
def test_a_job_that_did_not_succeed_has_no_result(
    api: Any, alice: User, status: str, part: str
) -> None:
    job = make_job(alice, status=status)
    if attempt := job.attempts.first():
        make_artifact(attempt)
    body = assert_problem(api(alice).get(path(job, part)), 404, "not_succeeded")
    assert status in body["detail"]


@pytest.mark.parametrize("part", ["", "/download"])
def test_a_job_that_left_no_files_says_so(
    api: Any, alice: User, job: Job, part: str
) -> None:
    assert_problem(api(alice).get(path(job, part)), 404, "no_artifact")


@pytest.mark.parametrize("slash", ["", "/"])
def test_one_file_downloads_as_it_is(
    api: Any, alice: User, job: Job, slash: str
) -> None:
    make_artifact(
        job.attempts.get(), "out/page.html", b"<script>", mime_type="text/html"
    )
    answer = api(alice).get(path(job, "/download" + slash))
    assert whole(answer) == b"<script>"
    assert answer["Content-Length"] == "8"
    assert answer["Content-Disposition"] == 'attachment; filename="page.html"'


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("accept", ["*/*", "text/html", "application/zip"])
def test_a_download_never_runs_in_a_browser(
    api: Any, alice: User, job: Job, count: int, accept: str
) -> None:
    for number in range(count):
        make_artifact(job.attempts.get(), f"{number}.html", mime_type="text/html")
    answer = api(alice).get(path(job, "/download"), headers={"Accept": accept})
    whole(answer)
    assert answer["Content-Type"] == "application/octet-stream"
    assert answer["Content-Disposition"].startswith("attachment")
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["Content-Security-Policy"] == "sandbox"


def test_several_files_download_as_a_zip(api: Any, alice: User, job: Job) -> None:
    big = b"x" * 200_000
    make_artifact(job.attempts.get(), "a.txt", b"A")
    make_artifact(job.attempts.get(), "sub/\u00e9.bin", big)
    make_artifact(job.attempts.get(), "empty", b"")
    answer = api(alice).get(path(job, "/download"))
    assert members(answer) == {"a.txt": b"A", "sub/\u00e9.bin": big, "empty": b""}
    assert f"{job.pk}.zip" in answer["Content-Disposition"]


def test_a_zip_goes_out_while_it_is_made(api: Any, alice: User, job: Job) -> None:
    for number in range(2):
        make_artifact(job.attempts.get(), str(number), b"x" * 1_000_000)
    answer = api(alice).get(path(job, "/download"))
    assert max(len(block) for block in answer.streaming_content) < 70_000


def test_one_of_several_can_be_asked_for(api: Any, alice: User, job: Job) -> None:
    for name in ("a.txt", "sub/a.txt"):
        make_artifact(job.attempts.get(), name, name.encode())
    answer = api(alice).get(path(job, "/download"), {"path": "sub/a.txt"})
    assert whole(answer) == b"sub/a.txt"


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("path=b.txt", 404, "no_artifact"),
        ("path=../../../etc/passwd", 404, "no_artifact"),
        ("path=%2fetc%2fpasswd", 404, "no_artifact"),
        ("path=", 400, "blank"),
        ("path=%00", 400, "null_characters_not_allowed"),
        ("path=" + "x" * 5000, 400, "max_length"),
        ("file=a.txt", 400, "unknown_parameter"),
    ],
)
def test_a_path_that_the_job_did_not_leave(
    api: Any, alice: User, job: Job, query: str, status: int, code: str
) -> None:
    make_artifact(job.attempts.get(), "a.txt")
    answer = api(alice).get(path(job, "/download?" + query))
    assert_problem(answer, status, code)


@pytest.mark.parametrize(
    ("hostile", "safe", "what"),
    [
        ("../../x", "x", "ways up"),
        ("/etc/x", "etc/x", "an absolute path"),
        ("a/../../b", "a/b", "a way up inside"),
        ("..", "file", "nothing but a way up"),
        ("a\\..\\b", "a/b", "the other slash"),
        ("C:\\x", "C_/x", "a drive"),
        ("a\nb", "a_b", "a newline"),
        ("a\x00b", "a_b", "a NUL"),
        ("a\u202egnp.exe", "a_gnp.exe", "a direction override"),
        ("\ud800", "_", "half of a surrogate pair"),
        ("é/-rf", "é/-rf", "a leading dash, which is only odd"),
        ("./a//b/", "a/b", "empty parts"),
    ],
)
def test_names_in_a_zip_harm_nobody(hostile: str, safe: str, what: str) -> None:
    assert safe_name(hostile) == safe, what


def test_names_that_become_one_stay_apart(api: Any, alice: User, job: Job) -> None:
    for name in ("x", "../x", "/x"):
        make_artifact(job.attempts.get(), name, name.encode())
    answer = api(alice).get(path(job, "/download"))
    assert members(answer) == {"x": b"../x", "x.2": b"/x", "x.3": b"x"}


def test_a_newline_in_a_name_does_not_split_the_header(
    api: Any, alice: User, job: Job
) -> None:
    make_artifact(job.attempts.get(), 'a"\r\nSet-Cookie: x=1')
    answer = api(alice).get(path(job, "/download"))
    whole(answer)
    assert "\n" not in answer["Content-Disposition"]
    assert "Set-Cookie" not in answer.headers


@pytest.mark.parametrize("count", [1, 2])
def test_a_file_that_has_left_the_store_is_404(
    api: Any, alice: User, job: Job, settings: Any, count: int
) -> None:
    for number in range(count):
        artifact = make_artifact(job.attempts.get(), str(number))
    (settings.DATA_ROOT / artifact.storage_path).unlink()
    assert_problem(api(alice).get(path(job, "/download")), 404, "file_gone")


@pytest.mark.parametrize("part", ["", "/download"])
def test_a_stranger_gets_no_result(
    api: Any, alice: User, bob: User, olga: User, job: Job, part: str
) -> None:
    make_artifact(job.attempts.get())
    assert_problem(api(bob).get(path(job, part)), 404, "not_found")
    assert_problem(api().get(path(job, part)), 401, "not_authenticated")
    answer = api(olga).get(path(job, part))
    assert answer.status_code == 200
    assert answer.getvalue()
