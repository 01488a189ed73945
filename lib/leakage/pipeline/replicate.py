"""Replication: the chapters at seeds that nobody chose, and what each claim's rules say there.

The seeds follow from the hash of the commit that holds the rules, so a rule was written before its seeds were known.
Each chapter's part of `book/records/replication.json` has that commit and a digest of its rules: while the rules stand,
further seeds of that commit are added; once a rule is changed, its chapter begins anew at the seeds of a later commit,
and what the old rules said is kept under `earlier`. An interrupted replication
goes on where it stopped.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from leakage.claims import measurements
from leakage.claims.declarations import NOT_RUN, Claim, Declarations
from leakage.claims.texts import NOT_JUDGED
from leakage.pipeline.book import STANDARD, Book, Refusal
from leakage.pipeline.build import build
from leakage.pipeline.plan import Checksum, execution_provenance
from leakage.pipeline.progress import Progress
from leakage.pipeline.replications import drawn, path_of, read, rules_digest
from leakage.pipeline.storage import write_json


def replicate(
    book: Book,
    names: Sequence[str],
    *,
    seeds: int,
    checksum: Checksum,
    jobs: int | None = None,
    progress: Progress,
) -> tuple[str, ...]:
    """Execute the chapters named, all if none is, at the first `seeds` seeds of their commit, and keep what was found.

    Returns:
        What went wrong, a line each: chapters that failed. A verdict that differs is no fault but the result.

    Raises:
        Refusal: if the request or the book is wrong, or files differ from the commit.
    """
    chosen = book.choose(names)
    origin = execution_provenance(book, STANDARD["device"])
    if origin["commit"] is None or origin["dirty"]:
        raise Refusal("the seeds are drawn from the hash of a commit: commit first, then replicate.")
    kept = read(book)
    for chapter in chosen:
        rules = rules_digest(book.declarations(chapter))
        old = kept.get(chapter)
        if old is None or old["rules"] != rules:  # what the old rules said stays: a flip is not forgotten with its rule
            earlier = [*old.pop("earlier"), old] if old else []
            kept[chapter] = {"rules": rules, "commit": origin["commit"], "runs": [], "earlier": earlier}
    faults: list[str] = []
    for number in range(seeds):
        wanted: dict[int, list[str]] = {}
        for chapter in chosen:
            seed = drawn(kept[chapter]["commit"], seeds)[number]
            if seed not in [run["seed"] for run in kept[chapter]["runs"]]:
                wanted.setdefault(seed, []).append(chapter)
        for seed, chapters in wanted.items():
            progress.say(f"seed {number + 1} of {seeds}: {seed}")
            there = replace(book, build=book.build / "replications" / str(seed))
            given = STANDARD | {"seed": seed}
            report = build(there, chapters, given, checksum=checksum, jobs=jobs, rendered=False, progress=progress)
            faults += [f"{chapter}, seed {seed}: failed" for chapter in chapters if chapter not in report.ledgers]
            for chapter in (name for name in chapters if name in report.ledgers):
                kept[chapter]["runs"].append(_run(report.ledgers[chapter], book.declarations(chapter)))
            write_json(path_of(book), kept)
    return tuple(faults)


def _run(ledger: Mapping[str, Any], declared: Declarations) -> dict[str, Any]:
    """What one execution has found."""
    judged = [entry for entry in ledger["claims"] if entry["verdict"] not in (NOT_RUN, NOT_JUDGED)]
    found = {entry["id"]: _found(entry, declared.by_id[entry["id"]]) for entry in judged}
    return {"seed": ledger["seed"], "commit": ledger["commit"], "seconds": ledger["seconds"], "claims": found}


def _found(entry: Mapping[str, Any], claim: Claim) -> dict[str, Any]:
    values = {one["name"]: measurements.from_json(one["measured"]) for one in entry["values"]}
    margins = {word: [_finite(m) for m in rule.margins(values)] for word, rule in claim.rules.items() if values}
    first = measurements.shown(next(iter(values.values()))) if values else ""
    return {"verdict": entry["verdict"], "found": first, "margins": margins}


def _finite(margin: float) -> float | str:
    return margin if math.isfinite(margin) else f"{margin}"
