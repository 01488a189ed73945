"""A file that a person writes: YAML without surprises, and its fields, each checked by name."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from leakage import arguments

_DEEPEST = 20  # levels of nesting in a file that a person writes; a claims file has five
_LONGEST_MESSAGE = 400  # characters


def read(path: Path) -> Any:
    """The content of a YAML file written by hand: mappings, lists and texts, each value as it is written.

    Raises:
        ValueError: if it is no UTF-8 or no YAML, repeats a key, refers to another place of the file or is nested deeper
            than a person writes; the message names the file.
        OSError: if it cannot be opened.
    """
    try:
        return parse(path.read_bytes())
    except ValueError as error:
        raise fault(path, error) from error


def parse(content: bytes) -> Any:
    """The same of what such a file holds; the message of an error does not name the file."""
    try:
        return yaml.load(content.decode("utf-8"), Loader=_StrictLoader)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def fault(path: Path, error: Exception) -> ValueError:
    return ValueError(f"{path.name}: {arguments.shorten(' '.join(str(error).split()), _LONGEST_MESSAGE)}")


class _StrictLoader(yaml.BaseLoader):
    """A YAML reader that keeps every value as it is written, and refuses a repeated key instead of dropping one.

    It refuses aliases too, with which a file of a few lines stands for gigabytes, and brackets without end.
    """

    _depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        line = self.peek_event().start_mark.line + 1
        if self.check_event(yaml.AliasEvent):
            raise ValueError(f"line {line} refers to another place of the file; write the value out.")
        if self._depth >= _DEEPEST:
            raise ValueError(f"line {line} is nested deeper than {_DEEPEST} levels.")
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [str(self.construct_object(key, deep=True)) for key, _ in node.value]
        if len(set(names)) < len(names):
            repeated = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"the key {repeated!r} stands twice in one entry (line {node.start_mark.line + 1}).")
        return super().construct_mapping(node, deep)


def fields(entry: Any, whose: str, required: set[str], optional: set[str]) -> dict[str, Any]:
    if not isinstance(entry, dict):
        raise ValueError(f"{whose} must be a mapping of fields; got {entry!r}.")
    if unknown := sorted(map(str, set(entry) - required - optional)):
        raise ValueError(
            f"{whose}: unknown field {', '.join(unknown)}; known: {', '.join(sorted(required | optional))}."
        )
    if missing := sorted(required - set(entry)):
        raise ValueError(f"{whose}: `{missing[0]}` is missing.")
    return entry


def text(entry: Mapping[str, Any], name: str, whose: str) -> str:
    value = entry[name]
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{whose}: `{name}` must be text; got {value!r}.")
    return " ".join(value.split())


def entries(entry: Mapping[str, Any], name: str, whose: str) -> list[Any]:
    value = entry.get(name) or []
    if not isinstance(value, list):
        raise ValueError(f"{whose}: `{name}` must be a list; got {value!r}.")
    return value


def names(entry: Mapping[str, Any], name: str, whose: str) -> tuple[str, ...]:
    value = entries(entry, name, whose)
    if not all(isinstance(item, str) and item for item in value):
        raise ValueError(f"{whose}: `{name}` must be a list of names; got {value!r}.")
    return tuple(value)
