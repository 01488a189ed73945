"""What the papers claim, as `book/claims/<chapter>.yml` declares it: each claim, its rules, its expected verdict.

A file is read strictly: an unknown, missing, repeated or ill-typed field is an error that names it. `Claim.verdict`
applies the rules; whether the data allow a verdict is for the `Ledger` to say. Editors check a file as it is
written, by `book/claims/schema.json`.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import BaseModel, BeforeValidator, Field, FiniteFloat, ValidationError, WithJsonSchema, model_validator

from leakage import arguments
from reproduced.claims import measurements
from reproduced.claims.measurements import Measurement
from reproduced.claims.rules import Rule

# What a claim is; the first four are the papers' own, an erratum is an error in a paper's text (held if it is one).
Kind = Literal["theorem", "figure", "experiment", "method", "erratum", "ours"]
Verdict = Literal["held", "held in part", "did not hold", "undecided", "not run"]
KINDS, VERDICTS = get_args(Kind), get_args(Verdict)
HELD, IN_PART, DID_NOT_HOLD, UNDECIDED, NOT_RUN = VERDICTS
DIGEST_DIGITS = 12  # hexadecimal
GROUPS = ("The paper's claims", "Ours, not in the paper", "Errors in the text")
DECIDING_RULE = {HELD: "held", IN_PART: "in part", DID_NOT_HOLD: "refuted"}  # the rule that gives a verdict
# A value's name in braces in a text; braces of mathematics follow `_`, `^` or a command and are none.
_BRACED_VALUE = re.compile(r"(?<![$\\^_}a-z])\{([a-z][a-z0-9_]*)\}")


def _join_words(text: Any) -> Any:
    return " ".join(text.split()) if isinstance(text, str) else text


def _read_rule(text: Any) -> Any:
    return Rule(_join_words(text)) if isinstance(text, str) else text


# A file is read without YAML's types: `paper: 0.60` keeps its digits, and an editor takes it for a number.
_WRITTEN = WithJsonSchema({"type": ["string", "number", "boolean"]})
Text = Annotated[str, Field(min_length=1), BeforeValidator(_join_words), _WRITTEN]
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
RuleText = Annotated[Rule, BeforeValidator(_read_rule), WithJsonSchema({"type": "string"})]


class _Strict(BaseModel):
    # No other fields; the text below a field says what it is, here and in the schema.
    model_config = {"extra": "forbid", "frozen": True, "use_attribute_docstrings": True}


class Claim(_Strict):
    """One claim as declared."""

    id: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*(\.[A-Za-z0-9_]+)+$")]
    """`<prefix>.<row>`; findings of ours are `<prefix>.beyond.<row>`."""
    kind: Kind
    claim: Text
    """One sentence in our words; may contain `$math$`."""
    expected: Verdict
    """The verdict that is expected."""
    values: dict[Name, Text] = Field(min_length=1)
    """For each measurement that the rules look at: what it is, and over what its interval is taken."""
    holds: RuleText
    """When the claim holds."""
    refuted: RuleText
    """When the measurements are evidence against it. What neither holds nor is refuted is undecided."""
    in_part: RuleText | None = None
    """When it holds on a part of what it says; looked at only if it does not hold."""
    why: Text = ""
    """The evidence, for a verdict other than held; of an undecided claim, what it would take."""
    defence: Text = ""
    """For the paper: the most generous reading of its text, and what still fails under it."""
    proof: Text = ""
    """What is wrong with the printed proof of a statement that holds."""
    where: Text = ""
    """Where the paper says it; left out for a finding of ours."""
    paper: Text = ""
    """What the paper states, a number or at most eight of its words in quotes; left out where it states neither."""
    needs: tuple[Text, ...] = ()
    """Data sets without which it is honestly not run."""
    shows: Text = ""
    """What stands beside the verdict, in a few words with at least one value in braces: `{ridge} more`.

    By default the first value with its name.
    """
    exact: bool = False
    """Whether algebra or construction makes it true: its check guards texts and code, and is no evidence on models."""

    @model_validator(mode="after")
    def _check(self) -> "Claim":
        values, cited = self.values.keys(), self.cited
        compared = {name for rule in self.rules.values() for name in rule.names}
        shown = set(_BRACED_VALUE.findall(self.shows))
        if self.kind != "ours" and ".beyond." in self.id:
            raise ValueError(f"`kind` must be ours, as the id says; got {self.kind!r}")
        if self.kind != "ours" and not self.where:
            raise ValueError(f"`where` is required, for the kind is {self.kind!r}")
        if self.expected not in (HELD, NOT_RUN) and not self.why:
            raise ValueError(f"`why` is required, for the expected verdict is {self.expected!r}")
        if self.expected == IN_PART and not self.in_part:
            raise ValueError(f"`in_part` is required, for the expected verdict is {IN_PART!r}")
        if self.shows and not shown:
            raise ValueError(f"`shows` must have one of {', '.join(values)} in braces; got {self.shows!r}")
        for whose, names in (("a rule", compared), ("`why` or `defence`", cited), ("`shows`", shown)):
            if unknown := sorted(names - values):
                raise ValueError(f"{whose} names {', '.join(unknown)}; `values` declares {', '.join(values)}")
        if unused := sorted(values - compared - cited):
            raise ValueError(f"no rule looks at {', '.join(unused)}")
        return self

    @property
    def cited(self) -> set[str]:
        """The values that stand in `why` or `defence`."""
        return set(_BRACED_VALUE.findall(self.why + self.defence))

    @property
    def group(self) -> str:
        """Whose it is, one of `GROUPS`."""
        return GROUPS[{"ours": 1, "erratum": 2}.get(self.kind, 0)]

    @property
    def main_value_name(self) -> str:
        """The name of the first value that stands beside the verdict."""
        return next(iter([*_BRACED_VALUE.findall(self.shows), *self.values]))

    def summary(self, values: Mapping[str, Measurement]) -> str:
        """What stands beside the verdict: `shows` with the measurements, in few words."""
        name = self.main_value_name
        text = self.shows or f"{name.replace('_', ' ')} {{{name}}}"
        return _BRACED_VALUE.sub(lambda braced: measurements.describe_briefly(values[braced[1]]), text)

    @property
    def rules(self) -> dict[str, Rule]:
        """The rules that the claim has, by the word for what they find."""
        found = {"held": self.holds, "in part": self.in_part, "refuted": self.refuted}
        return {word: rule for word, rule in found.items() if rule}

    @property
    def rule(self) -> str:
        """All rules as they are declared: `held if x.low > 0; refuted if x.high < 0`."""
        return "; ".join(f"{word} if {rule.text}" for word, rule in self.rules.items())

    @property
    def rule_digest(self) -> str:
        """A digest of the rules, the expected verdict and the descriptions of the values, and of nothing else."""
        rules = [(word, rule.text) for word, rule in self.rules.items()]
        content = (self.id, self.expected, rules, [*self.values.items()])
        return hashlib.sha256(repr(content).encode()).hexdigest()[:DIGEST_DIGITS]

    def verdict(self, values: Mapping[str, Measurement]) -> str:
        """The verdict of the rules; a `ValueError` if one does not fit the measurements, or if they contradict."""
        holds, refuted = self.holds(values), self.refuted(values)
        in_part = self.in_part is not None and self.in_part(values)
        if holds and refuted:
            raise ValueError("the rules contradict each other: it holds and is refuted.")
        return HELD if holds else IN_PART if in_part else DID_NOT_HOLD if refuted else UNDECIDED

    def unused_thresholds(self, values: Mapping[str, Measurement]) -> tuple[float, ...]:
        """Thresholds that do not affect the verdict.

        Of an undecided claim all thresholds affect it, and none is returned, if moving one of them would decide it.
        """
        verdict = self.verdict(values)
        rules = [self.rules[DECIDING_RULE[verdict]]] if verdict in DECIDING_RULE else [*self.rules.values()]
        thresholds = [threshold for rule in rules for threshold in rule.thresholds(values)]
        if verdict == UNDECIDED and any(decides for _, decides in thresholds):
            return ()
        return tuple(number for number, decides in thresholds if not decides)

    def reason(self, verdict: str, values: Mapping[str, Measurement]) -> str:
        """Why, beside the verdict: that another was expected, the slip in the proof, or `why` with its measurements."""
        if verdict != self.expected:
            return f"Not expected: {self.expected} was."
        if verdict == HELD and self.proof:
            return f"As stated; the printed proof: {self.proof}"
        return self._with_values(self.why, values)

    def argued(self, values: Mapping[str, Measurement]) -> str:
        """`defence` with its measurements."""
        return self._with_values(self.defence, values)

    @staticmethod
    def _with_values(text: str, values: Mapping[str, Measurement]) -> str:
        return _BRACED_VALUE.sub(lambda braced: measurements.describe(values[braced[1]]), text)


class Declarations(_Strict):
    """The claims file of one chapter."""

    chapter: str
    """The name of the file."""
    prefix: Name
    """What the id of each claim begins with."""
    title: Text
    paper: Text
    """Key of the paper in the references, or `ours`."""
    data: tuple[Text, ...] = ()
    """Data sets that the chapter reads."""
    minutes: int = Field(default=1, ge=1)
    """About how long the chapter takes one core, at the profile ci: the longest begin first."""
    claims: tuple[Claim, ...] = Field(min_length=1)
    published: dict[str, dict[str, tuple[FiniteFloat, ...]]] = {}
    """The paper's curves: for each figure, columns of numbers of one length."""

    @model_validator(mode="after")
    def _check(self) -> "Declarations":
        for claim in self.claims:
            if not claim.id.startswith(f"{self.prefix}."):
                raise ValueError(f"claim {claim.id}: `id` must begin with {self.prefix}, the prefix of the file")
            if missing := sorted(set(claim.needs) - set(self.data)):
                raise ValueError(f"claim {claim.id}: `needs` names {', '.join(missing)}, which `data` does not")
        ids = [claim.id for claim in self.claims]
        if repeated := sorted({name for name in ids if ids.count(name) > 1}):
            raise ValueError(f"declared twice: {', '.join(repeated)}")
        for figure, columns in self.published.items():
            if len({len(column) for column in columns.values()}) != 1:
                raise ValueError(f"`published.{figure}` must be columns of one length")
        return self

    @cached_property
    def by_id(self) -> Mapping[str, Claim]:
        return {claim.id: claim for claim in self.claims}

    def groups(self) -> dict[str, list[Claim]]:
        """The claims by whose they are: the paper's, ours, errors in the text."""
        found: dict[str, list[Claim]] = {group: [] for group in GROUPS}
        for claim in self.claims:
            found[claim.group].append(claim)
        return {group: members for group, members in found.items() if members}


def load(path: Path) -> Declarations:
    """Read and check a claims file; a `ValueError` names the file, the claim, the field and the rule it breaks."""
    return _load(path, path.read_bytes())


@lru_cache(maxsize=32)  # a build asks for each file some nine times
def _load(path: Path, content: bytes) -> Declarations:
    written = _parse(path, content)
    try:
        declared = Declarations.model_validate(written)
    except ValidationError as error:
        raise _fault(path, _first_error(error, written)) from error
    if declared.chapter != path.stem:
        raise _fault(path, f"`chapter` must be the name of the file, {path.stem!r}; got {declared.chapter!r}.")
    return declared


def schema() -> str:
    """The JSON schema of a claims file, as `book/claims/schema.json` keeps it for editors."""
    return json.dumps(Declarations.model_json_schema(), indent=2) + "\n"


def read_yaml(path: Path) -> Any:
    """The mappings, lists and texts of a YAML file, each value as it is written; a `ValueError` names the file."""
    return _parse(path, path.read_bytes())


def _parse(path: Path, content: bytes) -> Any:
    try:
        return yaml.load(content.decode("utf-8"), Loader=_StrictLoader)
    except (yaml.YAMLError, ValueError) as error:
        raise _fault(path, str(error)) from error


class _StrictLoader(yaml.BaseLoader):
    """A YAML reader that keeps every value as it is written, and refuses a repeated key instead of dropping one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        found = super().construct_mapping(node, deep)
        if len(found) < len(node.value):
            names = [self.construct_object(key, deep=True) for key, _ in node.value]
            repeated = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"the key {repeated!r} stands twice in one entry (line {node.start_mark.line + 1}).")
        return found


def _first_error(error: ValidationError, written: Any) -> str:
    """The first thing wrong with what was written: its place, the rule and the value."""
    first = error.errors(include_url=False)[0]
    place, whose = list(first["loc"]), ""
    if place[:1] == ["claims"] and len(place) > 1:
        entry = written["claims"][place[1]]
        whose = f"claim {entry['id']}: " if isinstance(entry, dict) and "id" in entry else "a claim without id: "
        place = place[2:]
    field = f"`{'.'.join(map(str, place))}`: " if place else ""
    rule = first["msg"].removeprefix("Value error, ").rstrip(".")
    value = "" if first["type"] in ("missing", "value_error") else f"; got {arguments.shown(first['input'])}"
    return f"{whose}{field}{rule}{value}."


def _fault(path: Path, message: str) -> ValueError:
    return ValueError(f"{path.name}: {' '.join(message.split())}")
