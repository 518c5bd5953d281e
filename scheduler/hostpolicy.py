"""What this host lets a container have, whatever a row says: the node's own ring."""

import os
from collections.abc import Iterable
from pathlib import Path


def refusal_of_mount(source: str, roots: Iterable[Path]) -> str:
    """Empty if `source`, its links followed, lies under an allowed root."""
    allowed = list(roots)
    real = Path(os.path.realpath(source))
    if not allowed:
        return "This node allows no volumes (GPUJOBS_VOLUME_ROOTS is empty)."
    if any(real.is_relative_to(os.path.realpath(root)) for root in allowed):
        return ""
    names = ", ".join(str(root) for root in allowed)
    return f"{source} does not lie under an allowed root. Allowed: {names}."
