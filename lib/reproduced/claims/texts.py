"""Words, tables and signs of claims and verdicts, as Markdown that is safe whatever is in it."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reproduced.claims import measurements
from reproduced.claims.declarations import DID_NOT_HOLD, HELD, IN_PART, NOT_RUN, UNDECIDED, Claim

EARLIER_RULE = " (by an earlier rule)"  # of a verdict that is kept
NOT_JUDGED = "not judged"  # the only verdict of the profile `smoke`
OURS = "our finding"  # stands beside the verdict of what no paper claims
SIGNS = {HELD: "✓", IN_PART: "◐", DID_NOT_HOLD: "✗", UNDECIDED: "?", NOT_RUN: "–", NOT_JUDGED: "·"}
_OF_ERRATA = {HELD: "confirmed", IN_PART: "confirmed in part", DID_NOT_HOLD: "not confirmed"}
_SPANS = re.compile(r"((?<!\\)\$[^$]+\$|(?<!\\)`[^`]+`)")  # mathematics and code
# What at the beginning of a line makes it a heading, a quotation, a comment, an item of a list or a fence.
_BLOCK = re.compile(r"^([0-9]*)(?=[#>%]|[-+*.)](?: |$)|`{3}|~{3}|:{3})")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_PAIRS = re.compile(r"\{(?=\{)|\}(?=`)|!(?=\[)")  # of a template {{…}}, of a role {…}`…` and of an image ![…](…)


@dataclass(frozen=True)
class Table:
    """A table, or several with their headings, as Markdown that a notebook shows as such.

    `stand_in` names the data shown where those that the text speaks of are absent, as in `figures.show`.
    """

    markdown: str
    stand_in: str = ""

    def _repr_markdown_(self) -> str:
        return f"*{self.stand_in} (absent)*\n\n" * bool(self.stand_in) + self.markdown

    __repr__ = _repr_markdown_


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, drop_empty: bool = False) -> str:
    """A Markdown table of texts, whatever is in them; with `drop_empty` without columns that are empty in every row."""
    rows = list(rows)
    kept = [at for at in range(len(heads)) if not drop_empty or any(row[at] for row in rows)]
    lines = [[heads[at] for at in kept], ["---"] * len(kept), *([escape_cell(row[at]) for at in kept] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def escape_cell(text: str | float) -> str:
    """`text` as a cell of a table: as `escape_text` has it, and no pipe in it ends the cell."""
    return escape_text(text).replace("|", "\\|")


def escape_text(text: str | float) -> str:
    """`text` on one line of a page: words, links, mathematics and code, never a tag, picture, template, role or block.

    Where `<`, `{`, `}` or `!` would begin one of these and cannot be escaped, a blank is inserted after it.
    """
    pieces = _SPANS.split(" ".join(str(text).split()))
    safe = (_TAG.sub("< ", piece) if number % 2 else piece.replace("<", "&lt;") for number, piece in enumerate(pieces))
    return _BLOCK.sub(r"\1\\", _PAIRS.sub(r"\g<0> ", "".join(safe)))


def verdict_words(verdict: str, kind: str = "") -> str:
    """A verdict as readers see it: that of an erratum, which is a charge and no claim of the paper, is "confirmed"."""
    return _OF_ERRATA.get(verdict, verdict) if kind == "erratum" else verdict


def verdict_text(verdict: str, kind: str = "") -> str:
    """Sign and words: `✓ held`, of an erratum `✓ confirmed`."""
    return f"{SIGNS[verdict]} {verdict_words(verdict, kind)}"


def rule_text(claim: Claim) -> str:
    """How a claim is judged: its rules, and what each value in them is."""
    values = "; ".join(f"`{name}`: {what}" for name, what in claim.values.items())
    return f"{rules_text(claim)}. {values}"


def rules_text(claim: Claim) -> str:
    """When a claim is held, held in part and refuted."""
    return "; ".join(
        f"{verdict_words(word, claim.kind)} if `{' '.join(rule.text.split())}`" for word, rule in claim.rules.items()
    )


def measured_text(judged: Mapping[str, Any], name: str) -> str:
    """The value of a judgement with this name, else its first, with its interval; "" if nothing was measured."""
    found = _measured(judged)
    return found.get(name) or next(iter(found.values()), "")


def measurements_text(judged: Mapping[str, Any]) -> str:
    """All that was measured, by name; "" if nothing was."""
    return "; ".join(f"{name.replace('_', ' ')} {text}" for name, text in _measured(judged).items())


def _measured(judged: Mapping[str, Any]) -> dict[str, str]:
    values = judged.get("values") or ()
    return {one["name"]: measurements.describe(measurements.from_json(one["measured"])) for one in values}


def provenance(run: Mapping[str, Any]) -> str:
    """Where the numbers of a run, as it is kept in JSON, come from, in one line."""
    commit = f"commit {(run['commit'] or 'unknown')[:10]}" + " with local changes" * bool(run["dirty"])
    return f"profile {run['profile']}, seed {run['seed']}, {machine_text(run)}, {commit}, {run['date'][:10]}"


def machine_text(run: Mapping[str, Any]) -> str:
    """What a run was computed by: the GPU or the cores, and the kind of processor, on which last digits depend."""
    device, processor = run.get("device_name") or run["device"], run.get("processor")
    return f"{device} ({processor})" if processor else device


def seconds_text(seconds: float) -> str:
    """`148 ns`, `3.45 ms`, `9.14 d`: three digits, in the largest unit of which there is at least one."""
    units = {"d": 86400.0, "h": 3600.0, "min": 60.0, "s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}
    name = next((name for name, size in units.items() if seconds >= size), "ns")
    return f"{seconds / units[name]:.3g} {name}"
