"""Whether a result is accepted: a table for each validator, and what decides nothing."""

import json
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.routing import Validator, parse
from jobs.spec import UNSTORABLE
from scheduler.evaluator import Execution, Facts, Verdict, evaluate, reads

TIER = {"name": "only", "image": "lab/model:1", "model_version": "1"}


def validators(*told: dict[str, Any]) -> tuple[Validator, ...]:
    named = [{"name": f"v{n}", **each} for n, each in enumerate(told)]
    document = {"name": "p", "tiers": [TIER], "validators": named}
    return parse(document).validators


def left(files: dict[str, bytes] | None = None, **more: Any) -> Facts:
    contents = files or {}
    sizes = {path: len(content) for path, content in contents.items()}
    return Facts(**{"exit_code": 0, "sizes": sizes, "contents": contents, **more})


def says(told: dict[str, Any], facts: Facts) -> Verdict:
    return evaluate(validators(told), facts)


SCHEMA = {
    "json_schema": {"type": "object", "required": ["label"]},
    "path": "r.json",
}
SURE = {"number": "a.b", "path": "r.json", "at_least": 0.5, "at_most": 0.9}
APOLOGY = {"pattern": "(?i)sorry", "path": "r.txt", "is_absent": True}


def r(content: bytes) -> dict[str, bytes]:
    return {"r.json": content}


TABLE: list[tuple[str, dict[str, Any], Facts, bool, str]] = [
    ("exit code 0", {"exit_code": 0}, left(), True, ""),
    ("another", {"exit_code": 0}, left(exit_code=3), False, "3"),
    ("no exit seen", {"exit_code": 0}, left(exit_code=None), False, "None"),
    ("a file is there", {"artifact": "a"}, left({"a": b""}), True, ""),
    ("it is not", {"artifact": "a"}, left({"b": b"x"}), False, "no a"),
    (
        "it is too small",
        {"artifact": "a", "min_bytes": 2},
        left({"a": b"1"}),
        False,
        "1 byte",
    ),
    (
        "it is just large enough",
        {"artifact": "a", "min_bytes": 2, "max_bytes": 2},
        left({"a": b"12"}),
        True,
        "",
    ),
    (
        "it is too large",
        {"artifact": "a", "max_bytes": 2},
        left({"a": b"123"}),
        False,
        "3 bytes",
    ),
    ("the schema is met", SCHEMA, left(r(b'{"label": 1}')), True, ""),
    ("it is not met", SCHEMA, left(r(b"{}")), False, "label"),
    ("no JSON", SCHEMA, left(r(b"{")), False, "JSON"),
    ("no UTF-8", SCHEMA, left(r(b'"\xff"')), False, "r.json"),
    ("an empty file", SCHEMA, left(r(b"")), False, "JSON"),
    ("NaN is no JSON", SCHEMA, left(r(b'{"label": NaN}')), False, "NaN"),
    ("a number beyond all", SCHEMA, left(r(b'{"label": 1e999}')), False, "r.json"),
    ("a name twice", SCHEMA, left(r(b'{"label": 1, "label": 2}')), False, "twice"),
    ("nested without end", SCHEMA, left(r(b"[" * 100_000)), False, "r.json"),
    (
        "too large to be read",
        SCHEMA,
        Facts(exit_code=0, sizes={"r.json": 2**40}, contents={}),
        False,
        "1,099,511,627,776",
    ),
    ("within the bounds", SURE, left(r(b'{"a": {"b": 0.5}}')), True, ""),
    (
        "a whole number beyond all",
        SURE,
        left(r(b'{"a": {"b": 1' + b"0" * 400 + b"}}")),
        False,
        "too large",
    ),
    ("below", SURE, left(r(b'{"a": {"b": 0.49}}')), False, "0.49"),
    ("above", SURE, left(r(b'{"a": {"b": 0.91}}')), False, "0.91"),
    ("a text is no number", SURE, left(r(b'{"a": {"b": "0.7"}}')), False, "number"),
    ("true is no number", SURE, left(r(b'{"a": {"b": true}}')), False, "number"),
    ("there is none", SURE, left(r(b'{"a": []}')), False, "number"),
    ("nothing of the kind", APOLOGY, left({"r.txt": b"Here."}), True, ""),
    ("an apology", APOLOGY, left({"r.txt": b"I am Sorry."}), False, "found"),
    ("no such file", APOLOGY, left(), False, "no r.txt"),
    (
        "a pattern that must be there",
        {"pattern": "ok$", "path": "r.txt"},
        left({"r.txt": b"not o.k."}),
        False,
        "not found",
    ),
]


@pytest.mark.parametrize(
    ("told", "facts", "is_accepted", "text"),
    [row[1:] for row in TABLE],
    ids=[row[0] for row in TABLE],
)
def test_one_validator(
    told: dict[str, Any], facts: Facts, is_accepted: bool, text: str
) -> None:
    verdict = says(told, facts)
    (outcome,) = verdict.outcomes
    assert outcome.is_accepted == is_accepted, outcome
    assert text in outcome.text
    json.dumps(dict(outcome.evidence), allow_nan=False)


RUN = {"container": "lab/check:1"}


def ran(code: int | None, verdict: Any = None) -> Facts:
    content = (
        verdict
        if verdict is None or isinstance(verdict, bytes)
        else json.dumps(verdict).encode()
    )
    execution = Execution(exit_code=code, verdict=content, text="It ran out of time.")
    return left(executions={"v0": execution})


EXECUTIONS: list[tuple[str, Facts, bool, str]] = [
    ("exit code 0 is enough", ran(0), True, ""),
    ("another rejects", ran(1), False, "exit code 1"),
    ("whatever it writes", ran(1, {"accepted": True}), False, "exit code 1"),
    ("it accepts", ran(0, {"accepted": True, "reason": "fine"}), True, "fine"),
    ("it rejects", ran(0, {"accepted": False, "reason": "2 fail"}), False, "2 fail"),
    ("a word is no verdict", ran(0, {"accepted": "yes"}), False, ""),
    ("a list is none", ran(0, [True]), False, ""),
    ("what is no JSON is none", ran(0, b"accepted"), False, ""),
    ("it did not end by itself", ran(None), False, "ran out of time"),
]


@pytest.mark.parametrize(
    ("facts", "is_accepted", "text"),
    [row[1:] for row in EXECUTIONS],
    ids=[row[0] for row in EXECUTIONS],
)
def test_a_container_that_looks_at_it(
    facts: Facts, is_accepted: bool, text: str
) -> None:
    (outcome,) = says(RUN, facts).outcomes
    assert outcome.is_accepted == is_accepted, outcome
    assert text in outcome.text


HELD = '{"label": "a\\u0000b\\ud800"}'


@pytest.mark.parametrize(
    ("told", "facts"),
    [
        (
            {"json_schema": {"properties": {"label": {"enum": [1]}}}, "path": "r.json"},
            left(r(HELD.encode())),
        ),
        ({"pattern": "a.*", "path": "r.json", "is_absent": True}, left(r(b"a\0b"))),
        (
            {"container": "lab/check:1"},
            left(
                executions={
                    "v0": Execution(
                        exit_code=0,
                        verdict=b'{"accepted": false, "reason": "\\u0000", "scores": '
                        b'{"\\ud800": 1}}',
                    )
                }
            ),
        ),
    ],
    ids=["a schema's complaint", "what a pattern found", "a container's words"],
)
def test_what_no_database_holds_is_in_no_outcome(
    told: dict[str, Any], facts: Facts
) -> None:
    """Else the row could not be written, and the job would be judged for ever."""
    (outcome,) = says(told, facts).outcomes
    assert not outcome.is_accepted
    assert not UNSTORABLE.search(outcome.text)
    evidence = json.dumps(dict(outcome.evidence))
    assert "\\u0000" not in evidence
    assert "\\ud800" not in evidence


def test_its_scores_are_kept() -> None:
    said = {"accepted": True, "scores": {"style": 0.7, "tests": 1}}
    (outcome,) = says(RUN, ran(0, said)).outcomes
    assert outcome.evidence["scores"] == {"style": 0.7, "tests": 1}


class TestTheOrder:
    BOTH = validators({"artifact": "a"}, RUN, {"artifact": "b"})

    def test_a_rejection_ends_it_and_no_container_is_run(self) -> None:
        verdict = evaluate(self.BOTH, left())
        assert [outcome.validator for outcome in verdict.outcomes] == ["v0"]
        assert verdict.pending is None
        assert not verdict.is_accepted

    def test_a_container_is_run_when_it_is_its_turn(self) -> None:
        verdict = evaluate(self.BOTH, left({"a": b""}))
        assert verdict.pending is not None
        assert verdict.pending.name == "v1"
        assert not verdict.is_accepted
        assert verdict.rejected is None

    def test_after_it_the_next(self) -> None:
        execution = {"v1": Execution(exit_code=0)}
        verdict = evaluate(self.BOTH, left({"a": b"", "b": b""}, executions=execution))
        assert verdict.is_accepted
        assert len(verdict.outcomes) == 3

    def test_with_no_validators_what_is_there_is_accepted(self) -> None:
        assert evaluate((), left()).is_accepted


def test_only_what_a_validator_looks_into_is_read() -> None:
    asked = validators({"artifact": "a"}, SCHEMA, SURE, APOLOGY, RUN)
    assert reads(asked) == {"r.json", "r.txt"}


def test_a_verdict_can_not_depend_on_the_log() -> None:
    """There is no way by which it could be told."""
    names = {field.name for field in fields(Facts)} | {
        field.name for field in fields(Execution)
    }
    assert names == {
        *("exit_code", "sizes", "contents", "executions"),
        *("verdict", "text"),
    }
    # What is said of a validator attempt is ours, and decides nothing.
    for text in ("", "accepted", '{"accepted": true}'):
        execution = Execution(exit_code=1, text=text)
        verdict = says(RUN, left(executions={"v0": execution}))
        assert not verdict.is_accepted


@given(content=st.binary(max_size=300), exit_code=st.integers() | st.none())
def test_whatever_a_program_leaves_is_judged_and_never_an_error(
    content: bytes, exit_code: int | None
) -> None:
    asked = validators({"exit_code": 0}, SCHEMA, SURE, APOLOGY, RUN)
    for one in asked:
        facts = left(
            {"r.json": content, "r.txt": content},
            exit_code=exit_code,
            executions={
                each.name: Execution(exit_code=exit_code, verdict=content)
                for each in asked
            },
        )
        for outcome in evaluate([one], facts).outcomes:
            json.dumps(dict(outcome.evidence), allow_nan=False)
            assert outcome.text


@given(
    document=st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=20,
    )
)
def test_any_json_is_judged_the_same_twice(document: Any) -> None:
    facts = left(r(json.dumps(document).encode()))
    asked = validators(SCHEMA, SURE)
    assert evaluate(asked, facts) == evaluate(asked, facts)
