"""Jobs that run until the test opens their gate, so that nothing waits for a clock."""

from pathlib import Path
from typing import Any

from tests.rig.fixtures import IMAGE

MOUNT = "/data/gates"


class Gates:
    """A folder that jobs mount; a gate is open once there is a file of its name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._names = 0
        # The user of a job passes through all of them.
        for path in (folder, *folder.parents[:2]):
            path.chmod(0o755)

    def asks(self, **fields: Any) -> dict[str, Any]:
        """A job whose own gate is shut. `then` is run once it is open."""
        self._names += 1
        then = fields.pop("then", "true")
        wait = f"until [ -e {MOUNT}/{self._names} ]; do sleep 0.05; done; {then}"
        spec = {"image": IMAGE, "command": wait, "name": f"gate-{self._names}"}
        volumes = [f"{self.folder}:{MOUNT}"]
        return {**spec, "volumes": volumes, "grace_s": 1, "timeout_s": 600, **fields}

    def open(self, job: dict[str, Any]) -> None:
        (self.folder / job["name"].removeprefix("gate-")).touch()
