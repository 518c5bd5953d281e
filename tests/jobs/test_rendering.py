"""Templates give a task's params no power: what is put in is only text."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.routing import RoutingError, check_params, parse, render

TABLE: list[tuple[str, str, dict[str, Any], str]] = [
    ("a text stands as it is", "Hi {{ who }}!", {"who": "Ada"}, "Hi Ada!"),
    ("spaces do not matter", "{{who}} {{  who }}", {"who": "x"}, "x x"),
    ("a number is JSON", "{{ n }}", {"n": 1.5}, "1.5"),
    ("so is a list", "{{ n }}", {"n": ["a", None]}, '["a", null]'),
    ("a placeholder in a text stays one", "{{ a }}", {"a": "{{ b }}", "b": "x"}, "{{ b }}"),
    ("so does a format string", "{{ a }}", {"a": "{0.__class__} %s ${x}"}, "{0.__class__} %s ${x}"),
    ("a backslash is one", "{{ a }}", {"a": r"\1\g<0>\n"}, r"\1\g<0>\n"),
    ("braces of JSON stay", '{"a": {"b": {{ n }}}}', {"n": 1}, '{"a": {"b": 1}}'),
    ("a format of Python is nothing here", "{who} %(who)s $who", {"who": "x"}, "{who} %(who)s $who"),
    ("none at all", "", {"a": "x"}, ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("template", "values", "text"),
    [row[1:] for row in TABLE],
    ids=[row[0] for row in TABLE],
)
def test_what_comes_of_a_template(
    template: str, values: dict[str, Any], text: str
) -> None:
    assert render(template, values) == text


def test_a_name_without_a_value_is_told() -> None:
    with pytest.raises(RoutingError, match="text"):
        render("{{ text }}", {"txt": "x"})


@given(value=st.text() | st.integers() | st.lists(st.text()))
def test_whatever_is_put_in_comes_out_once_and_unchanged(value: Any) -> None:
    shown = value if isinstance(value, str) else json.dumps(value)
    assert render("<{{ a }}>", {"a": value, "b": "never"}) == f"<{shown}>"


class TestParams:
    POLICY = parse(
        {
            "name": "p",
            "params": {
                "type": "object",
                "required": ["n"],
                "properties": {
                    "n": {"type": "integer", "maximum": 5},
                    "code": {"type": "string", "pattern": "^(a+)+$"},
                },
            },
            "tiers": [
                {
                    "name": "t",
                    "image": "a:1",
                    "model_version": "1",
                    "prompt": "{{ n }} of {{ text }}",
                }
            ],
        }
    )

    def test_what_the_schema_and_the_prompt_ask_for(self) -> None:
        check_params(self.POLICY, {"n": 5, "text": "x"})

    @pytest.mark.parametrize(
        ("params", "told"),
        [
            ({"n": 6, "text": "x"}, "6 is greater"),
            ({"text": "x"}, '"n" is a required'),
            ({"n": "5", "text": "x"}, "is not of type"),
            ({"n": 1}, "the prompt of tier t needs text"),
            ([], "object"),
            (None, "object"),
            ("n", "object"),
        ],
    )
    def test_what_is_missing_is_told(self, params: Any, told: str) -> None:
        with pytest.raises(RoutingError, match=told):
            check_params(self.POLICY, params)

    def test_a_pattern_of_a_schema_takes_time_linear_in_the_text(self) -> None:
        with pytest.raises(RoutingError):
            check_params(self.POLICY, {"n": 1, "text": "", "code": "a" * 50_000 + "b"})

    def test_no_params_make_a_schema_that_refers_to_itself_slow(self) -> None:
        """To say why would take twice as long for each of the thirty levels."""
        node = {"type": "array", "items": {"$ref": "#/$defs/node"}}
        either = [node, {**node, "minItems": 1}, {"type": "integer"}]
        tree = {
            "properties": {"tree": {"$ref": "#/$defs/node"}},
            "$defs": {"node": {"anyOf": either}},
        }
        (tier,) = self.POLICY.tiers
        policy = replace(
            self.POLICY, params_schema=tree, tiers=(replace(tier, prompt=""),)
        )
        right: Any = 1
        wrong: Any = "x"
        for _ in range(30):
            right, wrong = [right], [wrong]
        check_params(policy, {"tree": right})
        with pytest.raises(RoutingError, match="not as the schema says"):
            check_params(policy, {"tree": wrong})
