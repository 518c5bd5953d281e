"""The routing policies of a demo: one that needs a shell alone, and a real classifier
where scikit-learn is at hand."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from demo_machine import Machine

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
# As in the example's Dockerfile.
IN_THE_IMAGE = ["python3", "/app/classify.py"]
PYTHONS = (sys.executable, "/usr/bin/python3")


def policies(machine: Machine, folder: Path) -> Iterator[Path]:
    """Files to load, written into `folder` where this machine needs other commands."""
    yield EXAMPLES / "demo" / "policy.yaml"
    if machine.runner == "process" and (python := _python()):
        yield _as_process(python, folder)
    elif machine.runner == "process":
        machine.notes.append(
            "The policy classify is left out: no Python that jobs can reach has "
            "scikit-learn (on Debian: apt install python3-sklearn)."
        )


def _python() -> str:
    """An interpreter that has scikit-learn and that the jobs' user may start."""
    for python in PYTHONS:
        if _is_reachable(Path(python).resolve()) and _is_reachable(EXAMPLES):
            asked = [python, "-c", "import sklearn"]
            if subprocess.run(asked, capture_output=True, check=False).returncode == 0:
                return python
    return ""


def _is_reachable(path: Path) -> bool:
    """Of a demo as root jobs run as nobody."""
    if os.geteuid() != 0:
        return True
    return path.exists() and all(
        p.stat().st_mode & 0o001 for p in (path, *path.parents)
    )


def _as_process(python: str, folder: Path) -> Path:
    document: dict[str, Any] = yaml.safe_load(
        (EXAMPLES / "classify" / "policy.yaml").read_text()
    )
    for tier in document["tiers"]:
        arguments = tier["command"][len(IN_THE_IMAGE) :]
        program = str(EXAMPLES / "classify" / "classify.py")
        tier["command"] = [python, program, *arguments]
    # The suite takes longer than a first look: docs/policies.md goes through it.
    document.pop("release")
    written = folder / "classify.yaml"
    written.write_text(yaml.safe_dump(document, sort_keys=False))
    return written
