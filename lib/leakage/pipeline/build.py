"""One build: execute what is not fresh, collect and compare the claims, stage the pages, render the site.

Everything that can be refused is refused before the first file is touched. A chapter that fails, a verdict that differs
from the declared one and a warning of the renderer each make the build fail, after everything else was done.
"""

import fcntl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import count, takewhile
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from leakage import keys, runtime
from leakage.pipeline import collect, contents, execute, tables
from leakage.pipeline.book import Book, Refusal
from leakage.pipeline.execute import Outcome
from leakage.pipeline.plan import REPRO, Checksum, Plan, cores, execution_provenance, make_plan, repro
from leakage.pipeline.progress import Progress, outcome_line
from leakage.pipeline.render import render, stage
from leakage.pipeline.storage import MARKED, MARKER, write_json
from leakage.pipeline.worker import Task

CELL_SECONDS = {"smoke": 120, "ci": 600, "paper": 3600}  # the longest a cell may take, by profile
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
    kind = keys.device_kind(device)
    plans = {c: make_plan(book, c, parameters, checksum=checksum, device=kind) for c in book.chapters}
    with _alone(book.build):
        todo = [plans[chapter] for chapter in chosen if plans[chapter].state != "fresh"]
        for chapter in chosen:
            progress.say(_intention(plans[chapter]))
        limit = cell_seconds or CELL_SECONDS[parameters["profile"]]
        outcomes = _execute(book, todo, jobs=jobs, gpus=_gpus(parameters["device"]), limit=limit, progress=progress)
        faults = [outcome_line(outcome) for outcome in outcomes if not outcome.ok]
        ledgers = _collect(book, parameters["profile"])
        faults += [line for chapter in chosen if chapter in ledgers for line in _judgement(book, plans[chapter])]
        absent = stage(book, parameters["profile"], ledgers, _notes(plans, chosen))
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
    changed = f"executing, changed: {', '.join(plan.changed[:3])}{more}"
    return f"  {plan.chapter}: {'up to date' if plan.state == 'fresh' else reasons.get(plan.state, changed)}"


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
    book: Book, plans: Sequence[Plan], *, jobs: int | None, gpus: Sequence[str], limit: int, progress: Progress
) -> list[Outcome]:
    """Execute the chapters planned; the ledgers of their last execution go first, whatever happens then."""
    if not plans:
        return []
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
        for plan in plans
    ]

    def finish(task: Task, notebook: NotebookNode, outcome: Outcome) -> None:
        notebook.metadata[REPRO] = _repro(by_chapter[task.chapter], outcome) | provenance

    return execute.run(tasks, jobs=at_a_time, gpus=gpus, tell=progress.tell, finish=finish)


def _repro(plan: Plan, outcome: Outcome) -> dict[str, Any]:
    error = None if outcome.ok else {k: v for k, v in asdict(outcome).items() if k in ("cell", "cells", "error")}
    return {
        "key": plan.key,
        "status": "ok" if outcome.ok else "failed",
        "error": error,
        "seconds": outcome.seconds,
        "profile": plan.parameters["profile"],
        "seed": plan.parameters["seed"],
        "data": dict(plan.data),
        "depends_on": plan.depends_on,
    }


def _collect(book: Book, profile: str) -> dict[str, dict[str, Any]]:
    """Write the ledger of every chapter executed to its end in this profile, and remove all others."""
    ledgers = {}
    for chapter in book.chapters:
        path = book.executed(profile, chapter)
        if repro(path).get("status") == "ok":
            notebook = nbformat.read(path, as_version=4)
            ledgers[chapter] = collect.make_ledger(notebook, book.declarations(chapter))
            write_json(book.ledger(chapter), ledgers[chapter])
    for path in (book.build / "claims").glob("*.json"):
        if path.stem not in ledgers:
            path.unlink()
    return ledgers


def _judgement(book: Book, plan: Plan) -> list[str]:
    return collect.faults(nbformat.read(plan.target, as_version=4), book.declarations(plan.chapter))


def _notes(plans: Mapping[str, Plan], chosen: Sequence[str]) -> dict[str, str]:
    """What the pages that were not asked for must say, should their results be of another version or run."""
    stale = [plan for plan in plans.values() if plan.chapter not in chosen and plan.state == "stale"]
    return {
        plan.chapter: "The results on this page are of an earlier run; since then this has changed: "
        + ", ".join(plan.changed)
        + "."
        for plan in stale
    }


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
    path = book.executed("paper", chapter)
    if repro(path).get("status") != "ok":
        raise Refusal(f"{chapter} has no finished run to record: `leakage build {chapter} --profile paper` makes one.")
    ledger = collect.make_ledger(nbformat.read(path, as_version=4), book.declarations(chapter))
    write_json(book.record(chapter), ledger)
    return book.record(chapter)


def state_lines(book: Book, parameters: Mapping[str, Any], *, checksum: Checksum) -> Iterator[str]:
    """For each chapter, whether its execution on disk is good for `parameters`, and its verdicts."""
    kind = keys.device_kind(runtime.pick_device(parameters["device"]))
    for chapter in book.chapters:
        plan = make_plan(book, chapter, parameters, checksum=checksum, device=kind)
        changed = f" (changed: {', '.join(plan.changed)})" if plan.changed else ""
        line = f"{chapter}: {plan.state}{changed}"
        if plan.state in ("fresh", "stale"):
            notebook = nbformat.read(plan.target, as_version=4)
            ledger = collect.make_ledger(notebook, book.declarations(chapter))
            line += f", {ledger['seconds']:.0f} s, {tables.verdict_counts([ledger])}"
        yield line
