"""What in a policy must go together: sizes in order, risk with a check, names with a meaning."""

from itertools import pairwise

from jobs.routing.reading import RoutingError
from jobs.routing.rendering import placeholders
from jobs.routing.terms import ExecutionCheck, Policy, Risk, Tier, Work

# What a command may name; a params' value never becomes part of one.
OF_A_COMMAND = frozenset(
    {"params", "prompt", "verdicts", "artifacts", "tier"}
    | {"model_version", "prompt_version"}
)
OF_A_VALIDATOR = OF_A_COMMAND | {"result"}


def check(policy: Policy) -> None:
    """Raises RoutingError."""
    for place, tier in _placed(policy):
        _check_tier(place, tier)
    for smaller, larger in pairwise(policy.tiers):
        _check_order(policy, smaller, larger)
    for check in policy.execution_checks:
        _check_command(f"validators.{check.name}", check.command, OF_A_VALIDATOR)
    _check_risk(policy)
    if bool(policy.escalate_on) != bool(policy.max_escalations):
        text = "escalate_on and max_escalations go together: give both, or neither."
        raise RoutingError("max_escalations", text)


def _placed(policy: Policy) -> list[tuple[str, Tier]]:
    return [(f"tiers[{i}]", tier) for i, tier in enumerate(policy.tiers)]


def _check_tier(place: str, tier: Tier) -> None:
    if tier.gpu_count == 0 and (tier.min_vram_mb or tier.share or tier.gpu_names):
        raise RoutingError(
            place, "a tier without GPUs has no VRAM, share or gpu_names."
        )
    if tier.share and tier.min_vram_mb is None:
        raise RoutingError(place, "to share a GPU, give min_vram_mb.")
    if tier.shm_mb and tier.memory_mb and tier.shm_mb > tier.memory_mb:
        raise RoutingError(place, "shm_mb counts in memory_mb: give at most that.")
    placeholders(tier.prompt, place=f"{place}.prompt")
    _check_command(f"{place}.command", tier.command, OF_A_COMMAND)


def _check_command(
    place: str, command: str | tuple[str, ...] | None, known: frozenset[str]
) -> None:
    for item in (command,) if isinstance(command, str) else command or ():
        for name in sorted(placeholders(item, place=place) - known):
            told = ", ".join(sorted(known))
            text = f"{{{{ {name} }}}} stands for nothing here. There are: {told}."
            raise RoutingError(place, text)


def _check_order(policy: Policy, smaller: Tier, larger: Tier) -> None:
    place = f"tiers.{larger.name}"
    if _size(larger) < _size(smaller):
        text = f"it is smaller than {smaller.name}: write the smallest tier first."
        raise RoutingError(place, text)
    if _most(larger) < _most(smaller):
        text = f"its max_complexity is below that of {smaller.name}, which is smaller."
        raise RoutingError(place, text)
    if larger.max_risk.rank < smaller.max_risk.rank:
        text = f"its max_risk is below that of {smaller.name}, which is smaller."
        raise RoutingError(place, text)


def _size(tier: Tier) -> tuple[int, int]:
    return tier.gpu_count * (tier.min_vram_mb or 0), tier.gpu_count


def _most(tier: Tier) -> float:
    return float("inf") if tier.max_complexity is None else tier.max_complexity


def _check_risk(policy: Policy) -> None:
    """What a program that was written is worth, only running it shows; and what may do
    much harm is not believed for its looks."""
    checks = any(isinstance(each, ExecutionCheck) for each in policy.validators)
    takes_high = policy.tiers[-1].max_risk is Risk.HIGH
    if not checks and (policy.work is Work.CODE or takes_high):
        why = "work: code" if policy.work is Work.CODE else "risk high"
        raise RoutingError(
            "validators",
            f"{why} needs a validator of the kind container, which runs the result; or "
            "give the tiers a max_risk below high.",
        )
