"""Rows for tests: plain functions, which go through lifecycle where it is the door."""

import hashlib
import itertools
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from jobs import lifecycle, policies, storage
from jobs.models import Artifact, Attempt, Job, RoutingPolicy, User
from jobs.routing import Risk, parse
from jobs.status import Reason, Status

PASSWORD = "correct horse battery"
IMAGE = "pytorch/pytorch:2.9.0-cuda12.8-cudnn9-runtime"
NODE = "gauss"

_numbers = itertools.count(1)


def make_user(email: str = "", **fields: Any) -> User:
    """An approved account whose password is PASSWORD."""
    email = email or f"user{next(_numbers)}@example.org"
    return User.objects.create_user(email, **{"password": PASSWORD, **fields})


def document(name: str = "sentiment", **changes: Any) -> dict[str, Any]:
    """Of a policy with two tiers, which a test makes its own."""
    small = {"name": "small", "image": IMAGE, "model_version": "1", "gpu_count": 1}
    large = {**small, "name": "large", "min_vram_mb": 20_000}
    return {"name": name, "tiers": [{**small, "min_vram_mb": 1000}, large], **changes}


def make_policy(name: str = "sentiment", **changes: Any) -> RoutingPolicy:
    """A version that is live."""
    row, _ = policies.store(parse(document(name, **changes)), by="olga")
    policies.activate(row, by="olga")
    return row


def make_job(
    owner: User | None = None,
    *,
    status: str = Status.QUEUED,
    reason: str = "",
    **spec: Any,
) -> Job:
    """A job that came to `status` by the usual moves; `reason` is that of its end."""
    owner = owner or make_user()
    if name := spec.get("model_name"):
        policy = RoutingPolicy.objects.active().filter(name=name).first()
        by_it = {"policy": policy or make_policy(name), "risk": Risk.LOW}
        spec = {"tier": "small", "params": {}, **by_it, **spec}
    job = lifecycle.submit(by=owner, **{"name": "train", "image": IMAGE, **spec})
    if status == Status.CANCELLED:
        return lifecycle.request_cancel(job, by=owner)
    if status != Status.QUEUED:
        make_attempt(job, status=status, reason=reason)
        job.refresh_from_db()
    return job


def make_attempt(
    job: Job, *, status: str = Status.RUNNING, reason: str = ""
) -> Attempt:
    """Start a queued job and bring it on to `status`."""
    with transaction.atomic():
        attempt = lifecycle.start(
            job, node=NODE, gpu_indices=[0], gpu_uuids=["GPU-0"], by="scheduler"
        )
    if status != Status.STARTING:
        lifecycle.mark_running(
            attempt,
            container_id=attempt.nonce * 2,
            image_digest="sha256:" + "0" * 64,
            boot_id="boot",
            started_at=timezone.now(),
            by=NODE,
        )
    if status in (Status.SUCCEEDED, Status.FAILED):
        finish(attempt, reason or _usual_reason(status))
    return attempt


def _usual_reason(status: str) -> Reason:
    return Reason.COMPLETED if status == Status.SUCCEEDED else Reason.NONZERO_EXIT


def finish(attempt: Attempt, reason: str) -> None:
    lifecycle.see_exit(attempt, by=NODE)
    lifecycle.record_evidence(
        attempt,
        exit_code=0 if reason == Reason.COMPLETED else 1,
        evidence={},
        mean_utilisation={},
    )
    lifecycle.finish(
        attempt, Reason(reason), "It ended.", usage=lifecycle.Usage(), by=NODE
    )


def make_artifact(
    attempt: Attempt, path: str = "model.pt", content: bytes = b"weights", **fields: Any
) -> Artifact:
    """A file in the store; call it before the attempt's job is asked for its result."""
    storage_path = f"artifacts/{attempt.job_id}/{attempt.number}/{next(_numbers)}"
    stored = settings.DATA_ROOT / storage_path
    stored.parent.mkdir(parents=True, exist_ok=True)
    stored.write_bytes(content)
    return Artifact.objects.create(
        **{
            "attempt": attempt,
            "path": path,
            "storage_path": storage_path,
            "size": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
            "mime_type": "application/octet-stream",
            **fields,
        }
    )


def write_log(job: Job, content: bytes) -> None:
    """Make `content` the log of the job's latest attempt."""
    attempt = job.attempts.latest("number")
    storage.open_log(attempt)
    path = settings.DATA_ROOT / attempt.log_path
    path.write_bytes(content)
