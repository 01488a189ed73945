"""The kept replications of the book: what each claim's rules said at seeds that nobody chose.

`book/records/replication.json` has for each chapter its runs: the seed, the commit whose hash gave it, and what was
found of each claim with a digest of the rules that said so. Runs of rules that have been replaced stay, and say nothing
of the rules of today.
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

_DIGITS = 12  # hexadecimal ones, of the digest of a rule
_WORDS = {HELD: "held", IN_PART: "in part", DID_NOT_HOLD: "refuted"}  # of the rule that gives a verdict


def path_of(book: Book) -> Path:
    """Where the replications are kept."""
    return book.folder / "records" / "replication.json"


def drawn(commit: str, number: int) -> list[int]:
    """The first seeds of a commit, each in 0 … 2³¹ − 1."""
    return [int(word) >> 1 for word in np.random.SeedSequence(int(commit, 16)).generate_state(number)]


def rule_digest(claim: Claim) -> str:
    """A digest of the rules of a claim, the verdict expected of them and what they measure, whatever else is said.

    Who measures more than before says so among the values, and what fewer samples have shown does not count for it.
    """
    rules = [(word, rule.text) for word, rule in claim.rules.items()]
    return hashlib.sha256(repr((claim.id, claim.expected, rules, [*claim.values.items()])).encode()).hexdigest()[
        :_DIGITS
    ]


def of_claim(runs: Sequence[Mapping[str, Any]], claim: Claim) -> list[Mapping[str, Any]]:
    """What the runs of a chapter found of the claim, by the rules that it has now."""
    found = (run["claims"][claim.id] for run in runs if claim.id in run["claims"])
    return [one for one in found if one["rule"] == rule_digest(claim)]


def summary(runs: Sequence[Mapping[str, Any]], claim: Claim) -> dict[str, Any] | None:
    """Of one claim: seeds at which it was judged, those with the expected verdict, and the distance from the threshold.

    The distance is that of the rule that gives the expected verdict, at the mean margin over the seeds of each of its
    comparisons, in units of that margin's own standard deviation over them; infinite where nothing varies. None for a
    claim that fewer than two runs have judged by the rules of today. A p-value, which is uniform where the law that it
    tests is true, is some 1.7 from zero by this measure, however often one tries.
    """
    found = of_claim(runs, claim)
    if not found:
        return None
    rows = _scaled(runs, claim)
    away = claim.rules[_WORDS[claim.expected]].distance([*map(_mean, zip(*rows, strict=True))]) if rows else None
    same = sum(one["verdict"] == claim.expected for one in found)
    return {"seeds": len(found), "same": same, "distance": away}


def distances(runs: Sequence[Mapping[str, Any]], claim: Claim) -> tuple[float, ...]:
    """How far the rule that gives the expected verdict was from its threshold at each seed, in standard deviations.

    Empty for a claim that fewer than two runs have judged by the rules of today.
    """
    return tuple(claim.rules[_WORDS[claim.expected]].distance(row) for row in _scaled(runs, claim))


def _scaled(runs: Sequence[Mapping[str, Any]], claim: Claim) -> list[list[float]]:
    """Run by run the margins of that rule's comparisons, each in units of its own standard deviation over the runs."""
    word = _WORDS.get(claim.expected, "")
    margins = [run["margins"] for run in of_claim(runs, claim)]
    found = [[float(margin) for margin in one[word]] for one in margins if word in one]
    if len(found) < 2:
        return []
    deviations = [_deviation(column) for column in zip(*found, strict=True)]
    return [[_divided(*pair) for pair in zip(row, deviations, strict=True)] for row in found]


def _mean(margins: Sequence[float]) -> float:
    return statistics.fmean(margins) if all(map(math.isfinite, margins)) else min(margins)


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
            _summaries([*kept[chapter]], book.declarations(chapter))
            if not {type(run["seed"]) for run in kept[chapter]} <= {int} or not isinstance(kept[chapter], list):
                raise ValueError("runs are a list, and seeds are whole numbers.")
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise Refusal(f"{path.name} is not what `leakage replicate` writes; delete it, or get it back.") from error
    return kept


def summaries(book: Book) -> dict[str, dict[str, Any]]:
    """The summaries of all claims that were replicated with the rules they have now, by id."""
    found = {}
    for chapter, runs in read(book).items():
        if chapter in book.chapters:
            found |= _summaries(runs, book.declarations(chapter))
    return found


def _summaries(runs: Sequence[Mapping[str, Any]], declared: Declarations) -> dict[str, dict[str, Any]]:
    return {claim.id: one for claim in declared.claims if (one := summary(runs, claim))}
