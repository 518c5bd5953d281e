"""The operators' view of the rows. History is looked at here, and changed nowhere."""

from jobs.admin import groups, history, policies, quota, sitepolicy, users
from jobs.admin.base import HistoryAdmin, HistoryInline

__all__ = [
    "HistoryAdmin",
    "HistoryInline",
    "groups",
    "history",
    "policies",
    "quota",
    "sitepolicy",
    "users",
]
