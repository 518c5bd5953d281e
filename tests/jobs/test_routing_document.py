"""A policy as a document: nothing is ignored, and what is wrong is told with its place."""

import contextlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.routing import RoutingError, document_of, parse, parse_yaml, to_yaml
from jobs.routing.suite import parse_suite
from tests.e2e.stack import ROOT

SMALL = {"name": "small", "image": "a:1", "model_version": "1", "min_vram_mb": 1000}
LARGE = {**SMALL, "name": "large", "min_vram_mb": 2000}
RULE = {"name": "long", "weight": 1, "of": "text", "at_least": 3}
CHECK = {"name": "file", "artifact": "a"}
RUN = {"name": "run", "container": "b:1"}
BASE: dict[str, Any] = {"name": "p", "tiers": [SMALL, LARGE]}


def told(**changes: Any) -> dict[str, Any]:
    return {**BASE, **changes}


def one(**changes: Any) -> dict[str, Any]:
    return told(tiers=[{**SMALL, **changes}])


def rule(**changes: Any) -> dict[str, Any]:
    return told(rules=[{**RULE, **changes}])


def check(**fields: Any) -> dict[str, Any]:
    return told(validators=[{"name": "v", **fields}])


WRONG: list[tuple[str, Any, str, str]] = [
    ("nothing", None, "", "object"),
    ("a list", [], "", "object"),
    ("empty", {}, "", "name is missing"),
    ("a mistyped name", told(tires=[]), "", "There are: "),
    ("no name", {"tiers": [SMALL]}, "", "name is missing"),
    ("an empty name", told(name=""), "name", "small letters"),
    ("capitals", told(name="Policy"), "name", "small letters"),
    ("a name that climbs", told(name="../x"), "name", "small letters"),
    ("a very long name", told(name="a" * 64), "name", "1 to 63"),
    ("a NUL", told(name="a\0"), "", "NUL"),
    ("a name that is a number", told(name=7), "name", "must be a text"),
    ("half a character", told(description="\ud800"), "", "surrogate"),
    ("a book", told(description="x" * 20_001), "description", "20,000"),
    ("a kind of work that is none", told(work="art"), "work", "general, code"),
    ("no tier", told(tiers=[]), "tiers", "at least one"),
    ("tiers that are none", told(tiers="small"), "tiers", "must be a list"),
    ("a tier that is none", told(tiers=["small"]), "tiers[0]", "must be an object"),
    ("a tier without an image", told(tiers=[{"name": "a"}]), "tiers[0]", "image"),
    ("two of one name", told(tiers=[SMALL, SMALL]), "tiers", "twice"),
    ("too many", told(tiers=[SMALL] * 21), "tiers", "at most 20"),
    ("the larger first", told(tiers=[LARGE, SMALL]), "tiers.small", "smallest tier first"),
    ("minus one GPU", one(gpu_count=-1), "tiers[0].gpu_count", "from 0 to 64"),
    ("half a GPU", one(gpu_count=0.5), "tiers[0].gpu_count", "whole number"),
    ("true GPUs", one(gpu_count=True), "tiers[0].gpu_count", "whole number"),
    ("a text of GPUs", one(gpu_count="1"), "tiers[0].gpu_count", "whole number"),
    ("endless CPUs", one(cpus=float("inf")), "", "not finite"),
    ("no number of CPUs", one(cpus=float("nan")), "", "not finite"),
    ("a huge number", one(memory_mb=10**30), "tiers[0].memory_mb", "give a number"),
    ("no time", one(timeout_s=0), "tiers[0].timeout_s", "from 1"),
    ("a risk that is none", one(max_risk="tiny"), "tiers[0].max_risk", "low, medium"),
    ("VRAM and no GPU", one(gpu_count=0), "tiers[0]", "no VRAM"),
    ("shared without a size", one(share=True, min_vram_mb=None), "tiers[0]", "min_vram"),
    ("a command of numbers", one(command=[1]), "tiers[0].command[0]", "must be a text"),
    ("env that is a list", one(env=["A=1"]), "tiers[0].env", "names and texts"),
    ("a variable of a number", one(env={"A": 1}), "tiers[0].env.A", "must be a text"),
    (
        "a command that names a param",
        one(command=["x", "{{ text }}"]),
        "tiers[0].command",
        "stands for nothing here",
    ),
    (
        "a placeholder that is none",
        one(prompt="{{ text.upper() }}"),
        "tiers[0].prompt",
        "write {{ name }}",
    ),
    ("shm above memory", one(shm_mb=99, memory_mb=50), "tiers[0]", "counts in memory"),
    (
        "a larger tier that is trusted with less",
        told(tiers=[{**SMALL, "max_risk": "medium"}, {**LARGE, "max_risk": "low"}]),
        "tiers.large",
        "max_risk is below",
    ),
    (
        "or is for less",
        told(tiers=[SMALL, {**LARGE, "max_complexity": 3}]),
        "tiers.large",
        "max_complexity is below",
    ),
    ("a rule that compares nothing", told(rules=[{"name": "r", "weight": 1}]), "rules[0]", "at_least"),
    ("or twice", rule(at_most=9), "rules[0]", "give one of"),
    ("a rule of no weight", told(rules=[{"name": "r", "at_least": 1}]), "rules[0]", "weight"),
    ("an endless weight", rule(weight=float("inf")), "", "not finite"),
    ("a pattern that is none", told(rules=[{"name": "r", "weight": 1, "matches": "(a"}]), "rules[0].matches", "RE2"),
    ("one that looks back", told(rules=[{"name": "r", "weight": 1, "matches": r"(a)\1"}]), "rules[0].matches", "RE2"),
    ("a validator of no kind", check(), "validators[0]", "give one of"),
    ("of two kinds", check(artifact="a", exit_code=0), "validators[0]", "give one of"),
    ("a mistyped field", check(artifact="a", min_byte=1), "validators[0]", "min_byte"),
    ("another exit code", check(exit_code=3), "validators[0].exit_code", "exits with 0"),
    ("a path that climbs", check(artifact="../a"), "validators[0].artifact", "below"),
    ("one from the root", check(artifact="/a"), "validators[0].artifact", "below"),
    ("bounds that cross", check(artifact="a", min_bytes=9, max_bytes=1), "validators[0]", "more than"),
    ("a schema that is none", check(json_schema={"type": "tex"}, path="a"), "validators[0].json_schema", "JSON Schema"),
    ("one that is a text", check(json_schema="object", path="a"), "validators[0].json_schema", "object"),
    ("one from elsewhere", check(json_schema={"$ref": "http://127.0.0.1:1/x"}, path="a"), "validators[0].json_schema", "JSON Schema"),
    ("a schema of no file", check(json_schema={}), "validators[0]", "path is missing"),
    ("a number without bounds", check(number="n", path="a"), "validators[0]", "at_least"),
    ("two validators of one name", told(validators=[CHECK, CHECK]), "validators", "twice"),
    ("a NUL in a schema", told(params={"title": "a\0"}), "", "NUL"),
    ("or in a name there", told(params={"a\0": 1}), "", "NUL"),
    ("params that are no schema", told(params={"type": 7}), "params", "JSON Schema"),
    ("trouble that is none", told(escalate_on=["bored"], max_escalations=1), "escalate_on[0]", "rejected"),
    ("escalation without an end", told(escalate_on=["rejected"]), "max_escalations", "together"),
    ("and without a cause", told(max_escalations=2), "max_escalations", "together"),
    ("eleven of them", told(escalate_on=["rejected"], max_escalations=11), "max_escalations", "to 10"),
    ("a threshold above 1", told(release={"thresholds": {"a": 1.1}}), "release.thresholds.a", "to 1"),
    ("a review without end", told(review_within_s=10**9), "review_within_s", "give a number"),
    ("code that nothing runs", told(work="code"), "validators", "container"),
    ("high risk that nothing runs", one(max_risk="high"), "validators", "container"),
    ("a person is no proof", told(work="code", review="always"), "validators", "container"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("document", "place", "text"),
    [row[1:] for row in WRONG],
    ids=[row[0] for row in WRONG],
)
def test_what_is_no_policy_is_told_with_its_place(
    document: Any, place: str, text: str
) -> None:
    with pytest.raises(RoutingError) as refused:
        parse(document)
    assert refused.value.place == place, str(refused.value)
    assert text in str(refused.value)


RIGHT = [
    ("the least", told()),
    ("code that a container runs", told(work="code", validators=[RUN])),
    ("high risk that a container runs", {**one(max_risk="high"), "validators": [RUN]}),
    ("tiers of one size, by what they are for", told(tiers=[{**SMALL, "max_complexity": 1}, {**LARGE, "min_vram_mb": 1000}])),
    ("without a GPU", one(gpu_count=0, min_vram_mb=None)),
    ("braces of JSON and of a shell", one(prompt='{"a": {"b": {{ x }}}} ${HOME}')),
    ("all that there is", told(
        description="d", prefer="soonest", params={"type": "object"}, rules=[
            RULE,
            {"name": "b", "weight": -0.5, "measure": "bytes", "at_most": 0},
            {"name": "o", "weight": 0, "of": "k", "one_of": ["a", 1, None, True]},
            {"name": "m", "weight": 2, "of": "k", "matches": "(?i)a+"},
            {"name": "e", "weight": 2, "of": "k", "equals": False},
        ], validators=[
            CHECK, RUN, {"name": "x", "exit_code": 0},
            {"name": "s", "json_schema": {"type": "object"}, "path": "a.json"},
            {"name": "p", "pattern": "x", "path": "a.txt", "is_absent": True},
            {"name": "n", "number": "a.b", "path": "a.json", "at_least": 0},
        ], escalate_on=["rejected", "cuda_oom"], max_escalations=2, review="high_risk",
        review_within_s=60, release={"thresholds": {"a": 0}, "max_regression": 1},
    )),
]  # fmt: skip


@pytest.mark.parametrize(
    "document", [row[1] for row in RIGHT], ids=[row[0] for row in RIGHT]
)
def test_a_policy_is_written_as_it_was_read(document: dict[str, Any]) -> None:
    policy = parse(document)
    assert parse(document_of(policy)) == policy
    assert parse_yaml(to_yaml(policy)) == policy


YAML = [
    ("a name twice", "name: a\nname: b\n", "twice"),
    ("an alias", "name: &x a\ndescription: *x\n", "without & and *"),
    ("a bomb", "a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]\n", "without & and *"),
    ("a tag", "name: !!python/object/apply:os.system [id]\n", "write it without"),
    ("no YAML", "name: [", "no YAML"),
    ("nested without end", "name: " + "[" * 5000, "nested|no YAML"),
    ("a date that is none", "name: 2026-02-30\n", "no YAML"),
    ("a control character", "name: \x07\n", "no YAML"),
    ("a name that is a list", "? [a]\n: b\n", "a name is a text"),
    ("half a megabyte and more", "#" * (512 * 1024 + 1), "characters"),
    ("nothing", "", "object"),
]


@pytest.mark.parametrize(
    ("written", "text"), [row[1:] for row in YAML], ids=[row[0] for row in YAML]
)
def test_what_is_no_plain_yaml_is_told(written: str, text: str) -> None:
    with pytest.raises(RoutingError, match=text):
        parse_yaml(written)


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=9,
)
FIELDS = [
    *("name", "tiers", "rules", "validators", "params", "escalate_on", "release"),
    *("max_escalations", "review", "review_within_s", "work", "prefer", "description"),
]


@given(name=st.sampled_from(FIELDS), value=plain)
def test_any_value_in_any_place_is_taken_or_told(name: str, value: Any) -> None:
    with contextlib.suppress(RoutingError):
        policy = parse(told(**{name: value}))
        assert parse(document_of(policy)) == policy


@pytest.mark.parametrize(
    "path",
    sorted((ROOT / "examples").rglob("policy*.yaml")),
    ids=lambda p: p.parent.name,
)
def test_the_examples_are_policies(path: Path) -> None:
    assert parse_yaml(path.read_text()).tiers


@pytest.mark.parametrize(
    "path",
    sorted((ROOT / "examples").rglob("suite*.yaml")),
    ids=lambda p: p.parent.name,
)
def test_the_suites_of_the_examples_are_suites(path: Path) -> None:
    assert parse_suite(path.read_text()).cases
