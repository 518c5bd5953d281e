"""System checks: a setting that would be unsafe or without effect is an error."""

from collections.abc import Iterable
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, register

from jobs.hostpolicy import HostPolicyError, host_policy

LOOPBACK = {"localhost", "127.0.0.1", "[::1]"}


@register()
def settings_make_sense(app_configs: Any, **_: Any) -> Iterable[CheckMessage]:
    found = {
        "gpujobs.E001": (
            settings.RUNNER not in ("docker", "process"),
            "GPUJOBS_RUNNER is 'docker' or 'process'.",
        ),
        "gpujobs.E002": (
            settings.INVENTORY not in ("nvml", "simulated"),
            "GPUJOBS_INVENTORY is 'nvml' or 'simulated'.",
        ),
        "gpujobs.E003": (
            settings.REGISTRATION not in ("closed", "approval", "open"),
            "GPUJOBS_REGISTRATION is 'closed', 'approval' or 'open'.",
        ),
        "gpujobs.E004": (
            not _is_a_user(settings.JOB_USER),
            "GPUJOBS_JOB_USER is a uid:gid, neither of them 0 unless policy.toml says so.",
        ),
        "gpujobs.E005": (
            settings.RUNNER == "process"
            and settings.REGISTRATION == "open"
            and not LOOPBACK.issuperset(settings.ALLOWED_HOSTS),
            "With no isolation no stranger may register: close GPUJOBS_REGISTRATION.",
        ),
        "gpujobs.E006": (
            min(settings.LOG_CAP_MB, settings.ARTIFACT_CAP_MB, settings.SCRATCH_CAP_MB)
            < 1,
            "GPUJOBS_LOG_CAP_MB, _ARTIFACT_CAP_MB and _SCRATCH_CAP_MB are at least 1.",
        ),
        "gpujobs.E007": (
            settings.HEADROOM_MB < 0 or settings.FOREIGN_TOLERANCE_MB < 0,
            "GPUJOBS_HEADROOM_MB and GPUJOBS_FOREIGN_TOLERANCE_MB are not negative.",
        ),
        "gpujobs.E008": (
            not settings.AGING_H > 0
            or not settings.HALF_LIFE_D > 0
            or settings.RESERVATIONS < 1
            or settings.KEEP_DECISIONS_D < 1,
            "GPUJOBS_AGING_H, _HALF_LIFE_D, _RESERVATIONS, _KEEP_DECISIONS_D are above 0.",
        ),
    }
    return _errors(found)


@register()
def nothing_is_open(app_configs: Any, **_: Any) -> Iterable[CheckMessage]:
    found = {
        "gpujobs.E009": (bool(_unreadable()), _unreadable()),
        "gpujobs.E010": (
            "*" in settings.ALLOWED_HOSTS,
            "GPUJOBS_ALLOWED_HOSTS names each host: with * anybody may say which site this is.",
        ),
        "gpujobs.E011": (
            settings.DEBUG and not LOOPBACK.issuperset(settings.ALLOWED_HOSTS),
            "GPUJOBS_DEBUG shows settings to whoever meets an error: on loopback only.",
        ),
        "gpujobs.E012": (
            len(set(settings.SECRET_KEY)) < 15,
            "GPUJOBS_SECRET_KEY is no random text.",
        ),
    }
    return _errors(found)


def _errors(found: dict[str, tuple[bool, str]]) -> list[CheckMessage]:
    return [Error(text, id=id_) for id_, (is_wrong, text) in found.items() if is_wrong]


def _is_a_user(text: str) -> bool:
    uid, _, gid = text.partition(":")
    if not (uid.isdigit() and gid.isdigit()):
        return False
    if settings.RUNNER == "process" or _unreadable():
        return int(uid) > 0 and int(gid) > 0
    return not host_policy(settings.POLICY_FILE).refusal_of_user(int(uid), int(gid))


def _unreadable() -> str:
    """Why nothing can be started here; empty if it can."""
    try:
        host_policy(settings.POLICY_FILE)
    except HostPolicyError as error:
        return str(error)
    return ""
