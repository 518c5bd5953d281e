from jobs.models.attempt import Artifact, Attempt
from jobs.models.job import Job, JobEvent
from jobs.models.record import AuditRecord, UsageRecord
from jobs.models.user import ApiToken, User

__all__ = [
    "ApiToken",
    "Artifact",
    "Attempt",
    "AuditRecord",
    "Job",
    "JobEvent",
    "UsageRecord",
    "User",
]
