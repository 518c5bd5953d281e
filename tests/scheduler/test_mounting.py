"""T08 without Docker: what is mounted is what was looked at, whoever swaps what."""

import errno
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler.mounting import (
    NotAllowed,
    bind,
    identity,
    identity_in,
    pin,
    pin_as_it_is,
    unbind,
)

# They mount, as does whoever starts a daemon.
pytestmark = pytest.mark.docker


SWAP = """
import os
while True:
    for name in ("plain", "../secret"):
        os.symlink(name, "next")
        os.replace("next", "moving")
    os.unlink("moving")
    os.mkdir("moving")
    os.rmdir("moving")
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An allowed root, with a folder and a file in it, and a secret beside it."""
    (tmp_path / "data" / "sets").mkdir(parents=True)
    (tmp_path / "data" / "sets" / "one").write_text("one")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("key")
    return tmp_path / "data"


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Path]:
    target = tmp_path / "staged"
    yield target
    unbind(target)


def bound(source: Path, target: Path, root: Path, *, read_only: bool = True) -> None:
    fd = pin(str(source), [root])
    try:
        bind(fd, target, read_only=read_only)
    finally:
        os.close(fd)


class TestPin:
    def pinned(self, source: Path, root: Path) -> tuple[int, int]:
        fd = pin(str(source), [root])
        found = os.fstat(fd)
        os.close(fd)
        return found.st_dev, found.st_ino

    def test_a_folder_a_file_and_the_root_itself(self, root: Path) -> None:
        for source in (root / "sets", root / "sets" / "one", root):
            assert self.pinned(source, root) == identity(source)

    def test_a_link_that_stays_inside_is_followed(self, root: Path) -> None:
        (root / "latest").symlink_to("sets")
        assert self.pinned(root / "latest", root) == identity(root / "sets")

    def test_a_root_that_is_a_link_is_the_folder_it_names(self, root: Path) -> None:
        link = root.parent / "link"
        link.symlink_to(root)
        assert self.pinned(root / "sets", link) == identity(root / "sets")

    @pytest.mark.parametrize("source", ["secret", "data/../secret", "data-2", "."])
    def test_what_lies_elsewhere_is_refused_and_the_roots_are_named(
        self, root: Path, source: str
    ) -> None:
        with pytest.raises(NotAllowed, match=f"allowed root. They are: {root}"):
            pin(str(root.parent / source), [root])

    def test_a_link_that_leads_out_is_refused(self, root: Path) -> None:
        (root / "out").symlink_to(root.parent / "secret")
        with pytest.raises(NotAllowed, match="does not lie under"):
            pin(str(root / "out"), [root])

    def test_with_no_root_nothing_may_be_mounted(self, root: Path) -> None:
        with pytest.raises(NotAllowed, match="They are: none"):
            pin(str(root), [])

    def test_what_is_not_there_is_told_as_such(self, root: Path) -> None:
        with pytest.raises(FileNotFoundError):
            pin(str(root / "nothing"), [root])

    @pytest.mark.parametrize("kind", [stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFCHR])
    def test_what_is_neither_folder_nor_file_is_refused(
        self, root: Path, kind: int
    ) -> None:
        """A socket of some daemon, or a device, in a folder that may be mounted."""
        os.mknod(root / "odd", kind | 0o666, os.makedev(1, 3))
        with pytest.raises(NotAllowed, match="neither a folder nor a file"):
            pin(str(root / "odd"), [root])

    def test_a_name_that_is_a_link_no_more_when_it_is_read_is_refused(
        self, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (root / "moving").symlink_to("sets")

        def is_a_folder_by_now(path: object, **_: object) -> str:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)

        monkeypatch.setattr(os, "readlink", is_a_folder_by_now)
        with pytest.raises(NotAllowed, match="moving changed while it was looked at"):
            pin(str(root / "moving"), [root])

    def test_a_link_that_is_swapped_in_meanwhile_never_leads_out(
        self, root: Path
    ) -> None:
        """Two thousand looks while another process swaps as fast as it can."""
        secret, plain = identity(root.parent / "secret"), root / "plain"
        plain.mkdir()
        (root / "link").symlink_to(root.parent / "secret")
        (root / "moving").symlink_to("plain")
        meant = identity(plain)
        swapper = subprocess.Popen([sys.executable, "-c", SWAP], cwd=root)
        seen: set[tuple[int, int]] = set()
        refused = 0
        try:
            for _ in range(2000):
                try:
                    seen.add(self.pinned(root / "moving", root))
                except (NotAllowed, FileNotFoundError):
                    refused += 1
        finally:
            swapper.kill()
            swapper.wait()
        assert secret not in seen
        assert meant in seen
        assert refused


class TestPinAsItIs:
    def pinned(self, path: Path) -> tuple[int, int]:
        fd = pin_as_it_is(path)
        found = os.fstat(fd)
        os.close(fd)
        return found.st_dev, found.st_ino

    def test_a_folder_and_a_file(self, root: Path) -> None:
        for path in (root, root / "sets" / "one"):
            assert self.pinned(path) == identity(path)

    @pytest.mark.parametrize("below", [".", "key"])
    def test_a_link_in_its_place_or_above_it_is_refused(
        self, root: Path, below: str
    ) -> None:
        """By whoever may write to the folder that it lies in."""
        (root / "sets").rename(root / "old")
        (root / "sets").symlink_to(root.parent / "secret")
        with pytest.raises(NotAllowed, match="a link is on the way"):
            pin_as_it_is(root / "sets" / below)

    def test_a_link_that_is_swapped_in_meanwhile_is_never_followed(
        self, root: Path
    ) -> None:
        secret = identity(root.parent / "secret")
        swapper = subprocess.Popen([sys.executable, "-c", SWAP], cwd=root)
        seen: set[tuple[int, int]] = set()
        refused = 0
        try:
            for _ in range(2000):
                try:
                    seen.add(self.pinned(root / "moving"))
                except (NotAllowed, FileNotFoundError):
                    refused += 1
        finally:
            swapper.kill()
            swapper.wait()
        assert secret not in seen
        assert refused

    def test_what_is_not_there_is_told_as_such(self, root: Path) -> None:
        with pytest.raises(FileNotFoundError):
            pin_as_it_is(root / "nothing")

    def test_a_device_is_refused(self, root: Path) -> None:
        os.mknod(root / "odd", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        with pytest.raises(NotAllowed, match="neither a folder nor a file"):
            pin_as_it_is(root / "odd")


class TestBind:
    def test_a_swap_after_the_look_changes_nothing(
        self, root: Path, target: Path
    ) -> None:
        fd = pin(str(root / "sets"), [root])
        (root / "sets").rename(root / "aside")
        (root / "sets").symlink_to(root.parent / "secret")
        bind(fd, target, read_only=True)
        os.close(fd)
        assert os.listdir(target) == ["one"]

    def test_nor_does_one_after_the_bind(self, root: Path, target: Path) -> None:
        bound(root / "sets", target, root)
        (root / "sets").rename(root / "aside")
        (root / "sets").symlink_to(root.parent / "secret")
        assert os.listdir(target) == ["one"]

    def test_a_file_is_bound_as_one(self, root: Path, target: Path) -> None:
        bound(root / "sets" / "one", target, root)
        assert target.read_text() == "one"

    def test_what_may_only_be_read_can_not_be_written_there(
        self, root: Path, target: Path
    ) -> None:
        bound(root / "sets", target, root)
        with pytest.raises(OSError, match="Read-only"):
            (target / "two").write_text("two")

    def test_what_may_be_written_can(self, root: Path, target: Path) -> None:
        bound(root / "sets", target, root, read_only=False)
        (target / "two").write_text("two")
        assert (root / "sets" / "two").read_text() == "two"

    def test_no_device_in_it_is_one(self, root: Path, target: Path) -> None:
        os.mknod(root / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        bound(root, target, root, read_only=False)
        with pytest.raises(PermissionError):
            (target / "null").write_text("x")


class TestUnbind:
    @pytest.mark.parametrize("source", ["sets", "sets/one"])
    def test_what_was_seen_there_stays(
        self, root: Path, target: Path, source: str
    ) -> None:
        bound(root / source, target, root, read_only=False)
        unbind(target)
        assert not target.exists()
        assert (root / "sets" / "one").read_text() == "one"

    def test_twice_is_as_once(self, root: Path, target: Path) -> None:
        bound(root / "sets", target, root)
        unbind(target)
        unbind(target)
        assert not target.exists()

    def test_a_folder_with_something_in_it_is_left_alone(self, root: Path) -> None:
        """Were it a mount that can not be undone, that would be somebody's data."""
        unbind(root / "sets")
        assert (root / "sets" / "one").exists()

    def test_so_is_a_file_with_something_in_it(self, root: Path) -> None:
        unbind(root / "sets" / "one")
        assert (root / "sets" / "one").exists()


class TestAsSeenInside:
    def test_a_link_in_the_image_leads_where_it_leads_there(self, root: Path) -> None:
        """/data -> /sets: of the image's root, and not of ours."""
        (root / "data").symlink_to("/sets")
        assert identity_in(root, "/data") == identity(root / "sets")

    def test_one_that_leads_up_stays_inside(self, root: Path) -> None:
        (root / "data").symlink_to("../../../../../sets")
        assert identity_in(root, "/data") == identity(root / "sets")

    def test_nothing_is_no_identity(self, root: Path) -> None:
        with pytest.raises(FileNotFoundError):
            identity_in(root, "/nothing")
