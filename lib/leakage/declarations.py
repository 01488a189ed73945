"""What the papers claim, as `book/claims/<chapter>.yml` declares it: each claim, its place, its rule, its verdict.

A file is read strictly: an unknown, missing, repeated or ill-typed field is an error that names it. Nothing here judges
a claim.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from leakage import arguments
from leakage.runtime import PROFILES

HELD, IN_PART, DID_NOT_HOLD, NOT_RUN = VERDICTS = ("held", "held in part", "did not hold", "not run")
_DEEPEST = 20  # levels of nesting in a file that a person writes; a claims file has five
_LONGEST_MESSAGE = 400  # characters
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


@dataclass(frozen=True)
class Claim:
    """One claim as declared.

    Attributes:
        id: `<prefix>.<row>`; findings of ours are `<prefix>.beyond.<row>`.
        claim: one sentence in our words; may contain `$math$`.
        rule: how it is judged, in words, with the thresholds.
        profile: the least profile that can judge it, `ci` or `paper`.
        expected: the verdict that is expected, one of `VERDICTS`.
        where: where the paper says it; "" for a finding of ours.
        paper: what the paper states, if it states a value; else "".
        needs: data sets without which it is honestly not run.
    """

    id: str
    claim: str
    rule: str
    profile: str
    expected: str
    where: str = ""
    paper: str = ""
    needs: tuple[str, ...] = ()

    def judged_in(self, profile: str) -> bool:
        """Whether a run in `profile` is large enough to judge the claim."""
        return profile != "smoke" and PROFILES.index(profile) >= PROFILES.index(self.profile)


@dataclass(frozen=True)
class Declarations:
    """The claims file of one chapter: the paper's claims, then (`beyond`) findings of ours that it does not make.

    `published` holds the paper's curves: for each figure named, columns of numbers of one length.
    """

    chapter: str
    prefix: str
    title: str
    paper: str
    data: tuple[str, ...]
    claims: tuple[Claim, ...]
    beyond: tuple[Claim, ...]
    published: Mapping[str, Mapping[str, tuple[float, ...]]] = field(default_factory=dict, repr=False)
    by_id: Mapping[str, Claim] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_id", {claim.id: claim for claim in (*self.claims, *self.beyond)})


def load(path: Path) -> Declarations:
    """Read and check a claims file.

    Raises:
        ValueError: naming the file, the claim, the field and the rule it breaks.
        FileNotFoundError: if there is no such file.
    """
    content = read_yaml(path)
    try:
        return _declarations(content, chapter=path.stem)
    except ValueError as error:
        raise _fault(path, error) from error


def read_yaml(path: Path) -> Any:
    """The content of a YAML file written by hand: mappings, lists and texts, each value as it is written.

    Raises:
        ValueError: if it is no UTF-8 or no YAML, repeats a key, refers to another place of the file or is nested deeper
            than a person writes; the message names the file.
        OSError: if it cannot be opened.
    """
    try:
        return yaml.load(path.read_text("utf-8"), Loader=_StrictLoader)
    except (yaml.YAMLError, ValueError) as error:
        raise _fault(path, error) from error


def _fault(path: Path, error: Exception) -> ValueError:
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


def _declarations(content: Any, *, chapter: str) -> Declarations:
    optional = {"data", "claims", "beyond", "published"}
    head = _fields(content, "the file", {"chapter", "prefix", "title", "paper"}, optional)
    if head["chapter"] != chapter:
        raise ValueError(f"`chapter` must be the name of the file, {chapter!r}; got {head['chapter']!r}.")
    texts = {name: _text(head, name, "the file") for name in ("chapter", "prefix", "title", "paper")}
    if not re.fullmatch(r"[a-z][a-z0-9_]*", texts["prefix"]):
        raise ValueError(f"`prefix` must be one lower-case word; got {texts['prefix']!r}.")
    data = _names(head, "data", "the file")
    claims = tuple(_claim(entry, texts["prefix"], data) for entry in _list(head, "claims", "the file"))
    beyond = tuple(_claim(entry, f"{texts['prefix']}.beyond", data) for entry in _list(head, "beyond", "the file"))
    ids = [claim.id for claim in (*claims, *beyond)]
    if not ids:
        raise ValueError("the file declares no claim.")
    if repeated := sorted({name for name in ids if ids.count(name) > 1}):
        raise ValueError(f"declared twice: {', '.join(repeated)}.")
    return Declarations(**texts, data=data, claims=claims, beyond=beyond, published=_published(head))


def _published(head: Mapping[str, Any]) -> dict[str, dict[str, tuple[float, ...]]]:
    figures = head.get("published") or {}
    if not isinstance(figures, dict):
        raise ValueError(f"`published` must be a mapping of figures; got {figures!r}.")
    return {name: _columns(columns, f"published {name}") for name, columns in figures.items()}


def _columns(columns: Any, whose: str) -> dict[str, tuple[float, ...]]:
    if not isinstance(columns, dict) or len({len(_list(columns, column, whose)) for column in columns}) != 1:
        raise ValueError(f"{whose} must be columns of one length.")
    return {column: tuple(_number(value, whose) for value in values) for column, values in columns.items()}


def _number(value: Any, whose: str) -> float:
    number = float(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else math.nan
    if not math.isfinite(number):
        raise ValueError(f"{whose} must hold finite numbers only; got {arguments.shown(value)}.")
    return number


def _claim(entry: Any, prefix: str, data: tuple[str, ...]) -> Claim:
    ours = prefix.endswith(".beyond")
    required, optional = {"id", "claim", "rule", "profile", "expected"}, {"needs"}
    whose = f"claim {entry['id']}" if isinstance(entry, dict) and "id" in entry else "a claim without id"
    entry = _fields(
        entry, whose, required if ours else required | {"where"}, optional | ({"where"} if ours else {"paper"})
    )
    texts = {name: _text(entry, name, whose) for name in entry if name != "needs"}
    if not re.fullmatch(rf"{re.escape(prefix)}(\.[A-Za-z0-9_]+)+", texts["id"]) or (
        not ours and texts["id"].startswith(f"{prefix}.beyond.")
    ):
        raise ValueError(f"{whose}: `id` must be {prefix}.<row>, of letters, digits and underscores.")
    if texts["profile"] not in PROFILES[1:]:
        raise ValueError(f"{whose}: `profile` must be ci or paper; got {texts['profile']!r}.")
    if texts["expected"] not in VERDICTS:
        raise ValueError(f"{whose}: `expected` must be one of {', '.join(VERDICTS)}; got {texts['expected']!r}.")
    needs = _names(entry, "needs", whose)
    if missing := sorted(set(needs) - set(data)):
        raise ValueError(f"{whose}: `needs` names {', '.join(missing)}, which `data` of the file does not.")
    return Claim(**texts, needs=needs)


def _fields(entry: Any, whose: str, required: set[str], optional: set[str]) -> dict[str, Any]:
    if not isinstance(entry, dict):
        raise ValueError(f"{whose} must be a mapping of fields; got {entry!r}.")
    if unknown := sorted(map(str, set(entry) - required - optional)):
        raise ValueError(
            f"{whose}: unknown field {', '.join(unknown)}; known: {', '.join(sorted(required | optional))}."
        )
    if missing := sorted(required - set(entry)):
        raise ValueError(f"{whose}: `{missing[0]}` is missing.")
    return entry


def _text(entry: Mapping[str, Any], name: str, whose: str) -> str:
    value = entry[name]
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{whose}: `{name}` must be text; got {value!r}.")
    return " ".join(value.split())


def _list(entry: Mapping[str, Any], name: str, whose: str) -> list[Any]:
    value = entry.get(name) or []
    if not isinstance(value, list):
        raise ValueError(f"{whose}: `{name}` must be a list; got {value!r}.")
    return value


def _names(entry: Mapping[str, Any], name: str, whose: str) -> tuple[str, ...]:
    value = _list(entry, name, whose)
    if not all(isinstance(item, str) and item for item in value):
        raise ValueError(f"{whose}: `{name}` must be a list of names; got {value!r}.")
    return tuple(value)
