"""The ledger: what a paper claims is declared in a file, measured by a chapter, and judged by a rule that could fail.

The chapter opens a `Ledger`, calls `judge` once for each declared claim whose data are here and shows the two tables.
Each judgement is an output of the notebook whose *metadata* holds the record, so that a record cannot be parted from
the run it came from. Records are plain JSON: an infinite number is the text "inf" or "-inf", and NaN is refused.
Nothing here computes a result or writes a file.
"""

import json
import math
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from leakage.content_keys import find_root
from leakage.data import fetch, registry
from leakage.declarations import DID_NOT_HOLD, HELD, IN_PART, NOT_RUN, Claim, load
from leakage.metrics.estimates import Estimate
from leakage.runtime import Run

NOT_JUDGED = "not judged"  # the only verdict of the profile `smoke`
SIGNS = {HELD: "✓", IN_PART: "◐", DID_NOT_HOLD: "✗", NOT_RUN: "–", NOT_JUDGED: "·"}
RECORD = "claim"  # key of a record in the metadata of an output
_GLUED = "application/papermill.record/"  # where myst-nb looks for glued outputs
_SPANS = re.compile(r"((?<!\\)\$[^$]+\$|(?<!\\)`[^`]+`)")  # mathematics and code
# What at the beginning of a line makes it a heading, a quotation, a comment, an item of a list or a fence.
_BLOCK = re.compile(r"^([0-9]*)(?=[#>%]|[-+*.)](?: |$)|`{3}|~{3}|:{3})")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_PAIRS = re.compile(r"\{(?=\{)|\}(?=`)|!(?=\[)")  # of a template {{…}}, of a role {…}`…` and of an image ![…](…)


class Ledger:
    """The judgements of one run of a chapter, against the chapter's declarations.

    Args:
        chapter: the chapter's name, which is the stem of its claims file.
        run: profile, seed and device of this run.
        declarations: the claims file; found from the repository root by default.
        records: the record of a full-scale run to show beside this one; `book/records/<chapter>.json` by default.
    """

    def __init__(
        self, chapter: str, run: Run, *, declarations: Path | str | None = None, records: Path | str | None = None
    ) -> None:
        book = None if declarations else find_root() / "book"
        self._declared = load(Path(declarations) if declarations else Path(book or "", "claims", f"{chapter}.yml"))
        beside = Path(records) if records else book and book / "records" / f"{chapter}.json"
        self._full_scale = json.loads(beside.read_text("utf-8")) if beside and beside.is_file() else None
        self._run = run
        self._records: dict[str, dict[str, Any]] = {}
        self._last = time.perf_counter()

    def judge(
        self,
        id: str,
        *,
        measured: Estimate | float,
        expected: str,
        passes: bool,
        in_part: bool = False,
        reason: str = "",
    ) -> None:
        """Judge a claim: `held` if `passes`, else `held in part` if `in_part`, else `did not hold`.

        In profile `smoke` the verdict is "not judged", and in a profile below the claim's own it is "not run"; the rule
        is evaluated all the same, so that a crash shows. A claim whose data are absent is "not run", too, whether the
        chapter calls this or not: what was measured on other data says nothing about it, and is not kept.

        Args:
            id: as declared.
            measured: what was measured; a plain number has no interval.
            expected: what the measurement should satisfy, with the thresholds: "|ours − published| < 0.01 at all p".
            passes: whether it does; a Python `bool`.
            in_part: whether it does on part of the claim's range; looked at only if `passes` is false.
            reason: the evidence. Required where the declared verdict is not "held"; a claim that unexpectedly fails
                and has none says so.

        Raises:
            ValueError: naming the claim, the argument and the rule it breaks.
        """
        claim = self._open(id)
        for name, value in (("passes", passes), ("in_part", in_part)):
            if type(value) is not bool:
                raise ValueError(f"{id}: `{name}` must be a bool, got {type(value).__name__}; write bool(…).")
        if not expected.strip():
            raise ValueError(f"{id}: `expected` must say what the measurement should satisfy.")
        if claim.expected in (IN_PART, DID_NOT_HOLD) and not reason.strip():
            raise ValueError(f"{id}: `reason` is required, for the declared verdict is {claim.expected!r}.")
        verdict = HELD if passes else IN_PART if in_part else DID_NOT_HOLD
        if verdict != HELD and not reason.strip():
            reason = "Not expected: the measurement does not satisfy the rule."
        if self._run.profile == "smoke":
            verdict, reason = NOT_JUDGED, ""
        elif not claim.judged_in(self._run.profile):
            verdict, reason = NOT_RUN, f"This needs the profile {claim.profile}."
        elif why := absence(claim):
            self._keep(claim, NOT_RUN, why, rule="", **_NOTHING)
            return
        self._keep(claim, verdict, reason, rule=expected, **_numbers(id, measured))

    def published(self, figure: str) -> Mapping[str, tuple[float, ...]]:
        """The paper's own curve of a figure, as columns of numbers.

        Raises:
            ValueError: if the claims file has no such figure; the message lists those it has.
        """
        known = self._declared.published
        if figure not in known:
            raise ValueError(f"`figure` must be one of {', '.join(known) or 'none'}; got {figure!r}.")
        return known[figure]

    def declared(self) -> "Table":
        """The table of section 3: what the paper claims, and how each claim will be judged."""
        rows = [(claim.id, claim.claim, claim.where, claim.rule) for claim in self._declared.claims]
        text = table(("id", "claim", "where", "how we judge it"), rows) if rows else ""
        if self._declared.beyond:
            ours = [(claim.id, claim.claim, claim.rule) for claim in self._declared.beyond]
            text += "\n**Ours, not in the paper**\n\n" + table(("id", "finding", "how we judge it"), ours)
        return Table(text)

    def verdicts(self) -> "Table":
        """The table of section 8: the paper's value, ours, the verdict and the reasons; beside a full-scale record."""
        old = {record["id"]: record for record in (self._full_scale or {}).get("claims", ())}
        heads = ["id", "the paper", "ours", "verdict", "why"] + ["at full scale"] * bool(self._full_scale)
        rows = []
        for claim in self._declared.by_id.values():
            unjudged = {"verdict": NOT_RUN, "reason": absence(claim) or "Not judged so far."}
            record = self._records.get(claim.id, unjudged)
            row = [claim.id, claim.paper, finding_text(record), verdict_text(record["verdict"]), record["reason"]]
            full = old.get(claim.id)
            beside = f"{measured_text(full)} {verdict_text(full['verdict'])}".strip() if full else ""
            rows.append([*row, beside] if self._full_scale else row)
        return Table(
            table(heads, rows)
            + (f"\nFull scale: {in_text(provenance(self._full_scale))}.\n" if self._full_scale else "")
        )

    def _open(self, id: str) -> Claim:
        known = self._declared.by_id
        if id not in known:
            near = get_close_matches(str(id), known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; declared are {', '.join(known)}."
            raise ValueError(f"`id` {id!r} is not declared in claims/{self._declared.chapter}.yml{hint}")
        if id in self._records:
            raise ValueError(f"{id} is judged already; to judge again, run from the cell that opens the ledger.")
        return known[id]

    def _keep(self, claim: Claim, verdict: str, reason: str, **values: Any) -> None:
        now = time.perf_counter()
        seconds, self._last = round(now - self._last, 3), now
        run = {"profile": self._run.profile, "seed": self._run.seed, "device": str(self._run.device)}
        record = {"id": claim.id, "verdict": verdict, **values, "reason": " ".join(reason.split()), "seconds": seconds}
        record = self._records[claim.id] = record | run
        line = f"{claim.id} {verdict_text(verdict)}"
        found = measured_text(record)
        rule = f"; rule: {values['rule']}" * bool(values["rule"])
        shown = f"**{claim.id}** {verdict_text(verdict)}" + f": {found}" * bool(found) + in_cell(rule)
        _display({"text/plain": f"{line} {found}{rule}", "text/markdown": shown}, {RECORD: record})


def absence(claim: Claim, absent: Callable[[str], bool] | None = None) -> str:
    """Why the claim cannot be judged here: the data sets it needs that are absent; "" if none is.

    Args:
        claim: as declared.
        absent: whether the data set of a name is absent; by default as this machine has it now.
    """
    gone = absent or (lambda name: not fetch.available(name))
    missing = [name for name in claim.needs if gone(name)]
    titles = " and ".join(registry.dataset(name).title for name in missing)
    return f"It needs {titles}, which `make data` fetches." if missing else ""


_NOTHING = dict.fromkeys(("measured", "low", "high", "n"))


def _numbers(id: str, measured: Any) -> dict[str, Any]:
    """The measured value, its interval and its size as JSON can hold them."""
    if isinstance(measured, Estimate):
        values, n = (measured.estimate, measured.low, measured.high), measured.n
    else:
        number = measured.item() if hasattr(measured, "item") else measured
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise ValueError(f"{id}: `measured` must be an Estimate or a number; got {measured!r}.")
        values, n = (number, None, None), None
    if any(value is not None and math.isnan(value) for value in values):
        raise ValueError(f"{id}: `measured` is NaN, so nothing was measured; got {measured!r}.")
    stored = [value if value is None or math.isfinite(value) else f"{value}" for value in values]
    return dict(zip(("measured", "low", "high"), stored, strict=True)) | {"n": n}


def glue(name: str, text: str, *, needs: str = "") -> None:
    """Give `text` to the prose of the page, which takes it with the role `{glue:text}`; shows nothing here.

    A number measured on data set `needs` reads "(not run)" where that set is absent: what a stand-in gives is no news
    of it.
    """
    if needs and not fetch.available(needs):
        text = "(not run)"
    if not isinstance(text, str):
        raise ValueError(f"`text` of {name!r} must be a formatted string, got {type(text).__name__}.")
    _display({f"{_GLUED}text/plain": repr(text)}, {"scrapbook": {"name": name, "mime_prefix": _GLUED}})


def _display(data: dict[str, str], metadata: dict[str, Any]) -> None:
    from IPython.display import display

    display(data, raw=True, metadata=metadata)


# ── words and tables ────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Table:
    """A piece of Markdown that a notebook shows as such.

    `stand_in` names the data shown where those that the text speaks of are absent, as in `figures.show`.
    """

    markdown: str
    stand_in: str = ""

    def _repr_markdown_(self) -> str:
        return f"*{self.stand_in} (absent)*\n\n" * bool(self.stand_in) + self.markdown

    __repr__ = _repr_markdown_


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table of texts, whatever is in them."""
    lines = [heads, ["---"] * len(heads), *([in_cell(cell) for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def in_cell(text: str | float) -> str:
    """`text` as a cell of a table: as `in_text` has it, and no pipe in it ends the cell."""
    return in_text(text).replace("|", "\\|")


def in_text(text: str | float) -> str:
    """`text` on one line of a page: words, links, mathematics and code, never a tag, picture, template, role or block.

    Whatever a renderer takes for mathematics or code, no `<` is followed by what would make it a tag, no brace by
    what would make it a template or a role, and no `!` by what would make it a picture: where there is no escape, a
    blank parts them.
    """
    pieces = _SPANS.split(" ".join(str(text).split()))
    safe = (_TAG.sub("< ", piece) if number % 2 else piece.replace("<", "&lt;") for number, piece in enumerate(pieces))
    return _BLOCK.sub(r"\1\\", _PAIRS.sub(r"\g<0> ", "".join(safe)))


def verdict_text(verdict: str) -> str:
    """Sign and words: `✓ held`."""
    return f"{SIGNS[verdict]} {verdict}"


def measured_text(record: Mapping[str, Any]) -> str:
    """The measured value of a record with its interval, to the digits the interval supports; "" if there is none."""
    if record.get("measured") is None:
        return ""
    value, low, high = (None if (v := record.get(k)) is None else float(v) for k in ("measured", "low", "high"))
    if value is None or low is None or high is None:
        return f"{record['measured']:.4g}" if isinstance(record["measured"], float) else f"{record['measured']}"
    width = high - low
    if not (0 < width < math.inf and 1e-5 < max(abs(low), abs(high)) < 1e7):
        return f"{value:.4g} [{low:.4g}, {high:.4g}]"
    digits = max(0, 1 - math.floor(math.log10(width)))
    return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def finding_text(record: Mapping[str, Any]) -> str:
    """The measured value with the rule that says what it is a value of; "" if nothing was measured."""
    value, rule = measured_text(record), record.get("rule")
    return f"{value} (rule: {rule})" if value and rule else value


def provenance(ledger: Mapping[str, Any]) -> str:
    """Where a collected ledger comes from, in one line."""
    commit = f"commit {(ledger['commit'] or 'unknown')[:10]}" + " with local changes" * bool(ledger["dirty"])
    unverified = ", ".join(ledger.get("unverified") or ())
    data = f", unverified data: {unverified}" * bool(unverified)
    return (
        f"profile {ledger['profile']}, seed {ledger['seed']}, {machine(ledger)}, {commit}, {ledger['date'][:10]}{data}"
    )


def machine(ledger: Mapping[str, Any]) -> str:
    """What computed a ledger: the GPU or the cores, and the kind of processor, on which last digits depend."""
    device, processor = ledger.get("device_name") or ledger["device"], ledger.get("processor")
    return f"{device} ({processor})" if processor else device
