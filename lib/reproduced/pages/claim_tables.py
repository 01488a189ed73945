"""Tables of claims: the scoreboard, the same rows for a spreadsheet, and the page *Where the papers are wrong*.

The tables stand whole without a script; `_static/tables.js` sorts, searches and filters them. Everything here is a
function from judgements to text.
"""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from leakage.metrics.estimates import Estimate
from reproduced.claims import measurements
from reproduced.claims.declarations import DID_NOT_HOLD, HELD, IN_PART, NOT_RUN, UNDECIDED
from reproduced.claims.measurements import Count, Exact, Measurement
from reproduced.pages.findings import Judgement
from reproduced.pages.jinja_environment import fill_template

_REASONED = (DID_NOT_HOLD, IN_PART, UNDECIDED, NOT_RUN)  # verdicts whose reason stands in the row itself
_HEADS = {"verdict": "verdict", "claim": "claim", "paper": "the paper", "measured": "measured"}
_HEADS |= {"again": "seeds", "full": "at full scale"}
_SHOWN = 2  # values in a row; the others stand in its fold


def scoreboard(
    judgements: Sequence[Judgement],
    absent: Iterable[str] = (),
    lacking: str = "",
    withdrawn: tuple[int, int] = (0, 0),
) -> str:
    """The table of all claims, after the sentence on `lacking` data, their sums and the titles of `absent` chapters.

    Of claims declared no more there were so many verdicts at other seeds, and so many not expected: `withdrawn`.
    """
    ours = [one for one in judgements if one.claim.kind == "ours"]
    held = [one for one in ours if one.verdict == HELD]
    repeated = [one.replication for one in held if one.replication and one.replication.verdicts]
    again = [one.replication for one in judgements if one.replication]
    replaced = [one.replication for one in ours if one.replication]
    empty = {"again": not again, "full": not any(one.full_scale for one in judgements)}
    return fill_template(
        "scoreboard.md",
        judgements=judgements,
        absent=absent,
        lacking=lacking,
        findings=ours,
        held=held,
        repeated=repeated,
        same=sum(one.as_expected == one.verdicts.total() for one in repeated),
        fewest=min((one.verdicts.total() for one in repeated), default=0),
        replaced=sum(one.earlier.total() for one in replaced),
        replaced_others=sum(one.earlier.total() - one.earlier[one.expected] for one in replaced),
        again=again,
        runs=sum(one.verdicts.total() for one in again),
        earlier_runs=sum(one.earlier.total() for one in again),
        earlier_same=sum(one.earlier[one.expected] for one in again),
        earlier_flips=sum(one.earlier_flips for one in again),
        steady=sum(one.verdicts.total() for one in again if one.is_steady),
        withdrawn=withdrawn,
        heads={key: head for key, head in _HEADS.items() if not empty.get(key)},
        full_scale_value=_full_scale_value,
        shown_first=_shown_first,
        split_reason=_split_reason,
        REASONED=_REASONED,
        SHOWN=_SHOWN,
        **full_scale_differences(judgements),
    )


def _split_reason(reason: str) -> tuple[str, str]:
    """A reason as its first sentence, which stands in the row, and the rest, which stands in the row's fold."""
    for end in re.finditer(r"(?<=\.)\s+(?=[A-Z\"$])", reason):
        if reason[: end.start()].count("$") % 2 == 0:  # in no formula
            return reason[: end.start()], reason[end.end() :]
    return reason, ""


def flips(found: Sequence[Mapping[str, Any]], judgements: Iterable[Judgement]) -> str:
    """The verdicts at other seeds that were not expected, with whether the claim is still declared so."""
    today = {one.claim.id: one.claim for one in judgements}
    return fill_template("flips.md", flips=found, today=today)


def full_scale_differences(judgements: Iterable[Judgement]) -> dict[str, Any]:
    """What `full_scale.html` needs: claims with a verdict here and one of other draws at full scale; which differ."""
    judged = [one for one in judgements if one.full_scale and one.is_judged]
    both = [one for one in judged if one.differs_at_full_scale or not one.repeats_full_scale]
    others = [one for one in both if one.differs_at_full_scale]
    earlier = sum(not one.full_scale.is_current for one in others if one.full_scale)
    return {
        "both": both,
        "others": others,
        "repeated_draws": len(judged) - len(both),
        "earlier": f", {earlier} of them by earlier rules" if earlier else "",
    }


def _shown_first(judgement: Judgement) -> list[tuple[str, Measurement]]:
    """What was measured, the value that stands beside the verdict first."""
    return sorted(judgement.values.items(), key=lambda item: item[0] != judgement.claim.main_value_name)


def _full_scale_value(judgement: Judgement) -> list[Measurement]:
    """The value at full scale that stands beside the verdict, else the first; none if nothing was measured."""
    values = judgement.full_scale.values if judgement.full_scale else {}
    return [values[name] for name in (judgement.claim.main_value_name, *values) if name in values][:1]


def scoreboard_csv(judgements: Iterable[Judgement]) -> str:
    """The rows of the scoreboard for a spreadsheet, in the same order."""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    heads = ("id", "chapter", "kind", "verdict", "claim", "where", "paper", "measured", "reason", "rule", "same")
    writer.writerow([*heads, "seeds", "same_earlier", "seeds_earlier", "needs", "seconds"])
    for one in judgements:
        claim, again = one.claim, one.replication
        seeds: list[int | str] = [""] * 4
        if again:
            seeds = [again.as_expected, again.verdicts.total(), again.earlier[claim.expected], again.earlier.total()]
        found = "; ".join(f"{name}: {measurements.describe(value)}" for name, value in one.values.items())
        row = [claim.id, one.chapter.name, claim.kind, one.told, claim.claim, claim.where, claim.paper, found]
        writer.writerow([*row, one.reason, claim.rule, *seeds, " ".join(claim.needs), one.seconds])
    return written.getvalue()


def wrong_papers(judgements: Iterable[Judgement]) -> str:
    """What was refuted, true statements with a slip in the proof, and errors in texts: three tables with evidence."""
    ordered = sorted(judgements, key=lambda one: one.chapter.label)
    refuted = [one for one in ordered if one.verdict == DID_NOT_HOLD and one.claim.kind not in ("ours", "erratum")]
    held = [one for one in ordered if one.verdict == HELD]
    proofs = [one for one in held if one.claim.proof]
    errors = [one for one in held if one.claim.kind == "erratum"]
    more = full_scale_differences(ordered) | {"certainty": _certainty}
    return fill_template("wrong_papers.md", refuted=refuted, proofs=proofs, errors=errors, **more)


def _certainty(judgement: Judgement) -> Iterator[str]:
    """By which kinds of measurement it was found, and how often it came again."""
    singles: list[Any] = []
    for value in judgement.values.values():
        singles += value if isinstance(value, list | tuple) else [value]
    if drawn := sorted({one.n for one in singles if isinstance(one, Estimate)}):
        yield f"Intervals over {' to '.join(f'{n:,}' for n in dict.fromkeys((drawn[0], drawn[-1])))} samples."
    if errors := [one.error for one in singles if isinstance(one, Exact)]:
        yield f"Computed, with an error of at most {max(errors):.2g}." if max(errors) else "Computed exactly."
    if totals := [one.of for one in singles if isinstance(one, Count)]:
        yield f"Counted among {max(totals):,}."
    if judgement.replication:
        yield f"The expected verdict at seeds that nobody chose: {judgement.replication.brief}."
