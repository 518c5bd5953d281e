"""For how long nodes were not heard of, in seconds that somebody watched. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

# Longer between two looks than this was not watched: the machine slept, or we did.
WATCHED_S = 15.0


@dataclass
class NodeWatch:
    """`heartbeats` are what each node's row says, of whatever clock: only that they
    change counts, so that no clock that jumps and no pause of ours loses a node."""

    after_s: float
    _last: dict[str, object] = field(default_factory=dict)
    _silent_s: dict[str, float] = field(default_factory=dict)

    def looked(self, heartbeats: Mapping[str, object], elapsed_s: float) -> list[str]:
        """The nodes that are lost by now."""
        for name, heartbeat in heartbeats.items():
            is_new = name not in self._last or self._last[name] != heartbeat
            silent_s = self._silent_s.get(name, 0.0) + min(elapsed_s, WATCHED_S)
            self._silent_s[name] = 0.0 if is_new else silent_s
        self._last = dict(heartbeats)
        return [name for name in heartbeats if self._silent_s[name] >= self.after_s]
