from pathlib import Path
from typing import Any

import pytest
from django.core.checks import run_checks

CASES = [
    ("an unknown runner", {"RUNNER": "podman"}, "E001"),
    ("an unknown inventory", {"INVENTORY": "guess"}, "E002"),
    ("an unknown registration", {"REGISTRATION": "perhaps"}, "E003"),
    ("jobs as root", {"JOB_USER": "0:0"}, "E004"),
    ("jobs in root's group", {"JOB_USER": "1000:0"}, "E004"),
    ("a user by name", {"JOB_USER": "nobody"}, "E004"),
    (
        "open registration with no isolation, for the whole network",
        {"RUNNER": "process", "REGISTRATION": "open", "ALLOWED_HOSTS": ["gpu.lab"]},
        "E005",
    ),
    ("no room for logs", {"LOG_CAP_MB": 0}, "E006"),
    ("a policy file that is no file", {"POLICY_FILE": Path("/")}, "E009"),
    ("any host", {"ALLOWED_HOSTS": ["gpu.lab", "*"]}, "E010"),
    (
        "Django's debug pages for the network",
        {"DEBUG": True, "ALLOWED_HOSTS": ["gpu.lab"]},
        "E011",
    ),
    ("a key that somebody typed", {"SECRET_KEY": "secret" * 10}, "E012"),
    ("a negative headroom", {"HEADROOM_MB": -1}, "E007"),
]


@pytest.mark.parametrize(
    ("changes", "id_"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_it_is_an_error(changes: dict[str, Any], id_: str, settings: Any) -> None:
    for name, value in changes.items():
        setattr(settings, name, value)
    assert f"gpujobs.{id_}" in {message.id for message in run_checks()}


def test_open_registration_on_loopback_is_allowed(settings: Any) -> None:
    settings.RUNNER, settings.REGISTRATION = "process", "open"
    settings.ALLOWED_HOSTS = ["localhost", "127.0.0.1"]
    assert run_checks() == []


@pytest.mark.parametrize(("allow_root", "found"), [(True, False), (False, True)])
def test_root_is_for_the_hosts_policy_to_allow(
    settings: Any, declare: Any, allow_root: bool, found: bool
) -> None:
    settings.RUNNER, settings.JOB_USER = "docker", "0:0"
    declare(allow_root=allow_root)
    assert ("gpujobs.E004" in {m.id for m in run_checks()}) is found
