"""System checks: a setting that would be unsafe or without effect is an error."""

from collections.abc import Iterable
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, register

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
            "GPUJOBS_JOB_USER is a uid:gid, neither of them 0.",
        ),
        "gpujobs.E005": (
            settings.RUNNER == "process"
            and settings.REGISTRATION == "open"
            and not LOOPBACK.issuperset(settings.ALLOWED_HOSTS),
            "With no isolation no stranger may register: close GPUJOBS_REGISTRATION.",
        ),
        "gpujobs.E006": (
            settings.LOG_CAP_MB < 1 or settings.ARTIFACT_CAP_MB < 1,
            "GPUJOBS_LOG_CAP_MB and GPUJOBS_ARTIFACT_CAP_MB are at least 1.",
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
    return [Error(text, id=id_) for id_, (is_wrong, text) in found.items() if is_wrong]


def _is_a_user(text: str) -> bool:
    uid, _, gid = text.partition(":")
    return uid.isdigit() and gid.isdigit() and int(uid) > 0 and int(gid) > 0
