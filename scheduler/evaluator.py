"""Whether a result is accepted, by its policy's validators in order: pure.

Files and exit codes decide. What the program said in its log does not.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from jobs.routing import (
    ArtifactCheck,
    ExecutionCheck,
    ExitCodeCheck,
    NumberCheck,
    PatternCheck,
    SchemaCheck,
    Validator,
    patterns,
)
from jobs.routing.reading import storable

# Of an artifact that a validator reads; a larger one is rejected by it.
MOST_BYTES = 4 * 1024 * 1024
# Of what a result said, in a sentence of ours.
MOST_TOLD = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """How a validator attempt ended. `exit_code` is None where it was not seen to exit;
    `verdict` its verdict.json, None where it left none."""

    exit_code: int | None
    verdict: bytes | None = None
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of a result."""

    exit_code: int | None
    sizes: Mapping[str, int]  # of all its artifacts, by path
    contents: Mapping[str, bytes]  # of those in `reads` that are not too large
    executions: Mapping[str, Execution] = field(default_factory=dict)  # by validator


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one validator came to. `evidence` is JSON."""

    validator: str
    kind: str
    is_accepted: bool
    text: str
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The outcomes up to the first rejection. `pending` must be run first, and then it
    is asked again."""

    outcomes: tuple[Outcome, ...]
    pending: ExecutionCheck | None = None

    @property
    def rejected(self) -> Outcome | None:
        return next((o for o in self.outcomes if not o.is_accepted), None)

    @property
    def is_accepted(self) -> bool:
        return self.pending is None and self.rejected is None


def reads(validators: Sequence[Validator]) -> frozenset[str]:
    """The paths of artifacts whose content is looked at."""
    kinds = (SchemaCheck, PatternCheck, NumberCheck)
    return frozenset(each.path for each in validators if isinstance(each, kinds))


def evaluate(validators: Sequence[Validator], facts: Facts) -> Verdict:
    """Each validator in its order, up to the first that rejects or must be run."""
    outcomes: list[Outcome] = []
    for validator in validators:
        if _must_run(validator, facts):
            return Verdict(outcomes=tuple(outcomes), pending=validator)
        outcomes.append(_outcome(validator, facts))
        if not outcomes[-1].is_accepted:
            break
    return Verdict(outcomes=tuple(outcomes))


def _must_run(validator: Validator, facts: Facts) -> TypeGuard[ExecutionCheck]:
    if not isinstance(validator, ExecutionCheck):
        return False
    return validator.name not in facts.executions


def _outcome(validator: Validator, facts: Facts) -> Outcome:
    kind, judge = _JUDGES[type(validator)]
    try:
        text, evidence = judge(validator, facts)
        is_accepted = True
    except _Rejected as rejected:
        text, evidence, is_accepted = str(rejected), rejected.evidence, False
    return Outcome(
        validator=validator.name,
        kind=kind,
        is_accepted=is_accepted,
        # What a result held may be in it, and goes into rows.
        text=storable(text),
        evidence=storable(evidence),
    )


class _Rejected(Exception):
    def __init__(self, text: str, **evidence: Any) -> None:
        super().__init__(text)
        self.evidence = evidence


# What a judge says for a result that it accepts; of another it raises _Rejected.
_Said = tuple[str, Mapping[str, Any]]


def _exit_code(check: ExitCodeCheck, facts: Facts) -> _Said:
    evidence = {"exit_code": facts.exit_code}
    if facts.exit_code != 0:
        raise _Rejected(f"its exit code is {facts.exit_code}, not 0.", **evidence)
    return "Its exit code is 0.", evidence


def _artifact(check: ArtifactCheck, facts: Facts) -> _Said:
    size = facts.sizes.get(check.path)
    if size is None:
        raise _Rejected(f"it left no {check.path}.", files=len(facts.sizes))
    most = check.max_bytes
    if size < check.min_bytes:
        text = f"{check.path} has {size:,} bytes, fewer than {check.min_bytes:,}."
        raise _Rejected(text, size=size)
    if most is not None and size > most:
        raise _Rejected(
            f"{check.path} has {size:,} bytes, more than {most:,}.", size=size
        )
    return f"{check.path} has {size:,} bytes.", {"size": size}


def _schema(check: SchemaCheck, facts: Facts) -> _Said:
    if wrong := patterns.mismatch(check.schema, _json(check.path, facts)):
        raise _Rejected(f"{check.path} does not meet its schema: {wrong[:MOST_TOLD]}.")
    return f"{check.path} meets its schema.", {}


def _pattern(check: PatternCheck, facts: Facts) -> _Said:
    match = patterns.found(check.pattern, _text(check.path, facts))
    if match is None and not check.is_absent:
        raise _Rejected(f"the pattern is not found in {check.path}.")
    if match is not None and check.is_absent:
        found = match[:MOST_TOLD]
        raise _Rejected(f"the pattern is found in {check.path}.", found=found)
    return f"{check.path} is as the pattern asks.", {}


def _number(check: NumberCheck, facts: Facts) -> _Said:
    value: Any = _json(check.path, facts)
    for name in check.field.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    if type(value) not in (int, float):
        raise _Rejected(f"{check.field} in {check.path} is no number.")
    if check.at_least is not None and value < check.at_least:
        text = f"{check.field} is {value:g}, below {check.at_least:g}."
        raise _Rejected(text, value=_finite(value))
    if check.at_most is not None and value > check.at_most:
        text = f"{check.field} is {value:g}, above {check.at_most:g}."
        raise _Rejected(text, value=_finite(value))
    return f"{check.field} is {value:g}.", {"value": _finite(value)}


def _finite(value: float) -> float | str:
    """A whole number of any length is JSON, and no database's number."""
    return value if abs(value) < 1e15 else f"{value:g}"


def _execution(check: ExecutionCheck, facts: Facts) -> _Said:
    run = facts.executions[check.name]
    if run.exit_code is None:
        raise _Rejected(f"it did not come to an end of its own. {run.text}".rstrip())
    said = _verdict(run)
    reason = str(said.get("reason", ""))[:MOST_TOLD]
    evidence = {"exit_code": run.exit_code, "reason": reason, "scores": _scores(said)}
    if run.exit_code != 0:
        text = f"it ended with exit code {run.exit_code}. {reason}".rstrip()
        raise _Rejected(text, **evidence)
    if said.get("accepted", True) is not True:
        raise _Rejected(f"it did not accept the result. {reason}".rstrip(), **evidence)
    return f"It accepted the result. {reason}".rstrip(), evidence


def _verdict(run: Execution) -> dict[str, Any]:
    if run.verdict is None:
        return {}
    said = _parsed("verdict.json", run.verdict)
    if not isinstance(said, dict):
        raise _Rejected("its verdict.json is no object.")
    return said


def _scores(said: Mapping[str, Any]) -> dict[str, float]:
    scores = said.get("scores")
    if not isinstance(scores, dict):
        return {}
    found = {str(name)[:100]: value for name, value in scores.items()}
    return {
        name: float(value)
        for name, value in list(found.items())[:100]
        if type(value) in (int, float) and abs(value) < 1e15
    }


_JUDGES: dict[type, tuple[str, Any]] = {
    ExitCodeCheck: ("exit_code", _exit_code),
    ArtifactCheck: ("artifact", _artifact),
    SchemaCheck: ("json_schema", _schema),
    PatternCheck: ("pattern", _pattern),
    NumberCheck: ("number", _number),
    ExecutionCheck: ("container", _execution),
}


# --- Artifacts -----------------------------------------------------------------------


def _content(path: str, facts: Facts) -> bytes:
    if path not in facts.sizes:
        raise _Rejected(f"it left no {path}.")
    if path not in facts.contents:
        raise _Rejected(
            f"{path} has {facts.sizes[path]:,} bytes; a validator reads {MOST_BYTES:,}."
        )
    return facts.contents[path]


def _text(path: str, facts: Facts) -> str:
    try:
        return _content(path, facts).decode()
    except UnicodeDecodeError:
        raise _Rejected(f"{path} is no text: it is not UTF-8.") from None


def _json(path: str, facts: Facts) -> Any:
    return _parsed(path, _content(path, facts))


def _parsed(path: str, content: bytes) -> Any:
    """As RFC 8259 has it, with no name twice: what two readers could read differently
    is not accepted."""
    try:
        return json.loads(
            content.decode(),
            object_pairs_hook=_object,
            parse_constant=_no_constant,
            parse_float=_float,
            parse_int=_int,
        )
    except (ValueError, RecursionError) as error:
        told = str(error)[:MOST_TOLD]
        raise _Rejected(f"{path} is no JSON: {told}.") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is there twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number is too large")
    return value


def _int(text: str) -> int:
    _float(text)
    return int(text)
