"""Routing policies: name the work, and the smallest model that can do it is found."""

from jobs.routing.document import document_of, parse, parse_yaml, to_yaml
from jobs.routing.reading import RoutingError
from jobs.routing.rendering import check_params, render
from jobs.routing.terms import (
    ArtifactCheck,
    Comparison,
    ExecutionCheck,
    ExitCodeCheck,
    Measure,
    NumberCheck,
    PatternCheck,
    Policy,
    Prefer,
    Review,
    Risk,
    Rule,
    SchemaCheck,
    Tier,
    Trouble,
    Validator,
    Work,
)

__all__ = [
    "ArtifactCheck",
    "Comparison",
    "ExecutionCheck",
    "ExitCodeCheck",
    "Measure",
    "NumberCheck",
    "PatternCheck",
    "Policy",
    "Prefer",
    "Review",
    "Risk",
    "RoutingError",
    "Rule",
    "SchemaCheck",
    "Tier",
    "Trouble",
    "Validator",
    "Work",
    "check_params",
    "document_of",
    "parse",
    "parse_yaml",
    "render",
    "to_yaml",
]
