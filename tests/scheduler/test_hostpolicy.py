from pathlib import Path

import pytest

from scheduler.hostpolicy import refusal_of_mount


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An allowed root, with a folder in it and a secret beside it."""
    (tmp_path / "data" / "sets").mkdir(parents=True)
    (tmp_path / "secret").mkdir()
    return tmp_path / "data"


def test_a_folder_under_an_allowed_root_may_be_mounted(root: Path) -> None:
    assert refusal_of_mount(str(root / "sets"), [root]) == ""


def test_the_root_itself_may_be_mounted(root: Path) -> None:
    assert refusal_of_mount(str(root), [root]) == ""


def test_a_root_that_is_a_link_is_the_folder_it_names(root: Path) -> None:
    link = root.parent / "link"
    link.symlink_to(root)
    assert refusal_of_mount(str(root / "sets"), [link]) == ""


@pytest.mark.parametrize("source", ["secret", "data/../secret", "data-of-others", "."])
def test_what_lies_elsewhere_is_refused_and_the_roots_are_named(
    root: Path, source: str
) -> None:
    refusal = refusal_of_mount(str(root.parent / source), [root])
    assert "does not lie under an allowed root" in refusal
    assert str(root) in refusal


def test_a_link_that_leads_out_is_followed_and_refused(root: Path) -> None:
    (root / "out").symlink_to(root.parent / "secret")
    assert refusal_of_mount(str(root / "out"), [root]) != ""


def test_with_no_root_nothing_may_be_mounted(root: Path) -> None:
    assert "allows no volumes" in refusal_of_mount(str(root), [])
