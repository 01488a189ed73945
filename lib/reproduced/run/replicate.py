"""Replication: the chapters at seeds that nobody chose, and what each claim's rules say there.

The seeds follow from the hash of the commit that holds the rules, so a rule was written before its seeds were known.
Each run is kept in `book/records/replication.jsonl` when it ends, so an interrupted replication goes on where it
stopped. A chapter is executed whole, at as many new seeds as its claims lack under today's rules.
"""

import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from leakage import content_keys, runtime
from reproduced.claims import measurements
from reproduced.claims.declarations import NOT_RUN, Claim
from reproduced.claims.ledger import missing_data_text
from reproduced.claims.texts import NOT_JUDGED
from reproduced.pages import collect
from reproduced.run import executed, replications
from reproduced.run.book import STANDARD, Book, Refusal
from reproduced.run.build import CELL_SECONDS, alone, check, mark, on_this_machine
from reproduced.run.execute import Place
from reproduced.run.executed import REPRO
from reproduced.run.executions import Work, carry_out
from reproduced.run.plan import ABSENT, Checksum, Plan, execution_provenance, make_plan
from reproduced.run.progress import Progress

_ORIGIN = ("commit", "date", "device", "device_name", "processor", "versions", "seconds")


def replicate(
    book: Book,
    names: Sequence[str],
    *,
    seeds: int,
    checksum: Checksum,
    place: Place | None = None,
    progress: Progress,
) -> tuple[str, ...]:
    """Execute the chapters named, all if none is, until each claim was judged at `seeds` seeds by the rules it has now.

    All chapters at all seeds are one row of tasks, so that no processor waits for the last chapter of a seed.

    Args:
        book: what to execute.
        names: chapters.
        seeds: how many seeds each claim shall have, those of earlier commits included.
        checksum: gives the checksum of a data set by name.
        place: where chapters are executed; by default `build.on_this_machine`.
        progress: told what happens.

    Returns:
        What went wrong, a line each: chapters that failed. A verdict that differs is no fault but the result.

    Raises:
        Refusal: if the request or the book is wrong, or files differ from the commit.
    """
    chosen = book.choose(names)
    check(book)
    device = STANDARD["device"]
    origin = execution_provenance(book, device)
    if origin["commit"] is None or origin["dirty"]:
        raise Refusal("the seeds are drawn from the hash of a commit: commit first, then replicate.")
    kept = replications.read(book)
    order = replications.drawn(origin["commit"], seeds + max(map(len, kept.values()), default=0))
    wanted = _wanted(book, {chapter: kept[chapter] for chapter in chosen}, order, seeds)
    left = {seed: {*chapters} for seed, chapters in wanted.items()}
    total = sum(map(len, left.values()))
    progress.expect(total)
    progress.say(f"{total} tasks, at {len(wanted)} seeds")
    faults: list[str] = []

    def keep(there: Book, plan: Plan) -> None:
        seed = plan.parameters["seed"]
        run = _run(plan, order.index(seed))
        replications.append(book, run)
        if "error" in run:  # of a failure, somebody wants to see the notebook
            faults.append(f"{plan.chapter}, seed {seed}: {run['error']}")
            return
        left[seed].remove(plan.chapter)
        if not left[seed]:
            shutil.rmtree(there.build)

    def work() -> Iterator[Work]:
        nonlocal total
        kind = content_keys.device_kind(runtime.pick_device(device))
        for seed, chapters in wanted.items():
            there = replace(book, build=book.build / "replications" / str(seed))
            for chapter in reversed(chapters):  # as in a build
                given = STANDARD | {"seed": seed}
                plan = make_plan(there, chapter, given, checksum=checksum, device=kind)
                if plan.state != "fresh":
                    yield Work(there, plan, f"{chapter}, seed {seed}")
                    continue
                keep(there, plan)
                total -= 1
                progress.expect(total)

    given = {"place": place or on_this_machine(device), "device": device, "checksum": checksum}
    mark(book.build)
    with alone(book.build / "replications"):
        for end in carry_out(book, work(), **given, limit=CELL_SECONDS[STANDARD["profile"]], tell=progress.tell):
            if end.executed:
                keep(end.work.book, end.work.plan)
            else:
                faults.append(f"{end.work.name}: {end.outcome.error}")
    return tuple(faults)


def _wanted(
    book: Book, kept: Mapping[str, Sequence[Mapping[str, Any]]], order: Sequence[int], seeds: int
) -> dict[int, list[str]]:
    """The chapters to execute, by seed: each at the first seeds of `order` that it lacks."""
    found: dict[int, list[str]] = {seed: [] for seed in order}
    for chapter, runs in kept.items():
        used = {run["seed"] for run in runs}
        fresh = [seed for seed in order if seed not in used]
        for seed in fresh[: _lacking(book, chapter, runs, seeds)]:
            found[seed].append(chapter)
    return {seed: chapters for seed, chapters in found.items() if chapters}


def _lacking(book: Book, chapter: str, runs: Sequence[Mapping[str, Any]], seeds: int) -> int:
    """How many runs the chapter lacks until every claim that can be judged here has so many seeds."""
    claims = book.declarations(chapter).claims
    judgeable = [claim for claim in claims if claim.is_judgeable(STANDARD["profile"]) and not missing_data_text(claim)]
    fewest = min((len(replications.under_todays_rules(runs, claim)) for claim in judgeable), default=seeds)
    return max(0, seeds - fewest)


def _run(plan: Plan, seed_index: int) -> dict[str, Any]:
    """What one execution found; a failed one is kept too, with its error and without claims."""
    notebook = executed.read(plan.target)
    assert notebook is not None, "it was executed"
    repro = notebook.metadata[REPRO]
    run = {"chapter": plan.chapter, "seed": repro["seed"], "seed_index": seed_index}
    run |= {name: repro[name] for name in _ORIGIN}
    run["data"] = {name: checksum for name, checksum in repro["data"].items() if checksum != ABSENT}
    run["cells"] = replications.cells_digest(notebook)
    if repro["status"] != "ok":
        return run | {"error": repro["error"]["error"], "claims": {}}
    ledger = collect.make_ledger(notebook, plan.declared)
    declared = plan.declared.by_id
    judged = [entry for entry in ledger["claims"] if entry["verdict"] not in (NOT_RUN, NOT_JUDGED)]
    return run | {"claims": {entry["id"]: _found(entry, declared[entry["id"]]) for entry in judged}}


def _found(entry: Mapping[str, Any], claim: Claim) -> dict[str, Any]:
    values = {one["name"]: measurements.from_json(one["measured"]) for one in entry["values"]}
    margins = {word: [_finite(m) for m in rule.margins(values)] for word, rule in claim.rules.items() if values}
    return {
        "rule": replications.rule_digest(claim),
        "verdict": entry["verdict"],
        "values": {name: measurements.to_columns(value) for name, value in values.items()},
        "margins": margins,
    }


def _finite(margin: float) -> float | str:
    return margin if math.isfinite(margin) else f"{margin}"
