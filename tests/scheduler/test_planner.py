"""Which tier a task goes to: tables with answers worked out by hand, and properties."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.routing import Policy, Risk, parse
from scheduler.planner import Decision, Ground, plan, score

FREE = Ground(never={}, over_quota={})
IMAGE = "lab/model:1"


def tier(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": IMAGE, "model_version": "1", **fields}


def policy(*tiers: dict[str, Any], **fields: Any) -> Policy:
    return parse({"name": "p", "tiers": list(tiers), **fields})


SMALL = tier("small", min_vram_mb=8_000, max_complexity=2, max_risk="low")
MIDDLE = tier("middle", min_vram_mb=16_000, max_complexity=5)
LARGE = tier("large", min_vram_mb=40_000)
THREE = policy(
    SMALL,
    MIDDLE,
    LARGE,
    rules=[
        {"name": "long", "weight": 3, "of": "text", "measure": "words", "at_least": 4},
        {"name": "proof", "weight": 4, "of": "text", "matches": "(?i)prove"},
        {"name": "easy", "weight": -1, "of": "kind", "equals": "easy"},
    ],
)


def ground(
    never: str = "", over: str = "", busy: tuple[tuple[str, str], ...] = ()
) -> Ground:
    """Names of tiers, a space between two."""
    return Ground(
        never={(name, ""): f"No GPU holds {name}." for name in never.split()},
        over_quota={(name, ""): "You may have less." for name in over.split()},
        busy=busy,
    )


CHOICES = [
    ("nothing holds: complexity 0", "hi", Risk.LOW, FREE, (), "small"),
    ("long: 3 is above the small one's 2", "a b c d", Risk.LOW, FREE, (), "middle"),
    ("long and a proof: 7 is above 5", "prove a b c", Risk.LOW, FREE, (), "large"),
    ("a proof alone: 4 is within 5", "Prove it", Risk.LOW, FREE, (), "middle"),
    ("medium risk is not the small one's", "hi", Risk.MEDIUM, FREE, (), "middle"),
    ("high risk is no tier's here", "hi", Risk.HIGH, FREE, (), ""),
    ("no GPU for the small one", "hi", Risk.LOW, ground("small"), (), "middle"),
    ("nor for the next", "hi", Risk.LOW, ground("small middle"), (), "large"),
    ("for none at all", "hi", Risk.LOW, ground("small middle large"), (), ""),
    ("a limit is in the way", "hi", Risk.LOW, ground(over="small"), (), "middle"),
    ("after the small one the next", "hi", Risk.LOW, FREE, ("small",), "middle"),
    (
        "after the small one, whatever it was found to be for",
        "prove a b c",
        Risk.LOW,
        FREE,
        ("small",),
        "middle",
    ),
    ("no way back after the middle one", "hi", Risk.LOW, FREE, ("middle",), "large"),
    ("after the largest none", "hi", Risk.LOW, FREE, ("small", "large"), ""),
    ("escalation keeps to the risk", "hi", Risk.HIGH, FREE, ("small",), ""),
    (
        "escalation passes over what no GPU holds",
        "hi",
        Risk.LOW,
        ground("middle"),
        ("small",),
        "large",
    ),
]


@pytest.mark.parametrize(
    ("text", "risk", "on", "tried", "chosen"),
    [row[1:] for row in CHOICES],
    ids=[row[0] for row in CHOICES],
)
def test_the_smallest_that_will_do(
    text: str, risk: Risk, on: Ground, tried: tuple[str, ...], chosen: str
) -> None:
    made = plan(THREE, {"text": text}, risk, on, tried=tried)
    assert made.tier == chosen
    assert [each.tier for each in made.candidates] == ["small", "middle", "large"]
    # Each is told of: the chosen would do, and what was passed over says why.
    for each in made.candidates:
        assert bool(each.obstacle) == bool(each.why_not)
        if each.tier == chosen:
            assert not each.obstacle
            break
        assert each.obstacle


def obstacles(made: Decision) -> list[str]:
    return [each.obstacle for each in made.candidates]


def test_the_most_lasting_obstacle_is_told() -> None:
    made = plan(
        THREE, {"text": "a b c d"}, Risk.MEDIUM, ground("small large"), tried=()
    )
    assert obstacles(made) == ["too_risky", "", "never_fits"]


def test_what_was_passed_over_for_want_of_a_gpu_is_the_fallback() -> None:
    made = plan(THREE, {}, Risk.LOW, ground("small"), tried=())
    assert made.fallback == "small: No GPU holds small."
    # That it is too small is no want of a GPU.
    assert plan(THREE, {"text": "a b c d"}, Risk.LOW, FREE).fallback == ""


def test_where_none_will_do_each_says_why() -> None:
    text = plan(THREE, {}, Risk.HIGH, ground(over="large"), tried=()).text
    assert text.startswith("No tier of p will do")
    for name in ("small", "middle", "large"):
        assert name in text


class TestTypesOfGpu:
    TWO = policy(
        tier("small", min_vram_mb=8_000, gpu_names=["*A100*", "*3090*"]),
        tier("large", min_vram_mb=40_000, gpu_names=["*H100*"]),
    )

    def on(self, *gone: tuple[str, str]) -> Decision:
        return plan(
            self.TWO,
            {},
            Risk.LOW,
            Ground(never=dict.fromkeys(gone, "."), over_quota={}),
        )

    def test_the_first_that_is_named_is_tried_first(self) -> None:
        made = self.on()
        assert (made.tier, made.gpu_name) == ("small", "*A100*")

    def test_another_type_comes_before_another_tier(self) -> None:
        made = self.on(("small", "*A100*"))
        assert (made.tier, made.gpu_name) == ("small", "*3090*")
        assert "small on *A100*" in made.fallback

    def test_then_the_next_tier(self) -> None:
        made = self.on(("small", "*A100*"), ("small", "*3090*"))
        assert (made.tier, made.gpu_name) == ("large", "*H100*")


class TestSoonest:
    SOON = policy(SMALL, MIDDLE, LARGE, prefer="soonest")

    def test_one_that_would_wait_is_passed_over(self) -> None:
        made = plan(self.SOON, {}, Risk.LOW, ground(busy=(("small", ""),)))
        assert made.tier == "middle"
        assert obstacles(made)[0] == "busy"
        assert made.fallback

    def test_where_all_would_wait_the_smallest_is_waited_for(self) -> None:
        names = ("small", "middle", "large")
        made = plan(
            self.SOON, {}, Risk.LOW, ground(busy=tuple((name, "") for name in names))
        )
        assert made.tier == "small"


MEASURES: list[tuple[str, dict[str, Any], Any, float]] = [
    ("a number", {"of": "n", "at_least": 3}, {"n": 3}, 1),
    ("one below", {"of": "n", "at_least": 3}, {"n": 2.9}, 0),
    ("at most", {"of": "n", "at_most": 3}, {"n": 3}, 1),
    ("a text is no number", {"of": "n", "at_least": 3}, {"n": "7"}, 0),
    ("true is no number", {"of": "n", "at_least": 1}, {"n": True}, 0),
    ("true is not 1", {"of": "n", "equals": 1}, {"n": True}, 0),
    ("1 is not true", {"of": "n", "equals": True}, {"n": 1}, 0),
    ("equal texts", {"of": "k", "equals": "a"}, {"k": "a"}, 1),
    ("one of some", {"of": "k", "one_of": ["a", "b"]}, {"k": "b"}, 1),
    ("none of them", {"of": "k", "one_of": ["a", "b"]}, {"k": "c"}, 0),
    ("deeper", {"of": "a.b", "at_least": 1}, {"a": {"b": 2}}, 1),
    ("not there", {"of": "a.b", "at_least": 1}, {"a": 1}, 0),
    ("characters", {"of": "k", "measure": "length", "at_least": 3}, {"k": "żół"}, 1),
    ("items", {"of": "k", "measure": "length", "at_least": 2}, {"k": [1]}, 0),
    ("words", {"of": "k", "measure": "words", "at_least": 2}, {"k": " a  b "}, 1),
    ("words of a list", {"of": "k", "measure": "words", "at_least": 0}, {"k": []}, 0),
    ("all params in bytes", {"measure": "bytes", "at_least": 9}, {"k": 12}, 1),
    ("a pattern anywhere", {"of": "k", "matches": "b+"}, {"k": "abba"}, 1),
    ("a pattern over a number", {"of": "k", "matches": "1"}, {"k": 1}, 0),
    ("nothing at all", {"of": "k", "matches": ".*"}, {}, 0),
]


@pytest.mark.parametrize(
    ("rule", "params", "complexity"),
    [row[1:] for row in MEASURES],
    ids=[row[0] for row in MEASURES],
)
def test_what_a_rule_looks_at(
    rule: dict[str, Any], params: Any, complexity: float
) -> None:
    made = policy(LARGE, rules=[{"name": "r", "weight": 1, **rule}])
    found = score(made.rules, params)
    assert found.complexity == complexity
    (each,) = found.contributions
    assert each.weight == complexity


SAID: list[tuple[dict[str, Any], Any, str]] = [
    ({"of": "n", "at_least": 3}, {"n": 4}, "n: 4, at least 3.0."),
    ({"of": "n", "at_most": 3}, {"n": 4}, "n: 4, not at most 3.0."),
    ({"of": "n", "at_most": 3}, {"n": 10**400}, "n: over 1,000,000,000,000,000, not at most 3.0."),
    ({"of": "n", "at_most": 3}, {}, "n: there is none."),
    ({"of": "k", "measure": "words", "at_least": 2}, {"k": "a b"}, "words of k: 2, at least 2.0."),
    ({"of": "k", "equals": "secret"}, {"k": "private"}, 'k: 7 long, not equal to "secret".'),
    ({"of": "k", "one_of": ["a", 1]}, {"k": "a"}, 'k: 1 long, one of ["a", 1.0].'),
    ({"measure": "bytes", "at_least": 2}, {}, "bytes of all params: 2, at least 2.0."),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "params", "text"), SAID)
def test_a_contribution_says_what_was_compared_and_no_text_of_the_job(
    rule: dict[str, Any], params: Any, text: str
) -> None:
    made = policy(LARGE, rules=[{"name": "r", "weight": 1, **rule}])
    (each,) = score(made.rules, params).contributions
    assert each.text == text


def test_a_pattern_over_a_text_of_a_stranger_takes_time_linear_in_it() -> None:
    """A backtracking engine would still be at it when the sun goes out."""
    made = policy(
        LARGE, rules=[{"name": "r", "weight": 1, "of": "k", "matches": "(a+)+$"}]
    )
    assert score(made.rules, {"k": "a" * 50_000 + "b"}).complexity == 0


# --- Properties ----------------------------------------------------------------------

NAMES = ("small", "middle", "large")
grounds = st.builds(
    lambda never, over: ground(" ".join(never), " ".join(over)),
    st.sets(st.sampled_from(NAMES)),
    st.sets(st.sampled_from(NAMES)),
)
texts = st.lists(st.sampled_from(["prove", "a", "b"]), max_size=8).map(" ".join)
tries = st.lists(st.sampled_from(NAMES), max_size=2, unique=True).map(tuple)


@given(text=texts, risk=st.sampled_from(Risk), on=grounds, tried=tries)
def test_none_that_is_smaller_would_have_done(
    text: str, risk: Risk, on: Ground, tried: tuple[str, ...]
) -> None:
    made = plan(THREE, {"text": text}, risk, on, tried=tried)
    would_do = [each.tier for each in made.candidates if not each.obstacle]
    assert made.tier == (would_do[0] if would_do else "")


@given(text=texts, risk=st.sampled_from(Risk), on=grounds, tried=tries)
def test_the_same_inputs_give_the_same_decision(
    text: str, risk: Risk, on: Ground, tried: tuple[str, ...]
) -> None:
    asked = THREE, {"text": text}, risk, on
    assert plan(*asked, tried=tried) == plan(*asked, tried=tried)


@given(text=texts, risk=st.sampled_from(Risk), on=grounds, tried=tries)
def test_what_was_tried_or_is_smaller_never_comes_again(
    text: str, risk: Risk, on: Ground, tried: tuple[str, ...]
) -> None:
    made = plan(THREE, {"text": text}, risk, on, tried=tried)
    if made.tier and tried:
        assert NAMES.index(made.tier) > max(map(NAMES.index, tried))
