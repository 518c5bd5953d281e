"""Places at which a test lets a process die, or stand still: `failpoint("launch.begun")`.

GPUJOBS_FAILPOINTS names a folder. A process that comes to a place of which the folder
holds a file takes the file away and gets the signal that it names: once, whichever
process it is. Without the folder, as in every installation, nothing is looked at.
"""

import os
import signal
from pathlib import Path

_folder = os.environ.get("GPUJOBS_FAILPOINTS")


def failpoint(name: str) -> None:
    """A step of ours is done, and the next is not begun."""
    if _folder is not None:
        _come_to(Path(_folder, name))


def _come_to(armed: Path) -> None:
    taken = armed.with_name(f"{armed.name}.{os.getpid()}")
    try:
        armed.rename(taken)
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.Signals[taken.read_text()])
