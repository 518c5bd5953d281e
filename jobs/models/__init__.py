from jobs.models.attempt import Artifact, Attempt
from jobs.models.dependency import JobDependency
from jobs.models.job import Job, JobEvent
from jobs.models.quota import Quota
from jobs.models.record import AuditRecord, AuditSeal, UnsealedRecord, UsageRecord
from jobs.models.user import ApiToken, User

__all__ = [
    "ApiToken",
    "Artifact",
    "Attempt",
    "AuditRecord",
    "AuditSeal",
    "Job",
    "JobDependency",
    "JobEvent",
    "Quota",
    "UnsealedRecord",
    "UsageRecord",
    "User",
]
