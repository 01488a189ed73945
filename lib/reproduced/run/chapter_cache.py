"""What a chapter's results depend on, whether those on disk are still good, and where they come from.

An executed notebook keeps in its metadata, under `EXECUTION_KEY`, the key of everything that it depends on, the parts
of that key, how its execution ended and its provenance; there is no separate index. Each profile has one executed
notebook: a run at another seed replaces it.
"""

import json
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

import leakage
from leakage import store
from reproduced import code_keys, runtime
from reproduced.run.book import Book, UserError, code

ABSENT = "absent"  # what `leakage.data.datasets.checksum` says of a data set that is not on this machine
EXECUTION_KEY = "repro"
PROVENANCE = ("commit", "dirty", "device", "device_name", "processor", "versions", "date")
_EXECUTION_FIELDS = ("key", "status", "error", "seconds", "profile", "seed", "data", "depends_on")
_SHORT = 16  # hexadecimal digits that tell versions of a file apart in a message; the key itself is whole
_TOOLS = ("torch", "numpy", "scipy", "scikit-learn", "matplotlib", "papermill", "jupyter-book")


@dataclass(frozen=True)
class Plan:
    """A notebook to execute with `parameters`, into `target` in the build folder of `book`.

    A page that claims nothing has only the first five fields and a key.
    """

    book: Book
    chapter: str
    notebook: NotebookNode
    parameters: Mapping[str, Any]
    target: Path
    # What it may read of the book, by names there, for a machine that has no such folder.
    files: Mapping[str, Path] = field(default_factory=dict)
    key: str = ""  # digest of everything in `depends_on`
    # Files, data, parameters and environment, each by a short digest or value; data by their checksum, or `ABSENT`.
    depends_on: Mapping[str, Any] = field(default_factory=dict)
    state: str = "new"  # `fresh` if the executed notebook on disk has this key, `stale` if another, `failed` or `new`
    changed: tuple[str, ...] = ()  # what differs from the execution on disk, if that is stale

    @property
    def working_notebook(self) -> Path:
        """The notebook that the chapter's process executes in place."""
        return self.target.with_name(f"{self.chapter}.partial.ipynb")

    @property
    def log(self) -> Path:
        """What papermill, the kernel and the cells print."""
        return self.book.build / "logs" / f"{self.chapter}.log"


def make_plan(book: Book, chapter: str, parameters: Mapping[str, Any], *, device: str) -> Plan:
    """Find out what the chapter depends on and compare it with the execution on disk, if there is one.

    The parameters are complete and checked; `device` is the kind of device that `parameters["device"]` means here.
    """
    code_keys.file_digest.cache_clear()  # files are edited between two plans
    notebook, declared = book.notebook(chapter), book.declarations(chapter)
    own = {path.relative_to(book.root).as_posix(): path for path in _own_files(book, chapter)}
    modules = code_keys.imported_files(code(notebook), lib=book.library)
    paths = own | {path.relative_to(book.library).as_posix(): path for path in modules}
    files = {name: code_keys.file_digest(path) for name, path in sorted(paths.items())}
    data = {name: data_checksum(name) for name in declared.data}
    values = {name: value for name, value in parameters.items() if name != "device"} | {"device": device}
    # The processor is no part of the key: verdicts do not depend on it, last digits may. Each page names it.
    parts = {"file": files, "data": data, "parameter": values, "version of": code_keys.environment(book.root)}
    short = {kind: {n: v[:_SHORT] if kind == "file" else v for n, v in part.items()} for kind, part in parts.items()}
    key, target = store.digest(parts), book.executed(parameters["profile"], chapter)
    executed = read(target)
    old = executed.metadata[EXECUTION_KEY] if executed else {}
    if not old:
        state = "new"
    elif old["status"] != "ok":
        state = "failed"
    else:
        state = "fresh" if old["key"] == key else "stale"
    return Plan(
        book,
        chapter,
        notebook,
        dict(parameters),
        target,
        files=own | {"_toc.yml": book.root / "_toc.yml"},  # by which a notebook finds its book
        key=key,
        depends_on=short,
        state=state,
        changed=tuple(differences(old["depends_on"], short)) if state == "stale" else (),
    )


def differences(old: Mapping[str, Mapping[str, Any]], new: Mapping[str, Mapping[str, Any]]) -> Iterable[str]:
    """Names of what changed, appeared or vanished between two executions."""
    for kind, part in new.items():
        before = old.get(kind, {})
        for name in sorted({*part, *before}):
            if part.get(name) != before.get(name):
                yield name if kind == "file" else f"{kind} {name}"


def _own_files(book: Book, chapter: str) -> set[Path]:
    """The chapter and every file of the book that carries its name: its claims, its record at full scale."""
    named = {*book.folder.glob(f"**/{chapter}.*"), *book.folder.glob(f"**/{chapter}/**/*")}
    hidden = {p for p in named if any(part.startswith(".") for part in p.relative_to(book.folder).parts)}
    return {p for p in named - hidden if p.is_file() and p.suffix != ".ipynb"}


def data_checksum(name: str) -> str:
    """The checksum of a data set of the library's registry; a `UserError` for one that is not in it."""
    from leakage.data import datasets  # data sets may be large: only for chapters that declare one

    try:
        return datasets.checksum(name)
    except ValueError as error:
        raise UserError(f"a claims file declares data that the registry does not have: {error}") from error


# ── executed notebooks ──────────────────────────────────────────────────────────────────────────────────────────────


def execution_metadata(plan: Plan, error: Mapping[str, Any] | None, seconds: float) -> dict[str, Any]:
    """What an executed notebook keeps of its plan and its end, besides where it ran."""
    return {
        "key": plan.key,
        "status": "failed" if error else "ok",
        "error": error,
        "seconds": seconds,
        "profile": plan.parameters["profile"],
        "seed": plan.parameters["seed"],
        "data": plan.depends_on["data"],
        "depends_on": plan.depends_on,
    }


def read(path: Path) -> NotebookNode | None:
    """The executed notebook; `None` if there is none, or one that is cut short or of another version of the book."""
    try:
        text = path.read_text("utf-8")
        complete = json.loads(text)["metadata"][EXECUTION_KEY].keys() == {*_EXECUTION_FIELDS, *PROVENANCE}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    return nbformat.reads(text, as_version=4) if complete else None


# ── provenance ──────────────────────────────────────────────────────────────────────────────────────────────────────


def execution_provenance(book: Book, device: str) -> dict[str, Any]:
    """Commit, versions, machine and time of an execution that starts now; `device` as the parameter says it."""
    commit, dirty, _ = read_commit(book.root)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {"commit": commit, "dirty": dirty, **machine_provenance(device), "date": now}


def machine_provenance(device: str) -> dict[str, Any]:
    """Device, processor and versions of what is executed in this process or one like it."""
    chosen = runtime.pick_device(device)
    kind = code_keys.device_kind(chosen)
    return {
        "device": chosen.type,
        "device_name": kind.removeprefix("cuda ") if chosen.type == "cuda" else f"CPU, {cores()} cores",
        "processor": code_keys.processor(),
        "versions": {"python": platform.python_version(), "leakage": leakage.__version__}
        | {name: metadata.version(name) for name in _TOOLS},
    }


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def read_commit(root: Path) -> tuple[str | None, bool, str]:
    """Commit of the repository, or `None`; whether files differ from it; and why git tells none, if it says why.

    A copy without `.git` that lies inside another repository has none: that one's commit says nothing of it. Records
    of earlier runs are no sources and do not count.
    """
    try:
        if _git(root, "rev-parse", "--show-cdup").strip():
            return None, False, ""
        head = _git(root, "rev-parse", "--verify", "HEAD").strip()
        return head, bool(_git(root, "status", "--porcelain", "--", ".", ":(exclude)book/records").strip()), ""
    except (OSError, subprocess.CalledProcessError) as error:
        reason = getattr(error, "stderr", str(error).encode()).decode("utf-8", "replace")
        return None, False, " ".join(reason.split()) if (root / ".git").exists() else ""


def _git(root: Path, *arguments: str) -> str:
    """What git says of the repository at `root`, whichever one the environment names, as it does inside a hook."""
    own = {n: value for n, value in os.environ.items() if not n.startswith("GIT_") or n.startswith("GIT_CONFIG")}
    command = ["git", "-C", root, *arguments]
    return subprocess.run(command, capture_output=True, check=True, env=own).stdout.decode("utf-8", "replace")
