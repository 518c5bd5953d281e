"""What the project promises of itself, and no other test would notice."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.apps import apps

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = [
    path
    for app in ("gpujobs", "jobs", "scheduler")
    for path in (ROOT / app).rglob("*.py")
    if "migrations" not in path.parts
]
SETTINGS = (ROOT / "gpujobs" / "settings.py").read_text()
README = (ROOT / "README.md").read_text()
MOST_LINES = 300


def functions(path: Path) -> Iterator[ast.FunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            yield node


def test_only_the_lifecycle_writes_the_status_of_a_job() -> None:
    """An assignment, or an update of job rows that names it."""
    writers = set()
    for path in PRODUCT:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Assign):
                targets = [t for t in node.targets if isinstance(t, ast.Attribute)]
                if any(
                    target.attr == "status" and getattr(target.value, "id", "") == "job"
                    for target in targets
                ):
                    writers.add(str(path.relative_to(ROOT)))
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in ("update", "bulk_update")
                and any(keyword.arg == "status" for keyword in node.keywords)
            ):
                writers.add(str(path.relative_to(ROOT)))
    assert writers == {"jobs/lifecycle/moves.py"}


@pytest.mark.parametrize("path", PRODUCT, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_fits_on_a_few_screens(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MOST_LINES


@pytest.mark.parametrize("path", PRODUCT, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_function_fits_on_one_screen(path: Path) -> None:
    for function in functions(path):
        assert function.end_lineno is not None
        assert function.end_lineno - function.lineno < 50, function.name


def test_every_model_says_what_it_is() -> None:
    for app in ("jobs", "scheduler"):
        for model in apps.get_app_config(app).get_models():
            assert "__str__" in vars(model), model


def test_every_setting_is_in_the_readme_and_every_one_there_is_read() -> None:
    read = set(re.findall(r'"(GPUJOBS_[A-Z_]+|DATABASE_URL)"', SETTINGS))
    told = set(re.findall(r"^\| `(GPUJOBS_[A-Z_]+|DATABASE_URL)` \|", README, re.M))
    assert told == read
    assert len(read) <= 30


def test_every_dependency_is_pinned_and_says_why() -> None:
    for line in (ROOT / "requirements.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            assert re.fullmatch(r"[\w\[\]-]+==[\d.]+  # .+", line), line


def test_what_the_readme_shows_and_links_to_is_there() -> None:
    for name in re.findall(r"(?:\(|\s)(docs/[\w.]+\w)", README):
        assert (ROOT / name).exists(), name


def test_no_file_is_named_for_nothing() -> None:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    names = {Path(line).stem for line in listed.splitlines()}
    assert not names & {"utils", "helpers", "services", "managers", "common", "misc"}
