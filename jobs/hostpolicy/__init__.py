"""What a host lets any container have: the ceiling, as its root-owned file tells it.

The web process asks it to be kind, the node asks it again before each start. Where there
is no file strict values hold; the site's row can only narrow them.
"""

from jobs.hostpolicy.file import VOLUME_NAME, HostPolicyError, host_policy, parse, said
from jobs.hostpolicy.policy import (
    CAPABILITIES,
    LIMITS,
    Declared,
    HostPolicy,
    narrowed,
    repository,
)

__all__ = [
    "CAPABILITIES",
    "LIMITS",
    "VOLUME_NAME",
    "Declared",
    "HostPolicy",
    "HostPolicyError",
    "host_policy",
    "narrowed",
    "parse",
    "repository",
    "said",
]
