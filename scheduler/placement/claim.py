"""How much of a node's CPUs and memory a request takes: as asked, else its fair part.

The fair part goes by VRAM: who holds a quarter of a node's VRAM may have a quarter of
its CPUs and memory, so that no GPU is left without; but for a tenth, one CPU at least,
that is left to jobs that need no GPU. What was not asked for bends: half of the fair
part is enough to start.
"""

from typing import NamedTuple

from scheduler.placement.terms import Node, Request

# A part so small that a program could not start in it is no fair part.
LEAST_MILLICPUS = 50
LEAST_MB = 64


class Claim(NamedTuple):
    millicpus: int
    memory_mb: int
    least_millicpus: int
    least_memory_mb: int

    def given(self, millicpus: int, memory_mb: int) -> tuple[int, int]:
        """What it is given where so much is free."""
        return (
            max(self.least_millicpus, min(self.millicpus, millicpus)),
            max(self.least_memory_mb, min(self.memory_mb, memory_mb)),
        )


def claim(node: Node, usable_mb: int, request: Request, vram_mb: int) -> Claim:
    """Of a request that holds `vram_mb` of the node's `usable_mb` of VRAM."""
    millicpus = least = round((request.cpus or 0) * 1000)
    if request.cpus is None:
        millicpus = _fair_cpus(node, usable_mb, request, vram_mb)
        least = max(LEAST_MILLICPUS, millicpus // 2)
        least = least if request.gpu_count else millicpus
    memory_mb = least_memory = request.memory_mb or 0
    if request.memory_mb is None:
        fair_mb = _fair_memory(node, usable_mb, request, vram_mb, millicpus)
        # What lies in shared memory counts in memory.
        memory_mb = max(fair_mb, request.shm_mb or 0)
        least_memory = max(fair_mb // 2, min(fair_mb, LEAST_MB), request.shm_mb or 0)
    return Claim(millicpus, memory_mb, least, least_memory)


def _fair_cpus(node: Node, usable_mb: int, request: Request, vram_mb: int) -> int:
    if not request.gpu_count:
        return _kept(node) if node.cpus == 1 else 1000
    fair = (node.cpus * 1000 - _kept(node)) * vram_mb // max(1, usable_mb)
    return max(LEAST_MILLICPUS, fair)


def _kept(node: Node) -> int:
    """Thousandths of CPUs that are no GPU's part; of memory as large a part is none."""
    return max(1000, node.cpus * 100) if node.cpus > 1 else 500


def _fair_memory(
    node: Node, usable_mb: int, request: Request, vram_mb: int, millicpus: int
) -> int:
    if not node.memory_mb:
        return 0
    whole = max(1, node.cpus) * 1000
    part_mb = node.memory_mb * millicpus // whole
    if request.gpu_count:
        part_mb = node.memory_mb * (whole - _kept(node)) // whole
        part_mb = part_mb * vram_mb // max(1, usable_mb)
    return max(LEAST_MB, part_mb)
