"""What the papers claim, as `book/claims/<chapter>.yml` declares it: each claim, its place, its rule, its verdict.

A file is read strictly: an unknown, missing, repeated or ill-typed field is an error that names it. Nothing here judges
a claim.
"""

import keyword
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from leakage import arguments
from leakage.profiles import PROFILES
from reproduced.claims import measurements, strict_yaml
from reproduced.claims.measurements import Measured
from reproduced.claims.rules import Rule

VERDICTS = ("held", "held in part", "did not hold", "undecided", "not run")
HELD, IN_PART, DID_NOT_HOLD, UNDECIDED, NOT_RUN = VERDICTS
# What a claim is; the first four are the papers' own, an erratum is a slip of the text (held if it is one).
KINDS = ("theorem", "figure", "experiment", "method", "erratum", "ours")
GROUPS = ("The paper's claims", "Ours, not in the paper", "Errata")
_RULES = frozenset({"holds", "in_part", "refuted"})
# The place of a value in a text; the braces of mathematics follow a sign.
_PLACE = re.compile(r"(?<![$\\^_}a-z])\{([a-z][a-z0-9_]*)\}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


@dataclass(frozen=True)
class Claim:
    """One claim as declared.

    Attributes:
        id: `<prefix>.<row>`; findings of ours are `<prefix>.beyond.<row>`.
        kind: one of `KINDS`.
        claim: one sentence in our words; may contain `$math$`.
        expected: the verdict that is expected, one of `VERDICTS`.
        values: what each measurement that the rules look at is, over what its interval is.
        holds: when the claim holds.
        in_part: when it holds on a part of what it says; looked at only if it does not hold.
        refuted: when the measurements are evidence against it. What neither holds nor is refuted is undecided.
        why: the evidence, for a verdict other than "held"; of an undecided claim, what it would take.
        proof: what is wrong with the printed proof of a statement that holds; "" if nothing is known to be.
        profile: the least profile that can judge it, `ci` or `paper`.
        where: where the paper says it; "" for a finding of ours.
        paper: what the paper states, if it states a value; else "".
        needs: data sets without which it is honestly not run.
        shows: what stands beside the verdict, in a few words with at least one value in braces, `{ridge} more`; "" for
            the first value with its name.
        exact: whether it is true by algebra or construction, so that its check guards texts and code and is no evidence
            about trained models.
    """

    id: str
    kind: str
    claim: str
    expected: str
    values: Mapping[str, str]
    holds: Rule
    refuted: Rule
    in_part: Rule | None = None
    why: str = ""
    proof: str = ""
    profile: str = "ci"
    where: str = ""
    paper: str = ""
    needs: tuple[str, ...] = ()
    shows: str = ""
    exact: bool = False

    @property
    def shown(self) -> str:
        """The name of the first value that stands beside the verdict."""
        return next(iter([*_PLACE.findall(self.shows), *self.values]))

    def told(self, values: Mapping[str, Measured]) -> str:
        """What stands beside the verdict: `shows` with the measurements, in few words."""
        name = self.shown
        told = self.shows or f"{name.replace('_', ' ')} {{{name}}}"
        return _PLACE.sub(lambda place: measurements.brief(values[place[1]]), told)

    @property
    def rules(self) -> dict[str, Rule]:
        """The rules that the claim has, by the word for what they find."""
        found = {"held": self.holds, "in part": self.in_part, "refuted": self.refuted}
        return {word: rule for word, rule in found.items() if rule}

    def judged_in(self, profile: str) -> bool:
        """Whether a run in `profile` is large enough to judge the claim."""
        return profile != "smoke" and PROFILES.index(profile) >= PROFILES.index(self.profile)

    def verdict(self, values: Mapping[str, Measured]) -> str:
        """The verdict of the rules on the measurements.

        Raises:
            ValueError: if a rule cannot be applied to them, or if they satisfy both `holds` and `refuted`.
        """
        holds, refuted = self.holds(values), self.refuted(values)
        in_part = self.in_part is not None and self.in_part(values)
        if holds and refuted:
            raise ValueError("the rules contradict each other: it holds and is refuted.")
        return HELD if holds else IN_PART if in_part else DID_NOT_HOLD if refuted else UNDECIDED

    def idle(self, values: Mapping[str, Measured]) -> tuple[float, ...]:
        """The numbers of the deciding rule that decide nothing: moved as far as one likes, they leave it as it is.

        An undecided claim has none as long as one number of one rule could have decided it.
        """
        verdict = self.verdict(values)
        words = {HELD: "held", IN_PART: "in part", DID_NOT_HOLD: "refuted"}
        rules = [self.rules[words[verdict]]] if verdict in words else [*self.rules.values()]
        found = [
            (number, set(rule.moved(place, values)) == {rule(values)})
            for rule in rules
            for place, number in enumerate(rule.numbers())
        ]
        if verdict == UNDECIDED and not all(idle for _, idle in found):
            return ()
        return tuple(number for number, idle in found if idle)

    def reason(self, verdict: str, values: Mapping[str, Measured]) -> str:
        """What stands beside the verdict: `why` with the measurements it names in braces, or the slip in the proof."""
        if verdict != self.expected:
            return f"Not expected: {self.expected} was."
        if verdict == HELD and self.proof:
            return f"As stated; the printed proof: {self.proof}"
        return _PLACE.sub(lambda place: measurements.shown(values[place[1]]), self.why)


@dataclass(frozen=True)
class Declarations:
    """The claims file of one chapter.

    `published` holds the paper's curves: for each figure named, columns of numbers of one length.
    """

    chapter: str
    prefix: str
    title: str
    paper: str
    data: tuple[str, ...]
    claims: tuple[Claim, ...]
    published: Mapping[str, Mapping[str, tuple[float, ...]]] = field(default_factory=dict, repr=False)
    by_id: Mapping[str, Claim] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_id", {claim.id: claim for claim in self.claims})

    def groups(self) -> dict[str, list[Claim]]:
        """The claims by whose they are: the paper's, ours, errata."""
        found = {group: [claim for claim in self.claims if group_of(claim.kind) == group] for group in GROUPS}
        return {group: members for group, members in found.items() if members}


def group_of(kind: str) -> str:
    """Whose the claims of a kind are, one of `GROUPS`."""
    return GROUPS[{"ours": 1, "erratum": 2}.get(kind, 0)]


def load(path: Path) -> Declarations:
    """Read and check a claims file.

    Raises:
        ValueError: naming the file, the claim, the field and the rule it breaks.
        FileNotFoundError: if there is no such file.
    """
    return _load(path, path.read_bytes())


@lru_cache(maxsize=32)  # a build asks for each file some nine times
def _load(path: Path, content: bytes) -> Declarations:
    try:
        return _declarations(strict_yaml.parse(content), chapter=path.stem)
    except ValueError as error:
        raise strict_yaml.fault(path, error) from error


def _declarations(content: Any, *, chapter: str) -> Declarations:
    optional = {"data", "published"}
    head = strict_yaml.fields(content, "the file", {"chapter", "prefix", "title", "paper", "claims"}, optional)
    if head["chapter"] != chapter:
        raise ValueError(f"`chapter` must be the name of the file, {chapter!r}; got {head['chapter']!r}.")
    texts = {name: strict_yaml.text(head, name, "the file") for name in ("chapter", "prefix", "title", "paper")}
    if not re.fullmatch(r"[a-z][a-z0-9_]*", texts["prefix"]):
        raise ValueError(f"`prefix` must be one lower-case word; got {texts['prefix']!r}.")
    data = strict_yaml.names(head, "data", "the file")
    claims = tuple(_claim(entry, texts["prefix"], data) for entry in strict_yaml.entries(head, "claims", "the file"))
    ids = [claim.id for claim in claims]
    if not ids:
        raise ValueError("the file declares no claim.")
    if repeated := sorted({name for name in ids if ids.count(name) > 1}):
        raise ValueError(f"declared twice: {', '.join(repeated)}.")
    return Declarations(**texts, data=data, claims=claims, published=_published(head))


def _published(head: Mapping[str, Any]) -> dict[str, dict[str, tuple[float, ...]]]:
    figures = head.get("published") or {}
    if not isinstance(figures, dict):
        raise ValueError(f"`published` must be a mapping of figures; got {figures!r}.")
    return {name: _columns(columns, f"published {name}") for name, columns in figures.items()}


def _columns(columns: Any, whose: str) -> dict[str, tuple[float, ...]]:
    if (
        not isinstance(columns, dict)
        or len({len(strict_yaml.entries(columns, column, whose)) for column in columns}) != 1
    ):
        raise ValueError(f"{whose} must be columns of one length.")
    return {column: tuple(_number(value, whose) for value in values) for column, values in columns.items()}


def _number(value: Any, whose: str) -> float:
    number = float(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else math.nan
    if not math.isfinite(number):
        raise ValueError(f"{whose} must hold finite numbers only; got {arguments.shown(value)}.")
    return number


def _claim(entry: Any, prefix: str, data: tuple[str, ...]) -> Claim:
    whose = f"claim {entry['id']}" if isinstance(entry, dict) and "id" in entry else "a claim without id"
    ours = isinstance(entry, dict) and entry.get("kind") == "ours"
    required = {"id", "kind", "claim", "expected", "values", "holds", "refuted"} | (set() if ours else {"where"})
    optional = {"needs", "profile", "paper", "where", "in_part", "why", "proof", "shows", "exact"}
    entry = strict_yaml.fields(entry, whose, required, optional)
    texts = {
        name: strict_yaml.text(entry, name, whose)
        for name in entry
        if name not in ("needs", "values", "exact", *_RULES)
    }
    if not re.fullmatch(rf"{re.escape(prefix)}(\.[A-Za-z0-9_]+)+", texts["id"]):
        raise ValueError(f"{whose}: `id` must be {prefix}.<row>, of letters, digits and underscores.")
    if texts["id"].startswith(f"{prefix}.beyond.") and not ours:
        raise ValueError(f"{whose}: `kind` must be ours, as its id says; got {texts['kind']!r}.")
    for name, known in (("kind", KINDS), ("profile", PROFILES[1:]), ("expected", VERDICTS)):
        if texts.get(name, known[0]) not in known:
            raise ValueError(f"{whose}: `{name}` must be one of {', '.join(known)}; got {texts[name]!r}.")
    needs = strict_yaml.names(entry, "needs", whose)
    if missing := sorted(set(needs) - set(data)):
        raise ValueError(f"{whose}: `needs` names {', '.join(missing)}, which `data` of the file does not.")
    if entry.get("exact", "true") != "true":
        raise ValueError(f"{whose}: `exact` must be true, or left out; got {entry['exact']!r}.")
    return Claim(**texts, needs=needs, exact="exact" in entry, **_ruled(entry, whose))


def _ruled(entry: Mapping[str, Any], whose: str) -> dict[str, Any]:
    """The values and the rules of a claim."""
    values = entry["values"]
    if not isinstance(values, dict) or not values:
        raise ValueError(f"{whose}: `values` must say what each value is; got {values!r}.")
    if wrong := sorted(
        name for name in values if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name)
    ):
        raise ValueError(f"{whose}: a value must have a name of lower-case letters; got {', '.join(wrong)}.")
    texts = {name: strict_yaml.text(values, name, whose) for name in values}
    rules = {}
    for name in sorted(_RULES & entry.keys()):
        try:
            rules[name] = Rule(strict_yaml.text(entry, name, whose), tuple(values))
        except ValueError as error:
            raise ValueError(f"{whose}: `{name}`: {error}") from error
    why = entry.get("why", "")
    shows = entry.get("shows")
    if shows is not None and not 0 < len(named := set(_PLACE.findall(shows))) == len(named & texts.keys()):
        raise ValueError(
            f"{whose}: `shows` must have one of {', '.join(texts)} in braces, and no other; got {shows!r}."
        )
    idle = texts.keys() - {name for rule in rules.values() for name in rule.used} - set(_PLACE.findall(why))
    if idle:
        raise ValueError(f"{whose}: no rule looks at {', '.join(sorted(idle))}.")
    if unknown := sorted(set(_PLACE.findall(why)) - texts.keys()):
        raise ValueError(f"{whose}: `why` names {', '.join(unknown)}, which `values` does not.")
    if entry["expected"] not in (HELD, NOT_RUN) and not why:
        raise ValueError(f"{whose}: `why` is required, for the expected verdict is {entry['expected']!r}.")
    if entry["expected"] == IN_PART and "in_part" not in rules:
        raise ValueError(f"{whose}: `in_part` is required, for the expected verdict is {IN_PART!r}.")
    return {"values": texts, **rules}
