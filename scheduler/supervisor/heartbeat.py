"""What a supervisor says of its node, every turn."""

import os
from collections.abc import Iterable

from django.utils import timezone

from scheduler.models import OUT_OF_SERVICE, Node, NodeState
from scheduler.runner.base import boot_id


class Heartbeat:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._said: NodeState | None = None

    def is_given_up(self) -> bool:
        """Whether others took the node to be lost since we last said that it is not."""
        ours = Node.objects.filter(pk=self._node.pk, state=NodeState.DOWN)
        return self._said is not None and ours.exists()

    def beat(self, state: NodeState, reports: Iterable[str] = ()) -> bool:
        """Say that we are there; True if the node became ready or ceased to be."""
        ours = Node.objects.filter(pk=self._node.pk)
        # An operator's states are not ours to end.
        ours.exclude(state__in=OUT_OF_SERVICE).update(state=state)
        ours.update(
            heartbeat_at=timezone.now(),
            boot_id=boot_id(),
            cpus=os.cpu_count() or 1,
            memory_mb=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20,
            reports=[text for text in reports if text],
        )
        changed, self._said = self._said != state, state
        return changed
