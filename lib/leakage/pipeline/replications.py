"""The kept replications of the book: what each claim's rules said at seeds that nobody chose.

`book/records/replication.json` has for each chapter the commit that the seeds were drawn from, a digest of the rules
and one entry for each seed. It says something of a chapter only as long as its rules stand.
"""

import hashlib
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from leakage.claims.declarations import DID_NOT_HOLD, HELD, IN_PART, Claim, Declarations
from leakage.pipeline.book import Book, Refusal, read_json

_WORDS = {HELD: "held", IN_PART: "in part", DID_NOT_HOLD: "refuted"}  # of the rule that gives a verdict


def path_of(book: Book) -> Path:
    """Where the replications are kept."""
    return book.folder / "records" / "replication.json"


def drawn(commit: str, number: int) -> list[int]:
    """The first seeds of a commit, each in 0 … 2³¹ − 1."""
    return [int(word) >> 1 for word in np.random.SeedSequence(int(commit, 16)).generate_state(number)]


def rules_digest(declared: Declarations) -> str:
    """A digest of the rules of a chapter and the verdicts expected of them, whatever the words around them are."""
    rules = [
        (claim.id, claim.expected, *((word, rule.text) for word, rule in claim.rules.items()))
        for claim in declared.claims
    ]
    return hashlib.sha256(repr(sorted(rules)).encode()).hexdigest()


def summary(part: Mapping[str, Any], claim: Claim) -> dict[str, Any] | None:
    """Of one claim: seeds at which it was judged, those with the expected verdict, and the distance from the threshold.

    The distance is that of the rule that gives the expected verdict, with each of its comparisons in units of its own
    standard deviation over the seeds, in the mean over them; infinite where nothing varies. None for a claim that no
    run has judged.
    """
    runs = [run["claims"][claim.id] for run in part["runs"] if claim.id in run["claims"]]
    if not runs:
        return None
    same = sum(run["verdict"] == claim.expected for run in runs)
    return {"seeds": len(runs), "same": same, "distance": _distance(runs, claim)}


def _distance(runs: Sequence[Mapping[str, Any]], claim: Claim) -> float | None:
    word = _WORDS.get(claim.expected, "")
    found = [[float(margin) for margin in run["margins"][word]] for run in runs if word in run["margins"]]
    if len(found) < 2:
        return None
    deviations = [_deviation(column) for column in zip(*found, strict=True)]
    scaled = [[_divided(*pair) for pair in zip(row, deviations, strict=True)] for row in found]
    return statistics.fmean(claim.rules[word].distance(row) for row in scaled)


def _deviation(margins: Sequence[float]) -> float:
    return statistics.stdev(margins) if all(map(math.isfinite, margins)) else 0.0


def _divided(margin: float, deviation: float) -> float:
    return margin / deviation if deviation else math.copysign(math.inf, margin)


def read(book: Book) -> dict[str, Any]:
    """The kept replications by chapter, none without the file; a `Refusal` if it is not what `replicate` writes."""
    path = path_of(book)
    if not path.is_file():
        return {}
    kept = read_json(path)
    try:
        for chapter in (name for name in book.chapters if name in kept):
            int(kept[chapter]["commit"], 16)
            list(kept[chapter]["earlier"])
            for claim in book.declarations(chapter).claims:
                if kept[chapter]["rules"] == rules_digest(book.declarations(chapter)):
                    summary(kept[chapter], claim)
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise Refusal(f"{path.name} is not what `leakage replicate` writes; delete it, or get it back.") from error
    return kept


def summaries(book: Book) -> dict[str, dict[str, Any]]:
    """The summaries of all claims whose rules are those that were replicated, by id."""
    kept = read(book)
    found = {}
    for chapter in (name for name in book.chapters if name in kept):
        declared = book.declarations(chapter)
        if kept[chapter]["rules"] == rules_digest(declared):
            found |= {claim.id: one for claim in declared.claims if (one := summary(kept[chapter], claim))}
    return found
