import hashlib
import os
import secrets
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries

from jobs import storage
from jobs.models import Artifact, Attempt, Job
from jobs.storage import (
    ArtifactCap,
    BoundedLog,
    artifacts,
    complete_log,
    follow_log,
)
from tests.factories import make_attempt, make_job

MIB = 1024 * 1024


def kept(chunks: Iterable[bytes]) -> bytes:
    log = BoundedLog(1)
    for chunk in chunks:
        log.write(chunk)
    return log.content()


class TestBoundedLog:
    def test_what_is_within_the_cap_is_kept_byte_for_byte(self) -> None:
        chunks = (b"\xff\x00z\xc3", b"\xb3\n", b"", b"no newline")
        assert kept(chunks) == b"\xff\x00z\xc3\xb3\nno newline"

    def test_of_more_head_and_tail_are_kept_and_the_cut_is_marked(self) -> None:
        lines = [b"%07d\n" % n for n in range(400_000)]  # 3.05 MiB
        head, _, tail = kept(lines).partition(b"\n[gpujobs: ")
        assert head == b"".join(lines)[: MIB // 2]
        number, _, tail = tail.partition(b" bytes are left out here]\n")
        assert len(head) + int(number) + len(tail) == 8 * len(lines)
        assert b"".join(lines).endswith(tail)
        assert len(tail) == MIB // 2

    def test_one_huge_chunk_is_bounded_as_well(self) -> None:
        assert MIB < len(kept([b"x" * MIB] * 64)) < MIB + 100


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "1.log"


class TestFollowedLog:
    def test_it_can_be_read_while_it_grows(self, path: Path) -> None:
        def chunks() -> Iterator[bytes]:
            yield b"first\n"
            assert path.read_bytes() == b"first\n"
            yield b"second\n"

        assert not follow_log(path, chunks(), 1)
        assert path.read_bytes() == b"first\nsecond\n"

    def test_followed_again_it_takes_what_is_new(self, path: Path) -> None:
        follow_log(path, [b"one\ntw"], 1)
        assert not follow_log(path, [b"on", b"e\nt", b"wo\nthr", b"ee\n"], 1)
        assert path.read_bytes() == b"one\ntwo\nthree\n"

    def test_half_of_the_cap_is_followed_and_no_more_asked_for(
        self, path: Path
    ) -> None:
        def endless() -> Iterator[bytes]:
            while True:
                yield b"x" * 1000

        assert follow_log(path, endless(), 1)
        assert path.stat().st_size == MIB // 2
        assert follow_log(path, endless(), 1)
        assert path.stat().st_size == MIB // 2

    def test_a_stream_that_lost_its_beginning_is_not_written_behind_it(
        self, path: Path
    ) -> None:
        follow_log(path, [b"line 1\nline 2\n"], 1)
        assert follow_log(path, [b"line 8\nline 9\nline 10\n"], 1)
        assert path.read_bytes() == b"line 1\nline 2\n"

    def test_nothing_is_followed_across_a_gap(self, path: Path) -> None:
        assert follow_log(path, [b"line 1\n", b"", b"line 8\n"], 1)
        assert path.read_bytes() == b"line 1\n"

    def test_who_is_late_writes_nothing_twice(self, path: Path) -> None:
        """The follower of one process, while another completes the log."""
        whole = [b"line 1\n", b"line 2\n", b"line 3\n"]

        def late() -> Iterator[bytes]:
            yield whole[0]
            complete_log(path, whole, 1)
            yield from whole[1:]

        assert not follow_log(path, late(), 1)
        assert path.read_bytes() == b"".join(whole)


def lines(*numbers: int) -> bytes:
    return b"".join(b"step %d of the training\n" % n for n in range(*numbers))


class TestCompleteLog:
    def test_nobody_followed_and_all_is_there(self, tmp_path: Path) -> None:
        path = tmp_path / "logs" / "1.log"
        complete_log(path, [b"a\n", b"b"], 1)
        assert path.read_bytes() == b"a\nb"

    def test_what_was_followed_is_the_beginning_of_what_is_kept(
        self, path: Path
    ) -> None:
        path.write_bytes(b"a\nb")
        complete_log(path, [b"a", b"\nb\nc\n"], 1)
        assert path.read_bytes() == b"a\nb\nc\n"

    @pytest.mark.parametrize("kept", [[b"last\n"], [b"", b"la", b"st\n"]])
    def test_where_the_beginning_was_lost_what_was_followed_is_the_head(
        self, path: Path, kept: list[bytes]
    ) -> None:
        path.write_bytes(b"first\n")
        complete_log(path, kept, 1)
        assert path.read_bytes() == (
            b"first\n\n[gpujobs: some bytes may be lost here]\nlast\n"
        )

    @pytest.mark.parametrize("kept", [[], [b""]])
    def test_where_nothing_is_kept_any_more_what_was_followed_stays(
        self, path: Path, kept: list[bytes]
    ) -> None:
        path.write_bytes(b"first\n")
        complete_log(path, kept, 1)
        assert path.read_bytes() == b"first\n"

    @pytest.mark.parametrize("first", [0, 1, 400, 998, 1000])
    def test_what_was_followed_and_what_is_kept_are_put_together(
        self, path: Path, first: int
    ) -> None:
        """Lines that are in both are there once."""
        path.write_bytes(lines(1000))
        complete_log(path, [b"", lines(first, 3000)], 1)
        whole = lines(3000)
        if first == 1000:  # perhaps there were more between
            whole = lines(1000) + LOST + lines(1000, 3000)
        assert path.read_bytes() == whole

    def test_of_a_program_that_says_the_same_again_and_again_nothing_is_sure(
        self, path: Path
    ) -> None:
        path.write_bytes(b"y\n" * 5000)
        complete_log(path, [b"", b"y\n" * 9000], 1)
        assert path.read_bytes() == b"y\n" * 5000 + LOST + b"y\n" * 9000

    @pytest.mark.parametrize("followed", [0, 500, 40_000])
    @pytest.mark.parametrize("is_sure", [True, False])
    def test_twice_is_as_once(self, path: Path, followed: int, is_sure: bool) -> None:
        path.write_bytes(lines(followed)[: MIB // 2])
        kept = [lines(0 if is_sure else 60_000, 200_000)]
        for _ in range(2):
            complete_log(path, kept if is_sure else [b"", *kept], 1)
            content = path.read_bytes()
        assert MIB < len(content) < MIB + 200
        assert content.count(b"left out") == 1
        assert content.count(LOST) == (0 if is_sure else 1)

    def test_it_goes_on_where_a_crash_left_it(self, path: Path) -> None:
        """Half written, whatever of it came to the disk."""
        path.write_bytes(lines(500))
        complete_log(path, [b"", lines(900, 5000)], 1)
        whole = path.read_bytes()
        for size in (len(lines(500)) + len(LOST) + 100, len(whole) // 2, len(whole)):
            path.write_bytes(whole[:size])
            complete_log(path, [b"", lines(900, 5000)], 1)
            assert path.read_bytes() == whole

    def test_a_reader_sees_it_grow_and_never_shrink(self, path: Path) -> None:
        path.write_bytes(lines(40_000)[: MIB // 2])
        with path.open("rb") as reader:
            before = reader.read()
            complete_log(path, [lines(200_000)], 1)
            assert before + reader.read() == path.read_bytes()


LOST = b"\n[gpujobs: some bytes may be lost here]\n"


@pytest.fixture
def attempt(db: None) -> Attempt:
    return make_attempt(make_job())


@pytest.fixture
def left(tmp_path: Path) -> Path:
    folder = tmp_path / "artifacts"
    folder.mkdir()
    return folder


def shown(attempt: Attempt) -> dict[str, int]:
    return dict(attempt.artifacts.values_list("path", "size"))


def take_in(folder: Path, attempt: Attempt) -> None:
    assert artifacts.take_in(folder, attempt, within_s=60)


class TestTakeIn:
    def test_a_regular_file_is_moved_hashed_and_registered(
        self, attempt: Attempt, left: Path, settings: Any
    ) -> None:
        (left / "out").mkdir()
        (left / "out" / "metrics.json").write_bytes(b"{}")
        take_in(left, attempt)
        artifact = attempt.artifacts.get()
        assert artifact.path == "out/metrics.json"
        assert artifact.mime_type == "application/json"
        assert artifact.sha256 == hashlib.sha256(b"{}").hexdigest()
        stored = settings.DATA_ROOT / artifact.storage_path
        assert stored.read_bytes() == b"{}"
        assert not (left / "out" / "metrics.json").exists()
        assert "metrics" not in artifact.storage_path

    def test_nothing_but_regular_files_is_taken(
        self, attempt: Attempt, left: Path, tmp_path: Path
    ) -> None:
        secret = tmp_path / "secret"
        secret.mkdir()
        (secret / "shadow").write_text("root")
        (left / "link").symlink_to(secret / "shadow")
        (left / "folder").symlink_to(secret)
        (left / "loop").symlink_to(".")
        os.mkfifo(left / "pipe")
        (left / "empty").mkdir()
        (left / "real").write_text("x")
        take_in(left, attempt)
        assert shown(attempt) == {"real": 1}

    def test_a_folder_that_is_a_link_is_not_entered(
        self, attempt: Attempt, left: Path, tmp_path: Path
    ) -> None:
        (left / "x").write_text("x")
        (tmp_path / "swapped").symlink_to(left)
        take_in(tmp_path / "swapped", attempt)
        assert shown(attempt) == {}

    @pytest.mark.parametrize(
        ("name", "path"),
        [
            (b"a\nb", "a\nb"),
            (b"-rf", "-rf"),
            ("модель".encode(), "модель"),
            (b"\xff\xfe", "\\xff\\xfe"),
            (b"n" * 255, "n" * 255),
            (b"<script>", "<script>"),
        ],
    )
    def test_any_name_is_taken_and_stored_under_one_of_ours(
        self, attempt: Attempt, left: Path, name: bytes, path: str
    ) -> None:
        with open(os.path.join(os.fsencode(left), name), "wb") as file:
            file.write(b"x")
        take_in(left, attempt)
        artifact = attempt.artifacts.get()
        assert artifact.path == path
        assert Path(artifact.storage_path).name.isalnum()

    def test_a_file_that_is_swapped_for_a_link_is_not_followed(
        self,
        attempt: Attempt,
        left: Path,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        secret = tmp_path / "shadow"
        secret.write_text("root")
        secret.chmod(0o600)
        (left / "x").write_text("x")
        rename = os.rename

        def swap_first(source: str, target: Path, **options: int) -> None:
            (left / "x").unlink()
            (left / "x").symlink_to(secret)
            rename(source, target, **options)

        monkeypatch.setattr(os, "rename", swap_first)
        take_in(left, attempt)
        assert shown(attempt) == {}
        assert secret.stat().st_mode & 0o777 == 0o600

    @pytest.mark.parametrize("kind", ["link", "pipe"])
    def test_what_is_no_file_any_more_when_it_is_moved_is_left_out(
        self,
        attempt: Attempt,
        left: Path,
        monkeypatch: pytest.MonkeyPatch,
        kind: str,
    ) -> None:
        (left / "x").write_text("x")
        move = artifacts._move

        def swap_first(name: str, fd: int, target: Path) -> None:
            (left / "x").unlink()
            if kind == "link":
                (left / "x").symlink_to("/etc/hostname")
            else:
                os.mkfifo(left / "x")
            move(name, fd, target)

        monkeypatch.setattr(artifacts, "_move", swap_first)
        take_in(left, attempt)
        assert shown(attempt) == {}

    def test_a_path_as_long_as_can_be_is_taken(
        self, attempt: Attempt, left: Path
    ) -> None:
        names = [secrets.token_hex(100) for _ in range(storage.artifacts.MAX_DEPTH)]
        fd = os.open(left, os.O_RDONLY)
        for name in names:  # deeper than a path may be long: step by step
            os.mkdir(name, dir_fd=fd)
            inner = os.open(name, os.O_RDONLY, dir_fd=fd)
            os.close(fd)
            fd = inner
        os.close(os.open("x", os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=fd))
        os.close(fd)
        take_in(left, attempt)
        (path,) = shown(attempt)
        assert len(path) > 6000

    def test_it_is_done_in_slices_of_time(self, attempt: Attempt, left: Path) -> None:
        for name in ("a", "b", "c"):
            (left / name).write_text(name)
        slices = [artifacts.take_in(left, attempt, within_s=0) for _ in range(3)]
        assert slices == [False, False, True]
        assert shown(attempt) == {"a": 1, "b": 1, "c": 1}

    def test_its_queries_do_not_grow_with_the_files(
        self,
        attempt: Attempt,
        left: Path,
        django_assert_max_num_queries: DjangoAssertNumQueries,
    ) -> None:
        for number in range(200):
            (left / str(number)).write_text("x")
        with django_assert_max_num_queries(20):
            take_in(left, attempt)
        assert len(shown(attempt)) == 200

    def test_from_another_file_system_it_is_copied(
        self, attempt: Attempt, left: Path, settings: Any
    ) -> None:
        with tempfile.TemporaryDirectory(dir="/dev/shm") as other:
            assert os.stat(other).st_dev != left.stat().st_dev
            (Path(other) / "x").write_text("from afar")
            take_in(Path(other), attempt)
        stored = settings.DATA_ROOT / attempt.artifacts.get().storage_path
        assert stored.read_text() == "from afar"

    def test_two_names_that_look_alike_are_two_artifacts(
        self, attempt: Attempt, left: Path
    ) -> None:
        for name, content in ((b"\xff", b"1"), (b"\\xff", b"22")):
            with open(os.path.join(os.fsencode(left), name), "wb") as file:
                file.write(content)
        take_in(left, attempt)
        sizes = [size for _, size in sorted(shown(attempt).items())]
        assert sorted(sizes) == [1, 2]
        assert all(path.startswith("\\xff") for path in shown(attempt))

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
    def test_what_is_stored_is_no_more_its_users(
        self, attempt: Attempt, left: Path, settings: Any
    ) -> None:
        os.chown(settings.DATA_ROOT, 0, 12345)
        (left / "x").write_text("x")
        os.chown(left / "x", 10001, 10001)
        take_in(left, attempt)
        stored = settings.DATA_ROOT / attempt.artifacts.get().storage_path
        for path in (stored, stored.parent, stored.parent.parent):
            assert (path.stat().st_uid, path.stat().st_gid) == (0, 12345)
        assert stored.stat().st_mode & 0o777 == 0o640

    def test_more_files_than_the_cap_are_refused(
        self, attempt: Attempt, left: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(artifacts, "MAX_FILES", 3)
        for number in range(4):
            (left / str(number)).touch()
        with pytest.raises(ArtifactCap, match="Leave less there"):
            take_in(left, attempt)

    def test_a_sparse_file_counts_with_its_size(
        self, attempt: Attempt, left: Path, settings: Any
    ) -> None:
        settings.ARTIFACT_CAP_MB = 10
        with (left / "sparse").open("wb") as file:
            file.truncate(2**40)
        with pytest.raises(ArtifactCap):
            take_in(left, attempt)

    def test_folders_deeper_than_the_cap_are_refused(
        self, attempt: Attempt, left: Path
    ) -> None:
        deep = left.joinpath(*["d"] * 40)
        deep.mkdir(parents=True)
        (deep / "x").touch()
        with pytest.raises(ArtifactCap, match="deeper than 32"):
            take_in(left, attempt)

    def test_no_folder_at_all_is_no_artifact(
        self, attempt: Attempt, left: Path
    ) -> None:
        take_in(left / "gone", attempt)
        assert shown(attempt) == {}

    def test_a_second_call_finishes_what_a_first_one_began(
        self, attempt: Attempt, left: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("a", "b", "c"):
            (left / name).write_text(name)
        moved: list[str] = []
        move = artifacts._move

        def crash_at_the_second(name: str, fd: int, target: Path) -> None:
            moved.append(name)
            if len(moved) == 2:
                raise KeyboardInterrupt
            move(name, fd, target)

        monkeypatch.setattr(artifacts, "_move", crash_at_the_second)
        with pytest.raises(KeyboardInterrupt):
            take_in(left, attempt)
        monkeypatch.setattr(artifacts, "_move", move)
        take_in(left, attempt)
        assert shown(attempt) == {"a": 1, "b": 1, "c": 1}
        assert not Artifact.objects.filter(sha256="").exists()


class TestFilesOfAJob:
    def test_the_link_names_the_log_of_the_latest_attempt(
        self, attempt: Attempt, settings: Any
    ) -> None:
        storage.open_log(attempt)
        link = settings.DATA_ROOT / attempt.job.log_path
        (settings.DATA_ROOT / attempt.log_path).write_text("of attempt 1")
        assert link.read_text() == "of attempt 1"
        attempt.number, attempt.log_path = 2, f"logs/{attempt.job_id}/2.log"
        storage.open_log(attempt)
        assert link.read_text() == ""

    def test_what_is_left_of_jobs_that_are_gone_is_swept(
        self, attempt: Attempt, settings: Any
    ) -> None:
        storage.open_log(attempt)
        gone = "0b6f7f7e-1111-4222-8333-944445555666"
        logs, store = settings.DATA_ROOT / "logs", settings.DATA_ROOT / "artifacts"
        (logs / gone).mkdir()
        (logs / f"{gone}.log").symlink_to(f"{gone}/1.log")
        (store / gone / "1").mkdir(parents=True)
        (logs / "notes of an operator").touch()
        storage.sweep()
        assert sorted(path.name for path in logs.iterdir()) == sorted(
            [str(attempt.job_id), f"{attempt.job_id}.log", "notes of an operator"]
        )
        assert list(store.iterdir()) == []

    def test_they_go_with_the_job(
        self, attempt: Attempt, left: Path, settings: Any
    ) -> None:
        storage.open_log(attempt)
        (left / "x").write_text("x")
        take_in(left, attempt)
        job_id = Job.objects.get().pk
        storage.remove_files(job_id)
        storage.remove_files(job_id)
        assert not list(settings.DATA_ROOT.glob(f"*/{job_id}*"))
