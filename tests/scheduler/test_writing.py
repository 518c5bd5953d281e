"""What jobs write to the node's disk: measured as it lies there, and bounded."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from jobs.models import Attempt
from jobs.status import Reason
from scheduler.execution import launch, work_folder
from scheduler.supervisor import Supervisor, writing
from scheduler.supervisor.writing import Written, excess, measure
from tests.e2e.stack import until
from tests.fakes import Clock, FakeRunner
from tests.scheduler.factories import make_reserved

MB = b"x" * 2**20


class TestMeasure:
    def test_what_lies_on_the_disk_in_all_the_folders(self, tmp_path: Path) -> None:
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "file").write_bytes(3 * MB)
        told = measure([tmp_path / "a", tmp_path / "b"])
        assert (told.size_mb // 6, told.files) == (1, 4)

    def test_nothing_where_nothing_is(self, tmp_path: Path) -> None:
        assert measure([tmp_path / "none"]) == Written(0, 0)
        assert measure([]) == Written(0, 0)

    def test_a_hole_in_a_file_is_nothing(self, tmp_path: Path) -> None:
        with (tmp_path / "sparse").open("wb") as file:
            file.truncate(2**40)
        assert measure([tmp_path]).size_mb < 2

    def test_what_a_link_leads_to_is_not_the_jobs(self, tmp_path: Path) -> None:
        (tmp_path / "in").mkdir()
        (tmp_path / "big").write_bytes(5 * MB)
        (tmp_path / "in" / "link").symlink_to(tmp_path / "big")
        (tmp_path / "in" / "all").symlink_to("/")
        assert measure([tmp_path / "in"]).size_mb < 2

    def test_however_deep_it_lies(self, tmp_path: Path) -> None:
        top = tmp_path / "top"
        top.mkdir()
        here = os.open(top, os.O_DIRECTORY)
        for _ in range(1500):
            os.mkdir("deeper", dir_fd=here)
            deeper = os.open("deeper", os.O_DIRECTORY, dir_fd=here)
            os.close(here)
            here = deeper
        os.close(here)
        assert measure([top]).files == 1501
        # It is deeper than what clears up after the tests goes.
        subprocess.run(["rm", "-rf", str(top)], check=True)

    def test_a_name_that_looks_like_an_option_is_a_folder(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        Path("-h").mkdir()
        assert measure([Path("-h")]).files == 1


class TestExcess:
    @pytest.fixture(autouse=True)
    def _caps(self, settings: Any) -> None:
        settings.ARTIFACT_CAP_MB, settings.SCRATCH_CAP_MB = 10, 20

    @pytest.mark.parametrize(
        ("artifacts", "others", "found"),
        [
            (Written(0, 0), Written(0, 0), None),
            (Written(10, 1), Written(20, 1), None),
            (
                Written(11, 1),
                Written(0, 0),
                (Reason.ARTIFACT_CAP, "It wrote 11 MiB; 10 are allowed."),
            ),
            (
                Written(0, 0),
                Written(2100, 1),
                (Reason.SCRATCH_FULL, "It wrote 2,100 MiB; 20 are allowed."),
            ),
            (
                Written(0, 0),
                Written(0, 1_000_001),
                (
                    Reason.SCRATCH_FULL,
                    "It made 1,000,001 files; 1,000,000 are allowed.",
                ),
            ),
            (
                Written(0, 1_000_001),
                Written(0, 0),
                (
                    Reason.ARTIFACT_CAP,
                    "It made 1,000,001 files; 1,000,000 are allowed.",
                ),
            ),
        ],
    )
    def test_it_is_stopped_for(
        self,
        artifacts: Written,
        others: Written,
        found: tuple[Reason, str] | None,
    ) -> None:
        assert excess(artifacts, others) == found


@pytest.mark.django_db
class TestSupervised:
    @pytest.fixture
    def attempt(
        self, supervisor: Supervisor, runner: FakeRunner, settings: Any
    ) -> Attempt:
        settings.SCRATCH_CAP_MB = settings.ARTIFACT_CAP_MB = 2
        attempt = make_reserved()
        launch(str(attempt.pk))
        return attempt

    def stopped_for(
        self, supervisor: Supervisor, clock: Clock, attempt: Attempt
    ) -> Attempt:
        def wish() -> bool:
            clock.now_s += writing.PATIENCE_S
            supervisor.turn()
            attempt.refresh_from_db()
            return attempt.stop_reason != ""

        until(wish, "the wish that it stops", 60)
        return attempt

    @pytest.mark.parametrize(
        ("folder", "reason"),
        [("scratch", "scratch_full"), ("artifacts", "artifact_cap")],
    )
    def test_a_job_that_writes_too_much_is_stopped(
        self,
        supervisor: Supervisor,
        clock: Clock,
        attempt: Attempt,
        folder: str,
        reason: str,
    ) -> None:
        (work_folder(attempt) / folder / "big").write_bytes(4 * MB)
        stopped = self.stopped_for(supervisor, clock, attempt)
        assert stopped.stop_reason == reason
        assert "2 are allowed" in stopped.evidence["stop_text"]

    def test_so_is_one_that_writes_it_into_its_image(
        self,
        supervisor: Supervisor,
        runner: FakeRunner,
        clock: Clock,
        attempt: Attempt,
        tmp_path: Path,
    ) -> None:
        layer = tmp_path / "layer"
        layer.mkdir()
        (layer / "big").write_bytes(4 * MB)
        runner.change(attempt.container_name, layer=str(layer))
        stopped = self.stopped_for(supervisor, clock, attempt)
        assert stopped.stop_reason == "scratch_full"
