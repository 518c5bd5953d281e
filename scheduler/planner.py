"""Which tier a task goes to, and why no other: pure, and the same for the same inputs."""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from jobs.routing import Comparison, Measure, Policy, Risk, Rule, Tier, patterns

# A whole number of JSON has any length.
MOST_SHOWN = 10**15


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """What one rule found: `weight` is 0 where it does not hold."""

    rule: str
    weight: float
    found: Any
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    complexity: float
    contributions: tuple[Contribution, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A tier on a type of GPU ('' is any). `why_not` is empty where it would do."""

    tier: str
    gpu_name: str = ""
    why_not: str = ""
    # too_small, too_risky, never_fits, over_quota, tried, busy; empty where it would do
    obstacle: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """`tier` is empty where none will do. `fallback` says what kept the one that comes
    first by its size, where it was not taken for want of a GPU."""

    tier: str
    gpu_name: str
    risk: Risk
    score: Score
    candidates: tuple[Candidate, ...]
    fallback: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What the cluster and the limits say of (tier, gpu_name), as sentences; what is
    in none of them fits. `busy` are those that would have to wait now."""

    never: Mapping[tuple[str, str], str]
    over_quota: Mapping[tuple[str, str], str]
    busy: Collection[tuple[str, str]] = ()


def score(rules: Collection[Rule], params: Any) -> Score:
    """Each rule's part, and their sum. Visible features only: what stands in `params`."""
    contributions = tuple(_contribution(rule, params) for rule in rules)
    return Score(
        complexity=sum(each.weight for each in contributions),
        contributions=contributions,
    )


def _contribution(rule: Rule, params: Any) -> Contribution:
    found = measured(rule, params)
    holds = found is not None and _holds(rule, found)
    return Contribution(
        rule=rule.name,
        weight=rule.weight if holds else 0.0,
        found=_shown(found),
        text=_compared(rule, found, holds=holds),
    )


_WORDS = {
    Comparison.AT_LEAST: "at least",
    Comparison.AT_MOST: "at most",
    Comparison.EQUALS: "equal to",
    Comparison.ONE_OF: "one of",
    Comparison.MATCHES: "a match of",
}


def _compared(rule: Rule, found: Any, *, holds: bool) -> str:
    of = rule.of or "all params"
    what = of if rule.measure is Measure.VALUE else f"{rule.measure} of {of}"
    if found is None:
        return f"{what}: there is none."
    value = json.dumps(
        list(rule.value) if rule.comparison is Comparison.ONE_OF else rule.value
    )
    word = _WORDS[rule.comparison]
    return f"{what}: {_shown(found)}, {'' if holds else 'not '}{word} {value}."


def plan(
    policy: Policy,
    params: Any,
    risk: Risk,
    ground: Ground,
    *,
    tried: Collection[str] = (),
) -> Decision:
    """`tried` are the tiers that came to no accepted result: only larger ones follow.

    After one of them a larger tier is eligible whatever complexity it is for.
    """
    task = _Task(policy, score(policy.rules, params), risk, ground, tuple(tried))
    candidates = _settled([_candidate(task, *each) for each in _types(policy)])
    chosen = next((each for each in candidates if not each.obstacle), None)
    if chosen is None:
        text = f"No tier of {policy.name} will do: {_told(candidates)}"
        return _decision(task, candidates, text=text)
    return _decision(
        task,
        candidates,
        tier=chosen.tier,
        gpu_name=chosen.gpu_name,
        fallback=_fallback(candidates, chosen),
        text=_why(task, chosen),
    )


class _Task(NamedTuple):
    policy: Policy
    scored: Score
    risk: Risk
    ground: Ground
    tried: tuple[str, ...]


def _decision(
    task: _Task,
    candidates: tuple[Candidate, ...],
    *,
    text: str,
    tier: str = "",
    gpu_name: str = "",
    fallback: str = "",
) -> Decision:
    return Decision(
        tier=tier,
        gpu_name=gpu_name,
        risk=task.risk,
        score=task.scored,
        candidates=candidates,
        fallback=fallback,
        text=text,
    )


def _types(policy: Policy) -> Iterator[tuple[Tier, str]]:
    for tier in policy.tiers:
        for gpu_name in tier.gpu_names or ("",):
            yield tier, gpu_name


def _settled(candidates: list[Candidate]) -> tuple[Candidate, ...]:
    """Where all that would do are busy none is better for it: the smallest is waited
    for."""
    busy = [i for i, each in enumerate(candidates) if each.obstacle == "busy"]
    if busy and all(each.obstacle for each in candidates):
        smallest = candidates[busy[0]]
        candidates[busy[0]] = replace(smallest, obstacle="", why_not="")
    return tuple(candidates)


def _candidate(task: _Task, tier: Tier, gpu_name: str) -> Candidate:
    obstacle, why_not = _too_little(task, tier) or _no_room(task, tier, gpu_name)
    return Candidate(
        tier=tier.name, gpu_name=gpu_name, obstacle=obstacle, why_not=why_not
    )


def _too_little(task: _Task, tier: Tier) -> tuple[str, str] | None:
    """What the tier itself is not for."""
    names = [each.name for each in task.policy.tiers]
    last = max((names.index(name) for name in task.tried if name in names), default=-1)
    if names.index(tier.name) <= last:
        was = "it was tried" if tier.name in task.tried else "a larger one was tried"
        return "tried", f"{was}, and came to no accepted result"
    if tier.max_risk.rank < task.risk.rank:
        return "too_risky", f"the risk is {task.risk}, and it may take {tier.max_risk}"
    most, complexity = tier.max_complexity, task.scored.complexity
    if not task.tried and most is not None and complexity > most:
        return "too_small", f"complexity {complexity:g} is above its {most:g}"
    return None


def _no_room(task: _Task, tier: Tier, gpu_name: str) -> tuple[str, str]:
    key, ground = (tier.name, gpu_name), task.ground
    if key in ground.never:
        return "never_fits", ground.never[key]
    if key in ground.over_quota:
        return "over_quota", ground.over_quota[key]
    if key in ground.busy:
        return "busy", "it would have to wait, and the policy takes what starts soonest"
    return "", ""


def _fallback(candidates: Collection[Candidate], chosen: Candidate) -> str:
    passed = []
    for each in candidates:
        if (each.tier, each.gpu_name) == (chosen.tier, chosen.gpu_name):
            break
        if each.obstacle in ("never_fits", "busy"):
            passed.append(each)
    return _told(passed) if passed else ""


def _told(candidates: Collection[Candidate]) -> str:
    return "; ".join(
        f"{_name(each)}: {each.why_not.rstrip('.')}" for each in candidates
    ) + ("." if candidates else "")


def _name(candidate: Candidate) -> str:
    on = f" on {candidate.gpu_name}" if candidate.gpu_name else ""
    return f"{candidate.tier}{on}"


def _why(task: _Task, chosen: Candidate) -> str:
    if task.tried:
        after = ", ".join(task.tried)
        return f"{_name(chosen)} is the next that will do after {after}."
    tier = task.policy.tier(chosen.tier)
    most = "any" if tier.max_complexity is None else f"{tier.max_complexity:g}"
    return (
        f"{_name(chosen)} is the smallest that will do: complexity "
        f"{task.scored.complexity:g} of at most {most}, risk {task.risk} of at most "
        f"{tier.max_risk}."
    )


# --- Measuring -----------------------------------------------------------------------


def measured(rule: Rule, params: Any) -> Any:
    """What the rule looks at; None where there is nothing of that kind."""
    value = _at(params, rule.of)
    match rule.measure:
        case Measure.VALUE:
            return value
        case Measure.BYTES:
            return None if value is None else len(json.dumps(value).encode())
        case Measure.LENGTH:
            return len(value) if isinstance(value, (str, list, dict)) else None
        case Measure.WORDS:
            return len(value.split()) if isinstance(value, str) else None


def _at(value: Any, path: str) -> Any:
    for name in path.split(".") if path else ():
        if isinstance(value, dict) and name in value:
            value = value[name]
        else:
            return None
    return value


def _holds(rule: Rule, found: Any) -> bool:
    is_number = type(found) in (int, float)
    match rule.comparison:
        case Comparison.AT_LEAST:
            return bool(is_number and found >= rule.value)
        case Comparison.AT_MOST:
            return bool(is_number and found <= rule.value)
        case Comparison.EQUALS:
            return _same(found, rule.value)
        case Comparison.ONE_OF:
            return any(_same(found, each) for each in rule.value)
        case Comparison.MATCHES:
            return (
                isinstance(found, str) and patterns.found(rule.value, found) is not None
            )


def _same(one: Any, other: Any) -> bool:
    """True is not 1."""
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _shown(found: Any) -> Any:
    """Of a text or a list its size: what it says is the job's, and no decision's."""
    if found is None or isinstance(found, bool):
        return found
    if isinstance(found, (int, float)):
        return found if abs(found) < MOST_SHOWN else f"over {MOST_SHOWN:,}"
    return f"{len(found):,} long"
