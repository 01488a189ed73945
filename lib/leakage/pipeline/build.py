"""One build: execute what is not fresh, collect and compare the claims, stage the pages, render the site.

Everything that can be refused is refused before the first file is touched. A chapter that fails, a verdict that differs
from the declared one and a warning of the renderer each make the build fail, after everything else was done.
"""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import cache_from_source
from itertools import count, takewhile
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from leakage import checked_files, content_keys, runtime
from leakage.pipeline import collect, contents, execute, executed, tables
from leakage.pipeline.book import Book, Refusal
from leakage.pipeline.execute import Outcome
from leakage.pipeline.executed import REPRO
from leakage.pipeline.plan import Checksum, Plan, changed_since, cores, execution_provenance, make_plan
from leakage.pipeline.progress import Progress, outcome_line
from leakage.pipeline.render import render, stage
from leakage.pipeline.storage import MARKED, MARKER, write_json
from leakage.pipeline.worker import Task

_HOUR = 3600
CELL_SECONDS = {"smoke": _HOUR, "ci": 6 * _HOUR, "paper": 48 * _HOUR}
"""After how long a cell counts as hanging, by profile: far beyond the slowest machine with the most other work."""
_MOST_COMPLAINTS = 20


@dataclass(frozen=True)
class Report:
    """What a build found; it succeeded if there is no fault."""

    ledgers: Mapping[str, Mapping[str, Any]]
    faults: tuple[str, ...]


def build(
    book: Book,
    names: Sequence[str],
    parameters: Mapping[str, Any],
    *,
    checksum: Checksum,
    jobs: int | None = None,
    cell_seconds: int | None = None,
    rendered: bool = True,
    progress: Progress,
) -> Report:
    """Build the chapters named, all if none is, and the site around them.

    Args:
        book: what to build, and where.
        names: chapters to execute; the others are shown as they were executed before, if they were.
        parameters: profile, seed and device, checked.
        checksum: gives the checksum of a data set by name.
        jobs: chapters at a time; by default one for each GPU, or each core where no GPU is used.
        cell_seconds: the longest a cell may take; by default according to the profile.
        rendered: whether to make the site, beyond its staged pages.
        progress: told what happens.

    Raises:
        Refusal: if the request or the book is wrong; nothing was changed then.
    """
    chosen = book.choose(names)
    contents.check(book)
    book.check_folder()
    device = runtime.pick_device(parameters["device"])
    kind = content_keys.device_kind(device)
    if os.pathsep in str(book.package.parent):  # it would end there in PYTHONPATH, and another `leakage` be imported
        raise Refusal(f"{book.package.parent}: no folder above the package may have {os.pathsep!r} in its name.")
    plans = {c: make_plan(book, c, parameters, checksum=checksum, device=kind) for c in book.chapters}
    with _alone(book.build):
        for left_by_a_killed_build in (book.build / "executed").rglob("*.partial*"):
            left_by_a_killed_build.unlink()
        checked_files.sweep_up(book.build / "grids")
        todo = [plans[chapter] for chapter in chosen if plans[chapter].state != "fresh"]
        for chapter in chosen:
            progress.say(_intention(plans[chapter]))
        limit = cell_seconds or CELL_SECONDS[parameters["profile"]]
        check = partial(changed_since, book=book, checksum=checksum)
        gpus = _gpus(parameters["device"])
        outcomes = _execute(book, todo, jobs=jobs, gpus=gpus, limit=limit, check=check, progress=progress)
        faults = [outcome_line(outcome) for outcome in outcomes if not outcome.ok]
        notebooks = {c: notebook for c, plan in plans.items() if (notebook := executed.read(plan.target)) is not None}
        ledgers = _collect(book, plans, notebooks)
        for chapter in (name for name in chosen if name in ledgers):
            if changed := notebooks[chapter].metadata[REPRO]["changed"]:
                faults.append(f"{chapter}: {', '.join(changed)} changed while it ran, so build it again.")
            faults += collect.faults(notebooks[chapter], plans[chapter].declared)
        absent = stage(book, parameters["profile"], ledgers, _notes(plans, chosen, notebooks))
        if rendered:
            faults += _render(book, strict=not absent and len(ledgers) == len(book.chapters), progress=progress)
    return Report(ledgers, tuple(faults))


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the build folder and mark it as one; the system lets go of it when this process ends, however it ends."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / MARKER).open("a", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Refusal(f"another build is running in {folder}.") from error
        if not lock.tell():
            lock.write(MARKED)
            lock.flush()
        yield


def _intention(plan: Plan) -> str:
    reasons = {"new": "executing", "failed": "executing again, it failed the last time"}
    more = f" and {len(plan.changed) - 3} more" if len(plan.changed) > 3 else ""
    reasons["stale"] = f"executing, changed: {', '.join(plan.changed[:3])}{more}"
    # Verdicts do not depend on the kind of processor, so an execution on another one counts; last digits may.
    elsewhere = f", from another processor ({plan.processor})" * (plan.processor != content_keys.processor())
    return f"  {plan.chapter}: {reasons.get(plan.state, f'up to date{elsewhere}')}"


def _gpus(device: str) -> list[str]:
    """Ids of the GPUs to hand out among chapters; none if the device is a processor or one particular GPU."""
    if device not in ("auto", "cuda") or runtime.pick_device(device).type != "cuda":
        return []
    return [str(number) for number in takewhile(_has_gpu, count())]


def _has_gpu(number: int) -> bool:
    try:
        return runtime.pick_device(f"cuda:{number}").index == number
    except ValueError:
        return False


def _execute(
    book: Book,
    plans: Sequence[Plan],
    *,
    jobs: int | None,
    gpus: Sequence[str],
    limit: int,
    check: Callable[[Plan], Sequence[str]],
    progress: Progress,
) -> list[Outcome]:
    """Execute the chapters planned; the ledgers of their last execution go first, whatever happens then."""
    if not plans:
        return []
    _forget_old_bytecode(book.package)
    shutil.rmtree(book.build / "ipython", ignore_errors=True)  # kernels begin without a user's start-up files
    for plan in plans:
        book.ledger(plan.chapter).unlink(missing_ok=True)
    at_a_time = min(len(plans), jobs or len(gpus) or cores())
    variables = execute.kernel_variables(package=book.package, build=book.build)
    by_chapter = {plan.chapter: plan for plan in plans}
    provenance = execution_provenance(book, plans[0].parameters["device"])
    tasks = [
        Task(
            chapter=plan.chapter,
            notebook=nbformat.writes(plan.notebook),
            parameters=plan.parameters,
            target=plan.target,
            folder=book.root,
            log=book.build / "logs" / f"{plan.chapter}.log",
            cell_seconds=limit,
            variables=variables,
        )
        for plan in reversed(plans)  # the last chapters of the book take longest: begun last, one would run alone
    ]

    def finish(task: Task, notebook: NotebookNode, outcome: Outcome) -> None:
        plan = by_chapter[task.chapter]
        notebook.metadata[REPRO] = _repro(plan, outcome) | provenance | {"changed": list(check(plan))}

    return execute.run(tasks, jobs=at_a_time, gpus=gpus, tell=progress.tell, finish=finish)[::-1]


def _forget_old_bytecode(package: Path) -> None:
    """Delete compiled modules that are older than the last change of their source.

    Python compares size and time of modification in whole seconds, so it would run the old code of a module that was
    replaced by one of the same size and date, and the key would be that of the new.
    """
    for path in package.rglob("*.py"):
        compiled = Path(cache_from_source(path))
        with suppress(OSError):  # there is none, or it may not be deleted
            if compiled.stat().st_mtime_ns <= path.stat().st_ctime_ns:
                compiled.unlink()


def _repro(plan: Plan, outcome: Outcome) -> dict[str, Any]:
    error = None if outcome.ok else {k: v for k, v in asdict(outcome).items() if k in ("cell", "cells", "error")}
    return {
        "key": plan.key,
        "status": "ok" if outcome.ok else "failed",
        "error": error,
        "seconds": outcome.seconds,
        "durations": list(outcome.durations),
        "profile": plan.parameters["profile"],
        "seed": plan.parameters["seed"],
        "data": dict(plan.data),
        "depends_on": plan.depends_on,
    }


def _collect(book: Book, plans: Mapping[str, Plan], notebooks: Mapping[str, NotebookNode]) -> dict[str, dict[str, Any]]:
    """Write the ledger of every chapter executed to its end in this profile, and remove all others."""
    ledgers = {}
    for chapter, notebook in notebooks.items():
        if notebook.metadata[REPRO]["status"] == "ok":
            ledgers[chapter] = collect.make_ledger(notebook, plans[chapter].declared)
            write_json(book.ledger(chapter), ledgers[chapter])
    for path in (book.build / "claims").glob("*.json"):
        if path.stem not in ledgers:
            path.unlink()
    return ledgers


def _notes(plans: Mapping[str, Plan], chosen: Sequence[str], notebooks: Mapping[str, NotebookNode]) -> dict[str, str]:
    """What pages must say whose results are of another version or run, or of none in particular."""
    notes = {}
    for chapter, notebook in notebooks.items():
        if changed := notebook.metadata[REPRO]["changed"]:
            notes[chapter] = f"While this chapter ran, this changed: {', '.join(changed)}. Build it again."
        elif chapter not in chosen and plans[chapter].state == "stale":
            since = ", ".join(plans[chapter].changed)
            notes[chapter] = f"The results on this page are of an earlier run; since then this has changed: {since}."
    return notes


def _render(book: Book, *, strict: bool, progress: Progress) -> list[str]:
    """Make the site; its faults, if the book was complete enough for it to have none."""
    progress.say("  rendering")
    result = render(book, strict=strict)
    if result.status:
        ending = f"jupyter-book ended with status {result.status}; its words are in {book.build}/logs/site.log"
        return [*result.complaints[:_MOST_COMPLAINTS], ending]
    if result.complaints:
        progress.say(f"  {len(result.complaints)} warnings do not count, for chapters are missing")
    return []


def verdicts(report: Report) -> str:
    """The verdict counts of all chapters, in one line."""
    return tables.verdict_counts([*report.ledgers.values()]) or "no claim was judged"


def keep_record(book: Book, chapter: str) -> Path:
    """Write the ledger of a finished run in profile `paper` to `book/records/`; a `Refusal` if there is none."""
    (chapter,) = book.choose([chapter])
    notebook = executed.read(book.executed("paper", chapter))
    if notebook is None or notebook.metadata[REPRO]["status"] != "ok" or notebook.metadata[REPRO]["changed"]:
        raise Refusal(f"{chapter} has no finished run to record: `leakage build {chapter} --profile paper` makes one.")
    ledger = collect.make_ledger(notebook, book.declarations(chapter))
    write_json(book.record(chapter), ledger)
    return book.record(chapter)


def state_lines(book: Book, parameters: Mapping[str, Any], *, checksum: Checksum) -> Iterator[str]:
    """For each chapter, whether its execution on disk is good for `parameters`, and its verdicts."""
    kind = content_keys.device_kind(runtime.pick_device(parameters["device"]))
    for chapter in book.chapters:
        plan = make_plan(book, chapter, parameters, checksum=checksum, device=kind)
        changed = f" (changed: {', '.join(plan.changed)})" if plan.changed else ""
        line = f"{chapter}: {plan.state}{changed}"
        notebook = executed.read(plan.target)
        if plan.state in ("fresh", "stale") and notebook is not None:
            ledger = collect.make_ledger(notebook, plan.declared)
            line += f", {ledger['seconds']:.0f} s, {tables.verdict_counts([ledger])}"
        yield line
