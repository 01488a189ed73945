"""Chips: a verdict as Markdown for a page, seen as one line and opened on a click, and the names of its places.

The directive that makes a fold of it is in `folds`. Everything here is a function from an entry of a ledger to text.
"""

import re
from collections.abc import Mapping
from typing import Any

from reproduced.claims.texts import SIGNS, escape_text, measured_text

EXACT = "exact"  # the mark of a claim that is true by algebra or construction, and the term of the glossary


def slug(text: str) -> str:
    """A claim's id or a verdict as part of an address or a class: `mn.fig2b` → `mn-fig2b`."""
    return re.sub(r"[. ]", "-", text)


def chip_anchor(id: str) -> str:
    """The name of a claim's place on its chapter's page."""
    return f"claim-{slug(id)}"


def row_anchor(id: str) -> str:
    """The name of a claim's place on the scoreboard."""
    return f"row-{slug(id)}"


def chip(claim: Mapping[str, Any], code: str = "", full: Mapping[str, Any] | None = None, seeds: str = "") -> str:
    """A verdict as Markdown: sign, claim and value on one line, and below it in a fold how it was judged.

    Args:
        claim: an entry of a ledger.
        code: the statement that judged it.
        full: its entry in the record of a full-scale run, where there is one.
        seeds: what its replications say, in words.
    """
    beside = [f"ours: {escape_text(claim['shows'])}"] if claim["shows"] else []
    if full is not None and full["verdict"] != claim["verdict"]:  # what agrees has its place in the fold
        beside += [f"at full scale: {SIGNS[full['verdict']]} {full['verdict']}"]
    beside += [f"the paper {escape_text(claim['paper'])}"] if claim["paper"] else []
    told = f" *{'; '.join(beside)}*" if beside else ""
    mark = f", {EXACT}" * claim["exact"]
    lines = [f"**{SIGNS[claim['verdict']]} {claim['verdict']}{mark}** · {escape_text(claim['claim'])}{told}"]
    lines += [f"**Why.** {escape_text(claim['reason'])}"] if claim["reason"] else []
    lines += [f"**Where.** {escape_text(claim['where'])}"] if claim["where"] else []
    lines += [f"**Measured.** {_measured(claim)}"] if claim["values"] else []
    if full is not None and full.get("values"):
        lines += [f"**At full scale.** {SIGNS[full['verdict']]} {full['verdict']}: {_measured(full)}"]
    lines += [f"**At other seeds.** {seeds}"] if seeds else []
    lines += [f"**Rule.** {escape_text(claim['how'])}"]
    lines += [f"```python\n{code}\n```"] if code else []
    classes = slug(claim["verdict"]) + f" {EXACT}" * claim["exact"]
    return f"::::::{{claim}} {claim['id']}\n:class: {classes}\n\n" + "\n\n".join(lines) + "\n::::::\n"


def _measured(claim: Mapping[str, Any]) -> str:
    each = (f"*{one['name'].replace('_', ' ')}* {measured_text({'values': [one]})}" for one in claim["values"])
    return escape_text("; ".join(each))
