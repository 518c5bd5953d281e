"""The examples as they run: a real classifier in two sizes, its suite and its gate.

Without Docker, as a first look has it: the process runner, on simulated GPUs.
"""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.stack import ROOT, Person, Stack, running

PYTHON = "/usr/bin/python3"
CLASSIFY = ROOT / "examples" / "classify"


def has_scikit_learn() -> bool:
    asked = [PYTHON, "-c", "import sklearn"]
    return Path(PYTHON).exists() and subprocess.run(asked, check=False).returncode == 0


pytestmark = [
    # They start what a machine without Debian's packages does not have.
    pytest.mark.docker,
    pytest.mark.skipif(not has_scikit_learn(), reason="needs Debian's python3-sklearn"),
]


def reachable(folder: Path) -> Path:
    """For the user that processes run as, through all that is above it."""
    for path in (folder, *folder.parents):
        if not path.stat().st_mode & 0o001:
            path.chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = reachable(tmp_path_factory.mktemp("stack"))
    env = {
        "GPUJOBS_RUNNER": "process",
        "GPUJOBS_INVENTORY": "simulated",
        "GPUJOBS_JOB_USER": "65534:65534",
        "GPUJOBS_POLICY": str(folder / "policy.toml"),
    }
    with running(folder, env) as stack:
        stack.data.chmod(0o711)
        yield stack


@pytest.fixture(scope="module")
def ada(stack: Stack) -> Person:
    return stack.person("ada@example.org")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the jobs' user can read it."""
    folder = reachable(tmp_path_factory.mktemp("program"))
    for name in ("classify.py", "corpus.py"):
        shutil.copy(CLASSIFY / name, folder)
        (folder / name).chmod(0o644)
    return folder / "classify.py"


def policy(program: Path) -> dict[str, Any]:
    """As the example has it, started as a process."""
    document: dict[str, Any] = yaml.safe_load((CLASSIFY / "policy.yaml").read_text())
    for tier in document["tiers"]:
        tier["command"] = [PYTHON, str(program), *tier["command"][2:]]
    return document


def load(stack: Stack, tmp_path: Path, document: dict[str, Any]) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(yaml.safe_dump(document))
    stack.manage("policy", "load", str(file))


def evaluate(stack: Stack, version: int) -> str:
    suite = str(CLASSIFY / "suite.yaml")
    return stack.manage("evaluate", "classify", str(version), "--suite", suite)


def refused(stack: Stack, version: int) -> str:
    done = subprocess.run(
        [*stack.program, "policy", "activate", "classify", str(version)],
        env=stack.env,
        cwd=stack.root,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0, done.stdout
    return done.stderr


def test_the_gate_lets_a_good_version_through_and_a_worse_one_not(
    stack: Stack, ada: Person, program: Path, tmp_path: Path
) -> None:
    """First the whole example; then without the large model; then with it again."""
    good = policy(program)
    load(stack, tmp_path, good)
    assert "No suite was run through it" in refused(stack, 1)
    told = evaluate(stack, 1)
    assert "label: 1.000" in told
    assert "classify version 1 may go live." in told
    stack.manage("policy", "activate", "classify", "1")

    alone = {**good, "tiers": good["tiers"][:1], "escalate_on": []}
    alone.pop("max_escalations")
    load(stack, tmp_path, alone)
    told = evaluate(stack, 2)
    assert "FAIL  mistyped, for the large one" in told
    text = refused(stack, 2)
    assert "label is 0.667, and must reach 0.9" in text
    assert "worse than the live version's 1.000" in text

    load(stack, tmp_path, {**good, "description": "As before."})
    evaluate(stack, 3)
    stack.manage("policy", "activate", "classify", "3")
    assert ada.get("/policies").json()["results"][0]["version"] == 3

    # What a person is not sure of the small model hands on to the large one.
    plain = ask(ada, "how do I mount a dataset")
    assert (plain["model"], plain["label"]) == ("small", "howto")
    mistyped = ask(ada, "trainng crashs, tracebck")
    assert (mistyped["model"], mistyped["label"]) == ("large", "bug")
    report = stack.manage("policy", "savings", "classify")
    assert "escalated" in report
    assert "small:" in report
    assert "large:" in report


def ask(ada: Person, text: str) -> dict[str, Any]:
    job_id = ada.submit(model_name="classify", params={"text": text})
    ada.wait_for(job_id, "succeeded")
    found = ada.get(f"/jobs/{job_id}/artifact/download").content
    return dict(json.loads(found))


def test_the_demos_policy_answers_and_fails_where_it_is_asked_to(
    stack: Stack, ada: Person
) -> None:
    file = str(ROOT / "examples" / "demo" / "policy.yaml")
    stack.manage("policy", "load", file, "--activate")
    asked = {"prompt": 'Say "hi"', "should_fail": False}
    job_id = ada.submit(model_name="demo", params=asked)
    ada.wait_for(job_id, "succeeded")
    found = json.loads(ada.get(f"/jobs/{job_id}/artifact/download").content)
    assert found == {"answered_by": "small", "asked": asked}
    failing = ada.submit(model_name="demo", params={"prompt": "x", "should_fail": True})
    job = ada.wait_for(failing, "failed")
    assert (job["reason"], job["exit_code"]) == ("nonzero_exit", 3)
    hard = ada.submit(model_name="demo", params={"prompt": "Why? Prove it."})
    assert ada.wait_for(hard, "succeeded")["tier"] == "large"


def test_a_job_that_validates_reads_the_result_without_docker_too(
    stack: Stack, ada: Person, tmp_path: Path
) -> None:
    check = {
        "name": "reads",
        "container": "any:1",
        "command": ["/bin/grep", "-q", "42", "{{ result }}/answer"],
    }
    tier = {
        "name": "only",
        "image": "any:1",
        "command": "echo 42 > $GPUJOBS_ARTIFACTS/answer",
        "gpu_count": 0,
        "model_version": "1",
    }
    file = tmp_path / "policy.yaml"
    told = {"name": "reading", "tiers": [tier], "validators": [check]}
    file.write_text(yaml.safe_dump(told))
    stack.manage("policy", "load", str(file), "--activate")
    job_id = ada.submit(model_name="reading")
    ada.wait_for(job_id, "succeeded")
    kinds = [a["kind"] for a in ada.get(f"/jobs/{job_id}/attempts").json()["results"]]
    assert kinds == ["job", "validator"]
