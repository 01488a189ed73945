"""Plans carried out: each becomes a task, and each executed notebook says what it was made of and where it comes from.

Everything is executed into the build folder of its own book, so that one pass can serve many. Where it runs is the
caller's choice; what is written, and by whom, does not depend on it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import nbformat
from nbformat import NotebookNode

from reproduced.run import execute
from reproduced.run.book import Book
from reproduced.run.execute import Outcome, Place
from reproduced.run.executed import REPRO
from reproduced.run.plan import Checksum, Plan, changed_since, execution_provenance
from reproduced.run.worker import Task


@dataclass(frozen=True)
class Work:
    """A plan to be executed into the build folder of `book`; `name` is what is told of it, if not the chapter."""

    book: Book
    plan: Plan
    name: str = ""


@dataclass(frozen=True)
class End:
    """How it ended, and whether it was executed at all; if not, that says nothing of the chapter."""

    work: Work
    outcome: Outcome
    executed: bool


def carry_out(
    book: Book,
    work: Iterable[Work],
    *,
    place: Place,
    device: str,
    limit: int,
    checksum: Checksum,
    tell: execute.Listener,
) -> Iterator[End]:
    """Execute plans and put the notebooks in their places, as they end.

    Args:
        book: whose package and commit it is.
        work: taken one by one, as there is room.
        place: where chapters run.
        device: the parameter of all of them.
        limit: seconds that a cell may take.
        checksum: gives the checksum of a data set by name.
        tell: called with every event.
    """
    provenance = execution_provenance(book, device)
    begun: dict[str, Work] = {}

    def tasks() -> Iterator[Task]:
        for one in work:
            begun[one.plan.key] = one
            yield _task(one, limit)

    def finish(task: Task, notebook: NotebookNode, outcome: Outcome) -> None:
        one = begun[task.key]
        changed = {"changed": list(changed_since(one.plan, one.book, checksum=checksum))}
        notebook.metadata[REPRO] = _repro(one.plan, outcome) | provenance | dict(outcome.machine) | changed

    for task, outcome, done in execute.run(tasks(), place=place, tell=tell, finish=finish):
        yield End(begun.pop(task.key), outcome, done)


def _task(work: Work, limit: int) -> Task:
    book, plan = work.book, work.plan
    read = {name: path for name, (path, _) in plan.signatures.items() if path.is_relative_to(book.folder)}
    # By these a chapter finds its book, and its grids their packages.
    read |= {name: path for name in ("_toc.yml", "requirements.txt") if (path := book.root / name).is_file()}
    return Task(
        chapter=plan.chapter,
        notebook=nbformat.writes(plan.notebook),
        parameters=plan.parameters,
        target=plan.target,
        folder=book.root,
        log=book.build / "logs" / f"{plan.chapter}.log",
        cell_seconds=limit,
        variables=execute.kernel_variables(package=book.package, build=book.build),
        key=plan.key,
        name=work.name,
        files=read,
    )


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
