"""What a model job's program is given beside its command: files, never code.

Params, prompt and earlier verdicts are data in files. A command template takes names of
ours alone, so that nothing that a submitter wrote becomes part of a command.
"""

import json
import os
import shutil
from pathlib import Path
from typing import Any

from django.conf import settings

from jobs.models import Attempt
from jobs.routing import render
from jobs.status import Kind
from scheduler.execution.ground import work_folder
from scheduler.runner.base import INPUTS

PARAMS, PROMPT, VERDICTS, RESULT = (
    "params.json",
    "prompt.txt",
    "verdicts.json",
    "result",
)


def inputs_folder(attempt: Attempt) -> Path | None:
    """Where they lie on the host; None for a job that names an image."""
    return work_folder(attempt) / "inputs" if attempt.job.policy_id else None


def input_env(attempt: Attempt) -> dict[str, str]:
    """Where the program finds them."""
    folder = inputs_folder(attempt)
    if folder is None:
        return {}
    seen = _seen(folder)
    own = {"GPUJOBS_TIER": attempt.tier, "GPUJOBS_MODEL_VERSION": _version(attempt)}
    if attempt.kind == Kind.VALIDATOR:
        own["GPUJOBS_RESULT"] = f"{seen}/{RESULT}"
    return {
        "GPUJOBS_PARAMS": f"{seen}/{PARAMS}",
        "GPUJOBS_PROMPT": f"{seen}/{PROMPT}",
        "GPUJOBS_VERDICTS": f"{seen}/{VERDICTS}",
        **own,
    }


def _seen(folder: Path) -> str:
    """A process sees the host's own path."""
    return INPUTS if settings.RUNNER == "docker" else str(folder)


def _version(attempt: Attempt) -> str:
    return attempt.decision.model_version if attempt.decision else ""


def command_values(attempt: Attempt) -> dict[str, str]:
    """What each name in a command template stands for."""
    folder = inputs_folder(attempt)
    assert folder is not None
    seen = _seen(folder)
    artifacts = work_folder(attempt) / "artifacts"
    is_docker = settings.RUNNER == "docker"
    return {
        "params": f"{seen}/{PARAMS}",
        "prompt": f"{seen}/{PROMPT}",
        "verdicts": f"{seen}/{VERDICTS}",
        "result": f"{seen}/{RESULT}",
        "artifacts": "/artifacts" if is_docker else str(artifacts),
        "model_version": _version(attempt),
        "prompt_version": attempt.decision.prompt_version if attempt.decision else "",
        "tier": attempt.tier,
    }


def write_inputs(attempt: Attempt) -> None:
    """Readable for the job's user; in a container the folder is mounted read-only."""
    folder = inputs_folder(attempt)
    if folder is None:
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _write(folder / PARAMS, json.dumps(attempt.job.params))
    _write(folder / PROMPT, _prompt(attempt))
    _write(folder / VERDICTS, json.dumps(_verdicts(attempt)))
    if attempt.subject is not None:
        _show_result(attempt.subject, folder / RESULT)
    folder.chmod(0o755)


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o644)


def _prompt(attempt: Attempt) -> str:
    policy = attempt.job.policy
    assert policy is not None
    tier = policy.tiers.filter(name=attempt.tier).first()
    params = attempt.job.params
    values = params if isinstance(params, dict) else {}
    return render(tier.prompt, values) if tier else ""


def _verdicts(attempt: Attempt) -> list[dict[str, Any]]:
    """Of earlier attempts what their validators said, and why they ended: never what
    their programs did."""
    earlier = attempt.job.attempts.filter(kind=Kind.JOB, number__lt=attempt.number)
    rows = earlier.exclude(ended_at=None).select_related("evaluation")
    return [
        {
            "attempt": each.number,
            "tier": each.tier,
            "reason": each.reason,
            "outcomes": getattr(each, "evaluation", None) and each.evaluation.outcomes,
        }
        for each in rows.order_by("number")
    ]


def _show_result(subject: Attempt, folder: Path) -> None:
    """What it left, under the names it gave: links to the stored files where that can
    be, which nobody may write through."""
    folder.mkdir()
    for row in subject.artifacts.order_by("path"):
        shown = folder / row.path
        shown.parent.mkdir(parents=True, exist_ok=True)
        stored = Path(settings.DATA_ROOT) / row.storage_path
        try:
            os.link(stored, shown)
        except OSError:  # another file system
            shutil.copyfile(stored, shown)
        shown.chmod(0o644)
    for path in (folder, *(p for p in folder.rglob("*") if p.is_dir())):
        path.chmod(0o755)
