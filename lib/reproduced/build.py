"""One build: execute what is not fresh, collect and compare the claims, stage the pages, render the site.

Everything that can be refused is refused before the first file is touched. The build fails, after everything else was
done, if a chapter that was asked for fails or has a verdict other than the expected one, or if the renderer warns.
"""

import fcntl
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from reproduced import code_keys, runtime
from reproduced.pages import render
from reproduced.pages.findings import ChapterFindings, read_all_findings, read_findings
from reproduced.pages.summaries import verdict_counts
from reproduced.run import chapter_cache
from reproduced.run.book import MARKER, Book, UserError, write_json, write_text
from reproduced.run.chapter_cache import EXECUTION_KEY, Plan, cores, make_plan
from reproduced.run.executor import ChapterExecutor, Progress, local_executor, run_plans

_MOST_COMPLAINTS = 20
_MARKED = "This folder was made by `leakage build`, which may overwrite and delete everything in it.\n"


@dataclass(frozen=True)
class Report:
    """What a build found; it succeeded if there is no fault."""

    findings: Mapping[str, ChapterFindings]
    faults: tuple[str, ...]


def build(
    book: Book,
    names: Sequence[str],
    parameters: Mapping[str, Any],
    *,
    executor: ChapterExecutor,
    rendered: bool = True,
    progress: Progress,
) -> Report:
    """Build the chapters named, all if none is, and the site around them.

    Other chapters are shown as they were last executed, and make no fault. The `parameters` are checked. Unless
    `rendered`, pages are staged but not rendered.

    Raises:
        UserError: if the request or the book is wrong; nothing was changed then.
    """
    chosen = book.choose(names)
    check(book)
    kind = code_keys.device_kind(runtime.pick_device(parameters["device"]))
    plans = {chapter: make_plan(book, chapter, parameters, device=kind) for chapter in book.chapters}
    with hold_build_folder(book.build):
        for chapter in chosen:
            progress.say(_plan_line(plans[chapter]))
        todo = {chapter: plans[chapter] for chapter in book.longest_first(chosen) if plans[chapter].state != "fresh"}
        for chapter in todo:  # what their last execution found goes first, whatever happens then
            book.findings_file(chapter).unlink(missing_ok=True)
        ends = {plan.chapter: execution for plan, execution in run_plans(todo, executor=executor, progress=progress)}
        faults = [ends[chapter].summary(chapter) for chapter in chosen if chapter in ends and ends[chapter].error]
        # All chapters asked for except those that could not be executed at all.
        answered = tuple(chapter for chapter in chosen if chapter not in ends or ends[chapter].notebook)
        read = {chapter: chapter_cache.read(plan.target) for chapter, plan in plans.items()}
        notebooks = {chapter: notebook for chapter, notebook in read.items() if notebook is not None}
        findings = _collect(book, notebooks)
        for chapter in (name for name in answered if name in findings):
            faults += findings[chapter].faults
        notes = _notes(plans, answered, notebooks)
        absent = render.stage(book, parameters["profile"], notebooks, findings, notes)
        faults += render.execute_pages(book)
        if rendered:
            faults += _render(book, strict=not absent and len(findings) == len(book.chapters), progress=progress)
    return Report(findings, tuple(faults))


def open_executor(
    book: Book, names: Sequence[str], device: str, *, jobs: int | None, cluster: str | None
) -> AbstractContextManager[ChapterExecutor]:
    """What executes the chapters named: processes of this machine, or the workers of the scheduler `cluster`.

    Here `jobs` run at a time, or one for each core: also on a GPU most of a chapter is computed on the CPU. Where fewer
    chapters run at a time than there are cores, the points of their grids use those that are left. On workers these run
    in turn.
    """
    if cluster is None:
        return local_executor(jobs or cores(), cores=cores())
    from reproduced.run.cluster import cluster_executor  # dask, only for its workers

    return cluster_executor(cluster, book, book.choose(names), device)


def check(book: Book) -> None:
    """A `UserError` of a book whose chapters cannot be executed, before anything is changed."""
    render.check(book)
    book.check_folder()


def mark_build_folder(folder: Path) -> None:
    """Make the folder, if there is none, and say in it that it is a build's."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / MARKER).open("a", encoding="utf-8") as marker:
        if not marker.tell():
            marker.write(_MARKED)


@contextmanager
def hold_build_folder(folder: Path) -> Iterator[None]:
    """Mark the build folder as one, hold it and remove what a killed build has left half done in it.

    The system lets go of it when this process ends, however it ends.
    """
    mark_build_folder(folder)
    with (folder / MARKER).open("a", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(f"another build is running in {folder}.") from error
        for left in folder.glob("executed/*/*.partial.ipynb"):
            left.unlink()
        shutil.rmtree(folder / "ipython", ignore_errors=True)  # kernels begin without a user's start-up files
        for left in folder.rglob("*.partial"):
            if "replications" not in left.relative_to(folder).parts:  # a replication may hold that folder now
                left.unlink(missing_ok=True)
        yield


def _plan_line(plan: Plan) -> str:
    reasons = {"new": "executing", "failed": "executing again, it failed the last time"}
    more = f" and {len(plan.changed) - 3} more" if len(plan.changed) > 3 else ""
    reasons["stale"] = f"executing, changed: {', '.join(plan.changed[:3])}{more}"
    return f"  {plan.chapter}: {reasons.get(plan.state, 'up to date')}"


def _collect(book: Book, notebooks: Mapping[str, NotebookNode]) -> dict[str, ChapterFindings]:
    """Write the findings of each chapter executed to its end in this profile, and remove all others."""
    findings = read_all_findings(book, notebooks)
    for chapter, found in findings.items():
        write_json(book.findings_file(chapter), found.as_json)
    for path in (book.build / "claims").glob("*.json"):
        if path.stem not in findings:
            path.unlink()
    return findings


def _notes(plans: Mapping[str, Plan], answered: Sequence[str], notebooks: Mapping[str, NotebookNode]) -> dict[str, str]:
    """What pages must say whose results are of an earlier run."""
    notes = {}
    for chapter in notebooks:
        if chapter not in answered and plans[chapter].state == "stale":
            since = ", ".join(plans[chapter].changed)
            notes[chapter] = f"The results on this page are of an earlier run; since then this has changed: {since}."
    return notes


def _render(book: Book, *, strict: bool, progress: Progress) -> list[str]:
    """Make the site; its faults, if the book was complete enough for it to have none."""
    progress.say("  rendering")
    status, complaints = render.render(book, strict=strict)
    if status:
        ending = f"jupyter-book ended with status {status}; its words are in {book.build}/logs/site.log"
        return [*complaints[:_MOST_COMPLAINTS], ending]
    if complaints:
        progress.say(f"  {len(complaints)} warnings do not count, for chapters are missing")
    return []


def verdict_line(report: Report) -> str:
    """The verdict counts of all chapters, in one line."""
    judgements = (one for found in report.findings.values() for one in found.judgements)
    return verdict_counts(judgements) or "no claim was judged"


def keep_record(book: Book, chapter: str) -> Path:
    """Write what the finished run in profile `paper` judged to `book/records/`, which makes the chapter stale.

    With each claim is kept the digest of the rule that judged it. A `UserError` if there is no such run, or none of a
    commit.
    """
    (chapter,) = book.choose([chapter])
    notebook = chapter_cache.read(book.executed("paper", chapter))
    if notebook is None or notebook.metadata[EXECUTION_KEY]["status"] != "ok":
        raise UserError(
            f"{chapter} has no finished run to record: `leakage build {chapter} --profile paper` makes one."
        )
    if notebook.metadata[EXECUTION_KEY]["commit"] is None:
        reason = chapter_cache.read_commit(book.root)[2] or "execute it again in a repository of git"
        raise UserError(f"{chapter} was executed without a commit, which a record must name: {reason}.")
    found = read_findings(notebook, book.declarations(chapter))
    # A line for the run, and one for each claim.
    run = json.dumps({**found.as_json, "claims": []}, ensure_ascii=False, allow_nan=False).removesuffix("]}")
    judged = [one.as_json for one in found.judgements if one.is_judged]
    rows = ",\n".join(json.dumps(one, ensure_ascii=False, allow_nan=False) for one in judged)
    write_text(book.full_scale_file(chapter), f"{run}\n{rows}\n]}}\n")
    return book.full_scale_file(chapter)


def state_lines(book: Book, parameters: Mapping[str, Any]) -> Iterator[str]:
    """For each chapter, whether its execution on disk is good for `parameters`, and its verdicts."""
    kind = code_keys.device_kind(runtime.pick_device(parameters["device"]))
    for chapter in book.chapters:
        plan = make_plan(book, chapter, parameters, device=kind)
        changed = f" (changed: {', '.join(plan.changed)})" if plan.changed else ""
        line = f"{chapter}: {plan.state}{changed}"
        notebook = chapter_cache.read(plan.target)
        if plan.state in ("fresh", "stale") and notebook is not None:
            found = read_findings(notebook, book.declarations(chapter))
            line += f", {found.run['seconds']:.0f} s, {verdict_counts(found.judgements)}"
        yield line
