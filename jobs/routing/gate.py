"""The release gate: whether a version may go live, by the scores of a suite. Pure."""

from collections.abc import Iterator, Mapping

from jobs.routing.terms import Policy

Scores = Mapping[str, float]


def refusals(
    policy: Policy, scores: Scores | None, live: Scores | None
) -> Iterator[str]:
    """Why it may not. `scores` by rubric item are the version's own, None if no suite
    was run through it; `live` those of the live version by the same suite, if any."""
    if scores is None:
        if policy.thresholds or live:
            yield "No suite was run through it: run manage.py evaluate first."
        return
    for item, least in sorted(policy.thresholds.items()):
        if item not in scores:
            yield f"The suite says nothing of {item}, which must reach {least:g}."
        elif scores[item] < least:
            yield f"{item} is {scores[item]:.3f}, and must reach {least:g}."
    for item, was in sorted((live or {}).items()):
        least = was - policy.max_regression
        if scores.get(item, 0.0) < least:
            yield (
                f"{item} is {scores.get(item, 0.0):.3f}, worse than the live version's "
                f"{was:.3f} by more than {policy.max_regression:g}."
            )
