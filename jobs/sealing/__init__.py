"""The audit trail proves itself: each record has a seal, the seals are a chain, and what
the chain ends with is told to a file outside the database."""

from jobs.sealing.checking import Check
from jobs.sealing.flaws import Flaw
from jobs.sealing.renewal import renew
from jobs.sealing.retention import NotPrunable, prune
from jobs.sealing.rows import exported
from jobs.sealing.sealer import seal

__all__ = ["Check", "Flaw", "NotPrunable", "exported", "prune", "renew", "seal"]
