from jobs.models.attempt import Artifact, Attempt
from jobs.models.dependency import JobDependency
from jobs.models.event import JobEvent
from jobs.models.job import Job
from jobs.models.quota import Quota
from jobs.models.record import AuditRecord, AuditSeal, UnsealedRecord, UsageRecord
from jobs.models.routing import (
    Evaluation,
    ModelTier,
    RoutingDecision,
    RoutingPolicy,
    SuiteRun,
)
from jobs.models.secret import Secret
from jobs.models.sitepolicy import SitePolicy
from jobs.models.token import ApiToken, Scope
from jobs.models.user import User

__all__ = [
    "ApiToken",
    "Artifact",
    "Attempt",
    "AuditRecord",
    "AuditSeal",
    "Evaluation",
    "Job",
    "JobDependency",
    "JobEvent",
    "ModelTier",
    "Quota",
    "RoutingDecision",
    "RoutingPolicy",
    "Scope",
    "Secret",
    "SitePolicy",
    "SuiteRun",
    "UnsealedRecord",
    "UsageRecord",
    "User",
]
