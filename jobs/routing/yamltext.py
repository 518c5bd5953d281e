"""YAML as far as JSON goes: no alias, no tag, no name twice, nothing without end."""

from typing import Any

import yaml

from jobs.routing.reading import MOST_DEPTH, RoutingError


class _Strict(yaml.SafeLoader):
    """An alias makes a few lines into gigabytes; of a name that is there twice the
    first would be ignored."""

    _depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            raise RoutingError(_line(event), "write it out, without & and *.")
        if getattr(event, "tag", None) is not None:
            raise RoutingError(_line(event), f"write it without {event.tag}.")
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise RoutingError(_line(event), f"it is nested over {MOST_DEPTH} deep.")
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Any:
        names = [key.value for key, _ in node.value]
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise RoutingError(_line(key), "a name is a text.")
            if names.count(key.value) > 1:
                raise RoutingError(_line(key), f"{key.value} is there twice.")
        return super().construct_mapping(node, deep)


def _line(what: Any) -> str:
    return f"line {what.start_mark.line + 1}"


def plain_of(written: str, most: int) -> Any:
    """Raises RoutingError where it is not what the strict loader takes."""
    if len(written) > most:
        raise RoutingError("", f"it may have {most:,} characters.")
    try:
        # As strict as SafeLoader, whose subclass it is.
        return yaml.load(written, Loader=_Strict)  # noqa: S506
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise RoutingError("", f"this is no YAML: {why[:300]}") from None
