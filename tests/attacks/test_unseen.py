"""A job never starts with an empty folder for its data."""

from pathlib import Path

import pytest

from tests.e2e.stack import Stack, until
from tests.rig.daemon import PrivateDaemon
from tests.rig.fixtures import IMAGE
from tests.rig.machine import StandInMachine

pytestmark = pytest.mark.docker


class Apart(Stack):
    """Its processes mount what nobody else sees, as a unit with PrivateMounts does."""

    prefix = ("unshare", "-m", "--propagation", "private")


def test_where_docker_does_not_see_what_we_mount_nothing_with_a_volume_starts(
    tmp_path: Path, daemon: PrivateDaemon, machine: StandInMachine
) -> None:
    folder = tmp_path / "volume"
    folder.mkdir()
    stack = Apart(tmp_path / "stack", daemon.product_env(folder))
    try:
        stack.start()
        ada = stack.person("ada@example.org")
        spec = {"image": IMAGE, "command": "ls /data", "gpu_count": 0}
        job_id = ada.submit(**spec, volumes=[f"{folder}:/data"])

        def told() -> bool:
            texts = [str(event["payload"].get("text")) for event in ada.events(job_id)]
            return any("Docker does not see what" in text for text in texts)

        until(told, "the node's trouble to be told")
        # It is nobody's fault but the node's: the job waits, and none ran.
        assert ada.job(job_id)["status"] in ("queued", "starting")
        assert ada.log(job_id) == b""
    finally:
        stack.destroy()
