"""A node or a GPU that was taken out of service for a time comes back at its end."""

from typing import Any

from django.db import transaction
from django.utils import timezone

from jobs import audit
from scheduler.execution import BY
from scheduler.models import GPU, OUT_OF_SERVICE, GpuState, Node, NodeState

BACK = {"state_reason": "", "state_by": "", "state_until": None}


def bring_back(node: Node) -> bool:
    """True if something came back, which a waiting job may want."""
    nodes = Node.objects.filter(pk=node.pk)
    # Up again by the next heartbeat, if it can run things.
    changed = _bring_back(nodes, NodeState.JOINING, "node.changed", "name")
    gpus = GPU.objects.filter(node=node)
    return _bring_back(gpus, GpuState.ENABLED, "gpu.changed", "uuid") or changed


def _bring_back(rows: Any, state: str, action: str, name: str) -> bool:
    over = rows.filter(state__in=OUT_OF_SERVICE, state_until__lte=timezone.now())
    changed = False
    for pk, target, *was in over.values_list("pk", name, "state", *BACK):
        with transaction.atomic():
            # Unless an operator has just given it another time.
            if over.filter(pk=pk).update(state=state, **BACK):
                audit.change(
                    action,
                    target=target,
                    by=BY,
                    before=dict(zip(("state", *BACK), was, strict=True)),
                    after={"state": state, **BACK},
                )
                changed = True
    return changed
