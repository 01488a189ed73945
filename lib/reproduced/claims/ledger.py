"""The ledger: what a paper claims is declared in a file with its rule, measured by a chapter, and judged by that rule.

The chapter opens a `Ledger`, calls `judge` once for each declared claim whose data are here and shows the two tables.
Each judgement is an output of the notebook and stands in its *metadata*, so that it cannot be parted from the run it
came from. Judgements are plain JSON. Nothing here computes a result or writes a file.
"""

import json
import os
import time
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from leakage.data import datasets
from reproduced import repository
from reproduced.claims import measurements, texts
from reproduced.claims.declarations import NOT_RUN, Claim, load
from reproduced.claims.measurements import Measurement
from reproduced.claims.texts import NOT_JUDGED, Table
from reproduced.repository import find_root
from reproduced.runtime import Run

JUDGEMENT_KEY = "claim"  # key of a judgement in the metadata of an output
_GLUED = "application/papermill.record/"  # where myst-nb looks for glued outputs


class Ledger:
    """The judgements of one run of a chapter, against the chapter's declarations.

    Args:
        chapter: the chapter's name, which is the stem of its claims file.
        run: profile, seed and device of this run.
        book: the folder with `claims/` and with `records/`, of runs at full scale; that of the repository by default.
    """

    def __init__(self, chapter: str, run: Run, *, book: Path | None = None) -> None:
        book = book or find_root() / "book"
        self._declared, kept = load(book / "claims" / f"{chapter}.yml"), book / "records" / f"{chapter}.json"
        self._full_scale = json.loads(kept.read_text("utf-8")) if kept.is_file() else {}
        self._run = run
        self._judged: dict[str, dict[str, Any]] = {}
        self._last = time.perf_counter()

    def judge(self, id: str, **measured: Measurement) -> None:
        """Judge a claim by its declared rules: `held`, else `held in part`, else `did not hold`, else `undecided`.

        In profile `smoke` the verdict is "not judged"; the rules are applied all the same, so that a crash shows. A
        claim whose data are absent is "not run", whether the chapter calls this or not: what was measured on other data
        says nothing about it, and is not kept.

        Args:
            id: as declared.
            measured: each of the declared `values`, by its name; a `ValueError` says which is none, or fits no rule.
        """
        claim = self._open(id)
        if measured.keys() != claim.values.keys():
            wanted = ", ".join(claim.values)
            raise ValueError(f"{id}: its values are {wanted}; got {', '.join(measured) or 'none'}.")
        try:
            values = {name: measurements.check(name, measured[name]) for name in claim.values}
            verdict = claim.verdict(values)
        except ValueError as error:
            raise ValueError(f"{id}: {error}") from error
        reason = claim.reason(verdict, values)
        if self._run.profile == "smoke":
            verdict, reason = NOT_JUDGED, ""
        elif why := missing_data_text(claim):
            self._keep(claim, NOT_RUN, why, rule="", values=[])
            return
        # A list, for a notebook keeps no order of keys, and tables show the values in that of their declaration.
        stored = [{"name": name, "measured": measurements.to_json(value)} for name, value in values.items()]
        self._keep(claim, verdict, reason, rule=claim.rule, values=stored)

    def published(self, figure: str) -> Mapping[str, tuple[float, ...]]:
        """The paper's own curve of a figure, as columns of numbers."""
        known = self._declared.published
        if figure not in known:
            raise ValueError(f"`figure` must be one of {', '.join(known) or 'none'}; got {figure!r}.")
        return known[figure]

    def recorded(self, id: str, name: str, place: int = 0) -> str:
        """A value of the record at full scale, with its interval; of several the one at `place`. A dash if none is."""
        kept = {judged["id"]: judged for judged in self._full_scale.get("claims", ())}
        values = {one["name"]: one["measured"] for one in kept.get(id, {}).get("values", ())}
        if name not in values:
            return "–"
        measured = measurements.from_json(values[name])
        return measurements.describe(measured[place] if isinstance(measured, list) else measured)

    def declared(self) -> Table:
        """What is claimed, and how each claim will be judged; a column that is empty in every row is left out."""
        heads, parts = ("id", "kind", "claim", "where", "how we judge it"), []
        for group, claims in self._declared.groups().items():
            rows = [(f"`{claim.id}`", claim.kind, claim.claim, claim.where, texts.rule_text(claim)) for claim in claims]
            parts.append(f"**{group}**\n\n{texts.table(heads, rows, drop_empty=True)}")
        return Table("\n".join(parts))

    def verdicts(self) -> Table:
        """Each claim with its verdict, the paper's value, what was measured, why, and what a full-scale record has."""
        kept = {judged["id"]: judged for judged in self._full_scale.get("claims", ())}
        rows = []
        for claim in self._declared.claims:
            unjudged = {"verdict": NOT_RUN, "reason": missing_data_text(claim) or "Not judged so far."}
            judged, full = self._judged.get(claim.id, unjudged), kept.get(claim.id)
            found = (texts.measurements_text(judged), judged["reason"], _full_scale_text(claim, full) if full else "")
            rows.append((f"`{claim.id}` {claim.claim}", _verdict_text(claim, judged["verdict"]), claim.paper, *found))
        heads = ("claim", "verdict", "the paper", "measured", "why", "at full scale")
        origin = f"\nFull scale: {texts.escape_text(texts.provenance(self._full_scale))}.\n" if self._full_scale else ""
        return Table(texts.table(heads, rows, drop_empty=True) + origin)

    def _open(self, id: str) -> Claim:
        known = self._declared.by_id
        if id not in known:
            near = get_close_matches(str(id), known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; declared are {', '.join(known)}."
            raise ValueError(f"`id` {id!r} is not declared in claims/{self._declared.chapter}.yml{hint}")
        if id in self._judged and repository.BUILD_VARIABLE in os.environ:  # elsewhere a section may run again
            raise ValueError(f"{id} is judged already.")
        return known[id]

    def _keep(self, claim: Claim, verdict: str, reason: str, **values: Any) -> None:
        now = time.perf_counter()
        seconds, self._last = round(now - self._last, 3), now
        judged = {"id": claim.id, "rule_digest": claim.rule_digest, "verdict": verdict, **values}
        judged |= {"reason": " ".join(reason.split()), "seconds": seconds}
        judged |= {"profile": self._run.profile, "seed": self._run.seed, "device": str(self._run.device)}
        self._judged[claim.id] = judged
        sign, found = _verdict_text(claim, verdict), texts.measurements_text(judged)
        plain, shown = f"{claim.id} {sign} ", f"**{claim.id}** {sign}"
        if found:
            plain += f"{found}; rule: {values['rule']}"
            shown += f": {found}; {texts.escape_cell(texts.rules_text(claim))}"
        _display({"text/plain": plain, "text/markdown": shown}, {JUDGEMENT_KEY: judged})


def _verdict_text(claim: Claim, verdict: str) -> str:
    """Sign and words of a verdict, and whether the claim is a finding of ours."""
    return texts.verdict_text(verdict, claim.kind) + f" ({texts.OURS})" * (claim.kind == "ours")


def _full_scale_text(claim: Claim, kept: Mapping[str, Any]) -> str:
    """What stands beside a verdict: value and verdict of the record at full scale."""
    earlier = texts.EARLIER_RULE * (kept.get("rule_digest") != claim.rule_digest)
    verdict = texts.verdict_text(kept["verdict"], claim.kind)
    return f"{texts.measured_text(kept, claim.main_value_name)} {verdict}{earlier}".strip()


def missing_data_text(claim: Claim, absent: Callable[[str], bool] | None = None) -> str:
    """Why the claim cannot be judged: the data sets it needs that are absent, by default from this machine; or ""."""
    gone = absent or (lambda name: not datasets.is_available(name))
    missing = [name for name in claim.needs if gone(name)]
    titles = " and ".join(datasets.DATASETS[name].title for name in missing)
    return f"It needs {titles}, which `make data` fetches." if missing else ""


def glue(name: str, text: str, *, needs: str = "") -> None:
    """Give `text` to the prose of the page, which takes it with the role `{glue:text}`; outside a build, print it.

    If data set `needs` is absent, the text is "(not run)": what a stand-in gives says nothing about it.
    """
    if needs and not datasets.is_available(needs):
        text = "(not run)"
    if not isinstance(text, str):
        raise ValueError(f"`text` of {name!r} must be a formatted string, got {type(text).__name__}.")
    if repository.BUILD_VARIABLE not in os.environ:
        print(f"{name}: {text}")
    _display({f"{_GLUED}text/plain": repr(text)}, {"scrapbook": {"name": name, "mime_prefix": _GLUED}})


def _display(data: dict[str, str], metadata: dict[str, Any]) -> None:
    from IPython.display import display

    display(data, raw=True, metadata=metadata)
