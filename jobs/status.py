"""The closed lists: statuses, phases, reasons, and the moves between them."""

import enum


class Status(enum.StrEnum):
    QUEUED = "queued"
    STARTING = "starting"  # GPUs held, container being created
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


TERMINAL = (Status.SUCCEEDED, Status.FAILED, Status.CANCELLED)
LIVE = (Status.STARTING, Status.RUNNING)

TRANSITIONS: dict[Status, tuple[Status, ...]] = {
    Status.QUEUED: (Status.STARTING, Status.FAILED, Status.CANCELLED),
    Status.STARTING: (
        Status.RUNNING,
        Status.QUEUED,
        Status.FAILED,
        Status.CANCELLED,
    ),
    Status.RUNNING: (
        Status.QUEUED,
        Status.SUCCEEDED,
        Status.FAILED,
        Status.CANCELLED,
    ),
    Status.SUCCEEDED: (),
    Status.FAILED: (),
    Status.CANCELLED: (),
}
SOURCES: dict[Status, tuple[Status, ...]] = {
    to: tuple(source for source, targets in TRANSITIONS.items() if to in targets)
    for to in Status
}


class Visibility(enum.StrEnum):
    """Who may look at a job, beside operators."""

    OWNER = "owner"
    GROUP = "group"


class Phase(enum.StrEnum):
    """Where a live attempt is; an attempt that ended has none."""

    STARTING = "starting"
    RUNNING = "running"
    COLLECTING = "collecting"
    JUDGING = "judging"


# Its container is there or on its way: it counts in limits, and takes of its node.
WITH_CONTAINER = (Phase.STARTING, Phase.RUNNING)


class Kind(enum.StrEnum):
    JOB = "job"
    VALIDATOR = "validator"


class Cause(enum.StrEnum):
    """What a routing decision was made for."""

    SUBMITTED = "submitted"
    FALLBACK = "fallback"  # the hardware it was waiting for is gone
    REJECTED = "rejected"
    CUDA_OOM = "cuda_oom"
    MEMORY_OOM = "memory_oom"
    TIMED_OUT = "timed_out"


class OnOom(enum.StrEnum):
    """What a job without a policy does when memory was not enough."""

    FAIL = "fail"
    ESCALATE = "escalate"  # again with more, rung by rung


# In place of a reason while a person must look at the result.
IN_REVIEW = "in_review"


class Fault(enum.StrEnum):
    """Whose doing an ending is. Infra endings requeue and are not charged."""

    NOBODY = "nobody"
    USER = "user"
    INFRA = "infra"
    POLICY = "policy"
    UNKNOWN = "unknown"


class Reason(enum.StrEnum):
    """Why an attempt or a job ended; the reason gives the status."""

    COMPLETED = "completed"
    NONZERO_EXIT = "nonzero_exit"
    CUDA_OOM = "cuda_oom"
    MEMORY_OOM = "memory_oom"
    IMAGE_NOT_FOUND = "image_not_found"
    IMAGE_AUTH = "image_auth"
    COMMAND_NOT_FOUND = "command_not_found"
    NOT_EXECUTABLE = "not_executable"
    BAD_VOLUME = "bad_volume"
    VALIDATOR_REJECTED = "validator_rejected"
    DEPENDENCY_FAILED = "dependency_failed"
    NODE_LOST = "node_lost"
    CONTAINER_GONE = "container_gone"
    INTERRUPTED = "interrupted"
    DAEMON_FAULT = "daemon_fault"
    LAUNCH_FAULT = "launch_fault"
    GPU_LOST = "gpu_lost"
    DISK_FULL = "disk_full"
    REGISTRY_UNREACHABLE = "registry_unreachable"
    KILLED_EXTERNALLY = "killed_externally"
    TIMED_OUT = "timed_out"
    CANCELLED_BY_USER = "cancelled_by_user"
    CANCELLED_BY_OPERATOR = "cancelled_by_operator"
    POLICY_DENIED = "policy_denied"
    SCRATCH_FULL = "scratch_full"
    ARTIFACT_CAP = "artifact_cap"
    VRAM_EXCEEDED = "vram_exceeded"
    TIERS_EXHAUSTED = "tiers_exhausted"
    REVIEW_REJECTED = "review_rejected"
    REVIEW_EXPIRED = "review_expired"
    NEVER_FITS = "never_fits"
    UNKNOWN = "unknown"

    @property
    def fault(self) -> Fault:
        return _FAULTS[self]

    @property
    def status(self) -> Status:
        return {
            Reason.COMPLETED: Status.SUCCEEDED,
            Reason.CANCELLED_BY_USER: Status.CANCELLED,
            Reason.CANCELLED_BY_OPERATOR: Status.CANCELLED,
        }.get(self, Status.FAILED)


_BY_FAULT: dict[Fault, tuple[Reason, ...]] = {
    Fault.NOBODY: (Reason.COMPLETED,),
    Fault.USER: (
        Reason.NONZERO_EXIT,
        Reason.CUDA_OOM,
        Reason.MEMORY_OOM,
        Reason.IMAGE_NOT_FOUND,
        Reason.IMAGE_AUTH,
        Reason.COMMAND_NOT_FOUND,
        Reason.NOT_EXECUTABLE,
        Reason.BAD_VOLUME,
        Reason.VALIDATOR_REJECTED,
        Reason.DEPENDENCY_FAILED,
    ),
    Fault.INFRA: (
        Reason.NODE_LOST,
        Reason.CONTAINER_GONE,
        Reason.INTERRUPTED,
        Reason.DAEMON_FAULT,
        Reason.LAUNCH_FAULT,
        Reason.GPU_LOST,
        Reason.DISK_FULL,
        Reason.REGISTRY_UNREACHABLE,
        Reason.KILLED_EXTERNALLY,
    ),
    Fault.POLICY: (
        Reason.TIMED_OUT,
        Reason.CANCELLED_BY_USER,
        Reason.CANCELLED_BY_OPERATOR,
        Reason.POLICY_DENIED,
        Reason.SCRATCH_FULL,
        Reason.ARTIFACT_CAP,
        Reason.VRAM_EXCEEDED,
        Reason.TIERS_EXHAUSTED,
        Reason.REVIEW_REJECTED,
        Reason.REVIEW_EXPIRED,
        Reason.NEVER_FITS,
    ),
    Fault.UNKNOWN: (Reason.UNKNOWN,),
}
_FAULTS = {reason: fault for fault, group in _BY_FAULT.items() for reason in group}

# A node's own trouble, of which no job can be the cause: it burns no attempt.
NODE_FAULTS = (Reason.DISK_FULL, Reason.DAEMON_FAULT)

# The endings that are ordered before they happen: a stop wish carries one of them.
STOP_REASONS = (
    Reason.CANCELLED_BY_USER,
    Reason.CANCELLED_BY_OPERATOR,
    Reason.TIMED_OUT,
    Reason.POLICY_DENIED,
    Reason.SCRATCH_FULL,
    Reason.ARTIFACT_CAP,
)


class WaitReason(enum.StrEnum):
    """Why a queued job is not placed."""

    RESOURCES = "resources"
    PRIORITY = "priority"
    QUOTA = "quota"
    DEPENDENCY = "dependency"
    BEGIN_TIME = "begin_time"
    HELD = "held"
    DRAINING = "draining"
    FOREIGN_USE = "foreign_use"
    IMAGE_PULL = "image_pull"
    NODE_DOWN = "node_down"
    SCHEDULER_DOWN = "scheduler_down"
    NEVER_FITS = "never_fits"


# What keeps the first of several that ask for the same keeps those behind it too.
FOR_ALL_BEHIND = (
    WaitReason.QUOTA,
    WaitReason.DRAINING,
    WaitReason.NODE_DOWN,
    WaitReason.IMAGE_PULL,
    WaitReason.NEVER_FITS,
)


class Condition(enum.StrEnum):
    """When a job that depends on another may start."""

    AFTER_OK = "after_ok"  # the other succeeded; else this one ends
    AFTER_ANY = "after_any"  # the other ended, however


# What a dependency shows of a job that was deleted before its ending was noted.
DELETED = "deleted"
# After any of these, a job that was to start only after success does not.
BAD_OUTCOMES = (Status.FAILED, Status.CANCELLED, DELETED)
