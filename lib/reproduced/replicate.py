"""Replication: the chapters at seeds that nobody chose, and what each claim's rules say there.

The seeds follow from the hash of the commit that holds the rules, so a rule was written before its seeds were known.
Each run is kept in `book/records/replication.jsonl` when it ends, so an interrupted replication goes on where it
stopped. Whole chapters run. A chapter gets as many new seeds as are lacking to its claim with the fewest runs under
today's declaration, by today's code of the chapter.
"""

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from reproduced import code_keys, runtime
from reproduced.build import check, hold_build_folder, mark_build_folder
from reproduced.claims import measurements
from reproduced.claims.declarations import NOT_RUN, Declarations
from reproduced.claims.ledger import missing_data_text
from reproduced.claims.texts import NOT_JUDGED
from reproduced.pages.findings import Judgement, read_findings
from reproduced.run import chapter_cache, replications
from reproduced.run.book import STANDARD, Book, UserError
from reproduced.run.chapter_cache import (
    ABSENT,
    EXECUTION_KEY,
    Plan,
    execution_provenance,
    make_plan,
    read_commit,
)
from reproduced.run.executor import ChapterExecutor, Progress, run_plans

_RUN_FIELDS = ("commit", "date", "device", "device_name", "processor", "versions", "seconds")


def replicate(
    book: Book, names: Sequence[str], *, seeds: int, executor: ChapterExecutor, progress: Progress
) -> tuple[str, ...]:
    """Execute the chapters named, or all, until each claim was judged at `seeds` seeds by today's rule and code.

    All chapters at all seeds are one list of tasks, so that no processor waits for the last chapter of a seed.

    The seeds of earlier commits count. Returns a line for each chapter that failed; a verdict that differs is no fault
    but the result.

    Raises:
        UserError: if the request or the book is wrong, or files differ from the commit.
    """
    chosen = book.choose(names)
    check(book)
    origin = execution_provenance(book, STANDARD["device"])
    if origin["commit"] is None or origin["dirty"]:
        reason = read_commit(book.root)[2] or "commit first, then replicate"
        raise UserError(f"the seeds are drawn from the hash of a commit: {reason}.")
    kept = replications.read(book)
    order = replications.draw_seeds(origin["commit"], seeds + max(map(len, kept.values()), default=0))
    numbers = {chapter: _seeds_of_claims(book, chapter, kept[chapter]) for chapter in chosen}
    lacking = {chapter: seeds - min(found, default=seeds) for chapter, found in numbers.items()}
    wanted = _choose_seeds(kept, order, lacking)
    declared = {chapter: book.declarations(chapter) for chapter in chosen}  # while chapters run, files may be edited
    unfinished = {seed: {*chapters} for seed, chapters in wanted.items()}
    faults: list[str] = []

    def keep(plan: Plan) -> None:
        seed = plan.parameters["seed"]
        run = _describe_run(plan, declared[plan.chapter], order.index(seed))
        replications.append(book, run)
        if "error" in run:  # of a failure, somebody wants to see the notebook
            faults.append(f"{plan.chapter}, seed {seed}: {run['error']}")
            return
        unfinished[seed].remove(plan.chapter)
        if not unfinished[seed]:
            shutil.rmtree(plan.book.build)

    mark_build_folder(book.build)
    with hold_build_folder(book.build / "replications"):
        kind = code_keys.device_kind(runtime.pick_device(STANDARD["device"]))
        todo = {}
        for seed, chapters in wanted.items():
            there = replace(book, build=book.build / "replications" / str(seed))
            for chapter in book.longest_first(chapters):
                plan = make_plan(there, chapter, STANDARD | {"seed": seed}, device=kind)
                if plan.state == "fresh":  # it was interrupted before it could be kept
                    keep(plan)
                else:
                    todo[f"{chapter}, seed {seed}"] = plan
        progress.expected = len(todo)
        progress.say(_lacking_line([number for found in numbers.values() for number in found], seeds))
        if wanted:
            progress.say(f"{len(todo)} tasks, at {len(wanted)} seeds")
        for plan, execution in run_plans(todo, executor=executor, progress=progress):
            if execution.notebook:
                keep(plan)
            else:
                faults.append(f"{plan.chapter}, seed {plan.parameters['seed']}: {execution.error}")
    return tuple(faults)


def _seeds_of_claims(book: Book, chapter: str, runs: Sequence[Mapping[str, Any]]) -> list[int]:
    """How many seeds each claim of the chapter that can be judged here has under today's declaration and code."""
    cells = replications.cells_digest(book.notebook(chapter))
    claims = book.declarations(chapter).claims
    judgeable = [claim for claim in claims if not missing_data_text(claim)]
    return [len(replications.of_today(runs, claim, cells=cells)) for claim in judgeable]


def _lacking_line(numbers: Sequence[int], seeds: int) -> str:
    """How many claims lack how many of `seeds` seeds, or with which number some would."""
    short = [seeds - number for number in numbers if number < seeds]
    if short:
        return f"{len(short)} of {len(numbers)} claims lack seeds, up to {max(short)} of {seeds}"
    return f"Every claim has its {seeds} seeds already; --seeds {min(numbers, default=seeds) + 1} asks for more."


def _choose_seeds(
    kept: Mapping[str, Sequence[Mapping[str, Any]]], order: Sequence[int], lacking: Mapping[str, int]
) -> dict[int, list[str]]:
    """The chapters to execute, by seed: each at as many of the first seeds of `order` that it was not run at."""
    found: dict[int, list[str]] = {seed: [] for seed in order}
    for chapter, number in lacking.items():
        used = {run["seed"] for run in kept[chapter]}
        fresh = [seed for seed in order if seed not in used]
        for seed in fresh[: max(0, number)]:
            found[seed].append(chapter)
    return {seed: chapters for seed, chapters in found.items() if chapters}


def _describe_run(plan: Plan, declared: Declarations, seed_index: int) -> dict[str, Any]:
    """The line to keep of an execution; of a failed one with its error and no claims. Its seed is not tried again."""
    notebook = chapter_cache.read(plan.target)
    assert notebook is not None, "it was executed"
    execution = notebook.metadata[EXECUTION_KEY]
    run = {"chapter": plan.chapter, "seed": execution["seed"], "seed_index": seed_index}
    run |= {name: execution[name] for name in _RUN_FIELDS}
    run["data"] = {name: checksum for name, checksum in execution["data"].items() if checksum != ABSENT}
    run["cells"] = replications.cells_digest(notebook)
    if execution["status"] != "ok":
        return run | {"error": execution["error"]["error"], "claims": {}}
    judgements = read_findings(notebook, declared).judgements
    judged = [one for one in judgements if one.verdict not in (NOT_RUN, NOT_JUDGED)]
    return run | {"claims": {one.claim.id: _describe_judgement(one) for one in judged}}


def _describe_judgement(judgement: Judgement) -> dict[str, Any]:
    claim, values = judgement.claim, judgement.values
    margins = {word: rule.margins(values) for word, rule in claim.rules.items() if values}
    return {
        "rule": claim.rule_digest,  # not its text
        "expected": claim.expected,
        "verdict": judgement.verdict,
        "values": {name: measurements.to_json(value) for name, value in values.items()},
        "margins": {word: [m if math.isfinite(m) else f"{m}" for m in found] for word, found in margins.items()},
    }
