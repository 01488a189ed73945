"""Replication: the chapters at seeds that nobody chose, and what each claim's rules say there.

The seeds follow from the hash of the commit that holds the rules, so a rule was written before its seeds were known.
What was found is kept in `book/records/replication.json` as it comes, so an interrupted replication goes on where it
stopped. Only what is lacking is executed: after a rule has changed, no other cells than those its claim needs.
"""

import math
import shutil
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from leakage.claims import measurements
from leakage.claims.declarations import NOT_RUN, Claim
from leakage.claims.ledger import absence
from leakage.claims.texts import NOT_JUDGED
from leakage.pipeline import executed, slices
from leakage.pipeline.book import STANDARD, Book, Refusal
from leakage.pipeline.build import build
from leakage.pipeline.executed import REPRO
from leakage.pipeline.plan import Checksum, execution_provenance
from leakage.pipeline.progress import Progress
from leakage.pipeline.replications import drawn, of_claim, path_of, read, rule_digest
from leakage.pipeline.storage import write_json


def replicate(
    book: Book,
    names: Sequence[str],
    *,
    seeds: int,
    under: float = math.inf,
    checksum: Checksum,
    jobs: int | None = None,
    progress: Progress,
) -> tuple[str, ...]:
    """Execute the chapters named, all if none is, until each claim was judged at `seeds` seeds by the rules it has now.

    Args:
        book: what to execute.
        names: chapters.
        seeds: how many seeds each claim shall have, those of earlier commits included.
        under: only the claims whose own cells took less than so many seconds where they were last executed.
        checksum: gives the checksum of a data set by name.
        jobs: chapters at a time; by default one for each core, or GPU.
        progress: told what happens.

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
    used = {run["seed"] for runs in kept.values() for run in runs}
    fresh = [seed for seed in drawn(origin["commit"], seeds + len(used)) if seed not in used][:seeds]
    lacking = {chapter: _lacking(book, chapter, kept.get(chapter, []), seeds, under) for chapter in chosen}
    faults: list[str] = []
    for number, seed in enumerate(fresh):
        wanted = {chapter: ids for chapter in chosen if (ids := {i for i, n in lacking[chapter].items() if n > number})}
        if not wanted:
            break
        progress.say(f"seed {number + 1}, {seed}: " + ", ".join(f"{len(ids)} of {c}" for c, ids in wanted.items()))
        only = {c: frozenset(ids) for c, ids in wanted.items() if len(ids) < len(_judgeable(book, c))}
        there = replace(book, build=book.build / "replications" / str(seed), only=only)
        given = STANDARD | {"seed": seed}
        report = build(there, [*wanted], given, checksum=checksum, jobs=jobs, rendered=False, progress=progress)
        for chapter in wanted:
            found = _run(there, chapter, report.ledgers.get(chapter))
            kept.setdefault(chapter, []).append(found)
            faults += [f"{chapter}, seed {seed}: {found['error']}"] if "error" in found else []
        write_json(path_of(book), kept)
        if report.ledgers.keys() >= wanted.keys():  # of a failure, somebody wants to see the notebook
            shutil.rmtree(there.build)
    return tuple(faults)


def _judgeable(book: Book, chapter: str) -> list[Claim]:
    """The claims that can be judged here: in this profile, with these data."""
    claims = book.declarations(chapter).claims
    return [claim for claim in claims if claim.judged_in(STANDARD["profile"]) and not absence(claim)]


def _lacking(book: Book, chapter: str, runs: Sequence[Mapping[str, Any]], seeds: int, under: float) -> dict[str, int]:
    """How many seeds each claim lacks, by id."""
    found = {}
    for claim in _judgeable(book, chapter):
        times = [one["seconds"] for run in runs if "seconds" in (one := run["claims"].get(claim.id, {}))]
        if math.isinf(under) or (times and statistics.median(times) < under):
            found[claim.id] = max(0, seeds - len(of_claim(runs, claim)))
    return found


def _run(book: Book, chapter: str, ledger: Mapping[str, Any] | None) -> dict[str, Any]:
    """What one execution has found; of one that failed, how: no seed goes unsaid because a chapter broke at it."""
    notebook = executed.read(book.executed(STANDARD["profile"], chapter))
    assert notebook is not None, "it was executed"
    if ledger is None:
        repro = notebook.metadata[REPRO]
        said = {name: repro[name] for name in ("seed", "commit", "seconds")}
        return said | {"error": repro["error"]["error"], "claims": {}}
    sources = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    durations = notebook.metadata[REPRO]["durations"]
    declared = book.declarations(chapter).by_id
    judged = [entry for entry in ledger["claims"] if entry["verdict"] not in (NOT_RUN, NOT_JUDGED)]
    claims = {}
    for entry in judged:
        # The first cell imports what all of them share.
        seconds = sum(durations[number] for number in slices.needed(sources, [entry["id"]]) if number)
        claims[entry["id"]] = _found(entry, declared[entry["id"]]) | {"seconds": round(seconds, 2)}
    return {"seed": ledger["seed"], "commit": ledger["commit"], "seconds": ledger["seconds"], "claims": claims}


def _found(entry: Mapping[str, Any], claim: Claim) -> dict[str, Any]:
    values = {one["name"]: measurements.from_json(one["measured"]) for one in entry["values"]}
    margins = {word: [_finite(m) for m in rule.margins(values)] for word, rule in claim.rules.items() if values}
    first = measurements.shown(next(iter(values.values()))) if values else ""
    return {"rule": rule_digest(claim), "verdict": entry["verdict"], "found": first, "margins": margins}


def _finite(margin: float) -> float | str:
    return margin if math.isfinite(margin) else f"{margin}"
