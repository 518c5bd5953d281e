"""A job's passport: what ran, for whom, on which GPUs, how it ended; signed.

Ed25519 (RFC 8032) over the canonical JSON of all but the signature, with a key that is
derived from the site's: who has the public key can verify it without us.
"""

import base64
import hashlib
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings
from django.core.serializers.json import DjangoJSONEncoder
from django.db.models import QuerySet

from jobs.models import Attempt, Evaluation, Job, RoutingDecision

FORMAT = "gpujobs-passport-1"
_ASKED = (
    *(
        "image",
        "command",
        "model_name",
        "params",
        "risk",
        "gpu_count",
        "min_vram_mb",
        "share",
    ),
    *(
        "gpu_name",
        "cpus",
        "memory_mb",
        "shm_mb",
        "volumes",
        "network",
        "timeout_s",
        "grace_s",
    ),
    *("priority", "node_name", "node_labels", "array", "array_index", "begin_at"),
)
_OF_AN_ATTEMPT = (
    *(
        "number",
        "kind",
        "validator",
        "gpu_uuids",
        "node",
        "tier",
        "image_digest",
        "container_id",
        "boot_id",
    ),
    *("cpus", "memory_mb", "shm_mb", "created_at", "started_at", "exited_at"),
    *("ended_at", "exit_code", "reason", "evidence", "peak_vram_mb"),
    "mean_utilisation",
)


_OF_A_DECISION = (
    *("number", "cause", "tier", "gpu_name", "model_version", "prompt_version"),
    *("params_digest", "risk", "complexity", "contributions", "candidates"),
    *("fallback", "text", "request", "created_at"),
)
_OF_AN_EVALUATION = (
    *("is_accepted", "outcomes", "scores", "gpu_seconds", "reviewed_at"),
    *("reviewed_by", "review_accepts", "review_text"),
)


class NoPassport(Exception):
    """It is none, or not what was signed; says why."""


def passport(job: Job) -> dict[str, Any]:
    """Of a job that has ended. No value of a variable is in it, and no secret."""
    told = {
        "format": FORMAT,
        "job": _job(job),
        "decisions": [_decision(each) for each in _decisions(job)],
        "attempts": [_attempt(each) for each in job.attempts.order_by("number")],
        "events": [
            {"at": e.created_at, "type": e.event_type, "by": e.actor, **e.payload}
            for e in job.events.order_by("id")
        ],
        "key": public_key(),
    }
    plain = json.loads(json.dumps(told, cls=DjangoJSONEncoder))
    signature = _key(settings.SECRET_KEY).sign(_canonical(plain))
    return {**plain, "signature": base64.b64encode(signature).decode()}


def _job(job: Job) -> dict[str, Any]:
    return {
        "id": str(job.pk),
        "name": job.name,
        "owner": job.owner.email,
        "group": job.group,
        # As it was sent, before any escalation.
        "asked": {**{name: getattr(job, name) for name in _ASKED}, **_sent(job)},
        # Names alone: values often are passwords.
        "env": sorted(job.env),
        "secrets": job.secrets,
        "status": job.status,
        "reason": job.reason,
        "reason_text": job.reason_text,
        "exit_code": job.exit_code,
        "gpu_uuids": job.assigned_gpu_uuids,
        "gpu_indices": job.assigned_gpu_indices,
        "created_at": job.created_at,
        "started_at": job.started_at,
        "finished_at": job.finished_at,
    }


def _sent(job: Job) -> dict[str, Any]:
    return {name: value for name, value in job.asked.items() if name in _ASKED}


def _attempt(attempt: Attempt) -> dict[str, Any]:
    files = attempt.artifacts.values("path", "size", "sha256")
    return {
        **{name: getattr(attempt, name) for name in _OF_AN_ATTEMPT},
        "evaluation": _evaluation(attempt),
        "log_sha256": _digest(settings.DATA_ROOT / attempt.log_path),
        "artifacts": list(files),
    }


def _decisions(job: Job) -> QuerySet[RoutingDecision]:
    return job.decisions.select_related("policy").order_by("number")


def _decision(made: RoutingDecision) -> dict[str, Any]:
    """By which version of which policy, and all that was rejected."""
    policy = made.policy
    return {
        **{name: getattr(made, name) for name in _OF_A_DECISION},
        "policy": policy.name if policy else None,
        "policy_version": policy.version if policy else None,
        "policy_digest": policy.digest if policy else None,
    }


def _evaluation(attempt: Attempt) -> dict[str, Any] | None:
    found = Evaluation.objects.filter(attempt=attempt).first()
    return {n: getattr(found, n) for n in _OF_AN_EVALUATION} if found else None


def _digest(path: Path) -> str | None:
    """None where there is no log: the attempt came to no start."""
    try:
        with path.open("rb") as log:
            return hashlib.file_digest(log, "sha256").hexdigest()
    except (FileNotFoundError, IsADirectoryError):
        return None


# --- Signing -------------------------------------------------------------------------


def verify(text: str, key: str) -> dict[str, Any]:
    """What a passport says, signed by who has `key` (see `public_key`). Raises
    NoPassport."""
    try:
        told = json.loads(text)
        signature = base64.b64decode(told.pop("signature"), validate=True)
        signed = _canonical(told)
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        raise NoPassport(
            "This is no passport: it is no JSON with a signature."
        ) from error
    if told.get("format") != FORMAT:
        raise NoPassport(f"This is no passport of the format {FORMAT}.")
    if told.get("key") != key:
        raise NoPassport(
            f"It was signed by another site: its key is {told.get('key')}."
        )
    try:
        public = Ed25519PublicKey.from_public_bytes(base64.b64decode(key))
        public.verify(signature, signed)
    except (InvalidSignature, ValueError) as error:
        raise NoPassport("It was changed after it was signed.") from error
    return dict(told)


def public_key() -> str:
    raw = _key(settings.SECRET_KEY).public_key().public_bytes_raw()
    return base64.b64encode(raw).decode()


@lru_cache(maxsize=2)
def _key(site_key: str) -> Ed25519PrivateKey:
    derived = HKDF(SHA256(), length=32, salt=None, info=b"gpujobs.passport")
    return Ed25519PrivateKey.from_private_bytes(derived.derive(site_key.encode()))


def _canonical(told: Any) -> bytes:
    return json.dumps(told, sort_keys=True, separators=(",", ":")).encode()
