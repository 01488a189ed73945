"""The page "Where the papers are wrong": what was refuted, true statements with a slip in the proof, and misprints.

Three tables whose rows lead to the scoreboard; each says the evidence and how sure it is. Everything here is a function
from entries to text.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from leakage.metrics.intervals import Estimate
from reproduced.claims import measurements
from reproduced.claims.declarations import DID_NOT_HOLD, HELD
from reproduced.claims.measurements import Count, Exact
from reproduced.pages.entries import Entry
from reproduced.pages.inline import block, element, escape, link, rendered, table

SCOREBOARD = "scoreboard.html"
_HEADS = ("chapter", "statement", "evidence", "how sure")
_NONE = "None in this build.\n"


def page(entries: Sequence[Entry]) -> str:
    """The three tables, each below its heading."""
    refuted = [
        entry for entry in entries if entry.verdict == DID_NOT_HOLD and entry.claim.kind not in ("ours", "erratum")
    ]
    proofs = [entry for entry in entries if entry.verdict == HELD and entry.claim.proof]
    misprints = [entry for entry in entries if entry.verdict == HELD and entry.claim.kind == "erratum"]
    return "\n".join(
        [
            "## Statements that did not hold\n",
            "Each was refuted by a rule of its own, in the setting and on the data that the chapter describes. "
            "Of a theorem this is a counterexample; of a figure or an experiment it says that it did not come back "
            "here, not that the numbers in the paper are wrong.\n",
            _table(refuted),
            "## True statements whose printed proof slips\n",
            "The statement holds as far as it was tested; the step that is printed does not give it.\n",
            _table(proofs),
            "## Misprints\n",
            "Formulas and pseudocode that do not say what the text means, as printed in the copy that we read; "
            "another edition may have them right.\n",
            _table(misprints),
        ]
    )


def _table(entries: Iterable[Entry]) -> str:
    rows = [_row(entry) for entry in sorted(entries, key=lambda entry: entry.place.label)]
    if not rows:
        return _NONE
    heads = "".join(element("th", text, scope="col") for text in _HEADS)
    return block(element("div", table(heads, rows, class_="claims-table short table"), class_="claims-box"))


def _row(entry: Entry) -> str:
    claim = entry.claim
    row = link(escape(claim.id), f"{SCOREBOARD}#{entry.row}")
    statement = element("p", rendered(claim.claim), class_="claimed")
    statement += element("p", f"{rendered(claim.where)} {row}", class_="where")
    cells = [
        link(escape(entry.place.label), entry.page),
        statement,
        "".join(element("p", text) for text in _evidence(entry)),
        "".join(element("p", escape(text)) for text in _sureness(entry)),
    ]
    classes = ("chapter", "claim", "evidence", "sure")
    return element(
        "tr",
        "".join(
            element("td", cell, class_=name, data_label=head)
            for cell, name, head in zip(cells, classes, _HEADS, strict=True)
        ),
    )


def _evidence(entry: Entry) -> Iterator[str]:
    """The reason, and each value with what it is."""
    if reason := entry.claim.proof or entry.record["reason"]:
        yield rendered(reason)
    for name, value in entry.values.items():
        yield f"<b>{escape(measurements.describe(value))}</b> {rendered(entry.claim.values[name])}"


def _sureness(entry: Entry) -> Iterator[str]:
    """By which kinds of measurement it was found, and how often it came again."""
    singles: list[Any] = []
    for value in entry.values.values():
        singles += value if isinstance(value, list | tuple) else [value]
    if drawn := sorted({one.n for one in singles if isinstance(one, Estimate)}):
        yield f"Intervals over {' to '.join(f'{n:,}' for n in dict.fromkeys((drawn[0], drawn[-1])))} samples."
    if errors := [one.error for one in singles if isinstance(one, Exact)]:
        yield f"Computed, with an error of at most {max(errors):.2g}." if max(errors) else "Computed exactly."
    if totals := [one.of for one in singles if isinstance(one, Count)]:
        yield f"Counted among {max(totals):,}."
    if entry.again:
        yield f"The expected verdict at seeds that nobody chose: {entry.again.brief}."
