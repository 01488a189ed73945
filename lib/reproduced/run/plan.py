"""What a chapter's results depend on, whether those on disk are still good, and where they come from.

The key and its parts are kept in the metadata of the executed notebook, so that no other file can disagree with it. A
kernel imports minutes after the plan was made; `changed_since` finds what did not stay as it was. Nothing here executes
or writes.
"""

import os
import platform
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

import leakage
from leakage import content_keys, fingerprints, sources
from reproduced.claims.declarations import Declarations
from reproduced.run.book import Book, Refusal, code
from reproduced.run.executed import REPRO, repro

__all__ = ["ABSENT", "REPRO", "Checksum", "Plan", "changed_since", "cores", "execution_provenance", "make_plan"]

ABSENT = "absent"  # what `leakage.data.fetch.checksum` says of a data set that is not on this machine
_SHORT = 16  # hexadecimal digits that tell versions of a file apart in a message; the key itself is whole
_TOOLS = ("torch", "numpy", "scipy", "scikit-learn", "matplotlib", "papermill", "jupyter-book")

Checksum = Callable[[str], str]


@dataclass(frozen=True)
class Plan:
    """One chapter, ready to be executed.

    Attributes:
        key: content key of everything in `depends_on`.
        depends_on: files, data, parameters and environment, each by a short digest or value.
        data: checksum of each declared data set, or `ABSENT`.
        declared: the claims as they were when this was planned.
        signatures: of every file in `depends_on`, by its name there, with its path; taken before it was read.
        state: `fresh` if the executed notebook on disk has this key, `stale` if another or if something changed while
            it was executed, `failed` or `new`.
        changed: what differs from the execution on disk; empty unless stale.
        processor: on which the execution on disk was made; "" if there is none.
    """

    chapter: str
    notebook: NotebookNode
    parameters: Mapping[str, Any]
    target: Path
    key: str
    depends_on: Mapping[str, Any]
    data: Mapping[str, str]
    declared: Declarations
    signatures: Mapping[str, tuple[Path, sources.Signature | None]]
    state: str
    changed: tuple[str, ...] = ()
    processor: str = ""


def make_plan(book: Book, chapter: str, parameters: Mapping[str, Any], *, checksum: Checksum, device: str) -> Plan:
    """Find out what the chapter depends on and compare it with the execution on disk, if there is one.

    Args:
        book: where everything lies.
        chapter: its name.
        parameters: all of them, checked.
        checksum: gives the checksum of a data set by name.
        device: the kind of device that `parameters["device"]` means here.
    """
    own = _signed(_own_files(book, chapter), relative_to=book.root)
    notebook, declared = book.notebook(chapter), book.declarations(chapter)
    modules = _signed(content_keys.module_files(code(notebook), package=book.package), relative_to=book.package.parent)
    signatures = own | modules
    files = {name: content_keys.file_digest(path) for name, (path, _) in sorted(signatures.items())}
    data = {name: checksum(name) for name in declared.data}
    values = {name: value for name, value in parameters.items() if name != "device"} | {"device": device}
    parts = {"file": files, "data": data, "parameter": values, "version of": content_keys.environment(book.root)}
    short = {kind: {n: v[:_SHORT] if kind == "file" else v for n, v in part.items()} for kind, part in parts.items()}
    key, target = fingerprints.fingerprint(parts), book.executed(parameters["profile"], chapter)
    old = repro(target)
    fresh = old and old["key"] == key and not old["changed"]
    state = "new" if not old else "failed" if old["status"] != "ok" else "fresh" if fresh else "stale"
    changed = dict.fromkeys([*old["changed"], *differences(old["depends_on"], short)]) if state == "stale" else ()
    return Plan(
        chapter,
        notebook,
        dict(parameters),
        target,
        key,
        short,
        data,
        declared,
        signatures,
        state,
        changed=tuple(changed),
        processor=old.get("processor", ""),
    )


def _signed(paths: Iterable[Path], *, relative_to: Path) -> dict[str, tuple[Path, sources.Signature | None]]:
    return {path.relative_to(relative_to).as_posix(): (path, sources.signature(path)) for path in paths}


def changed_since(plan: Plan, book: Book, *, checksum: Checksum) -> tuple[str, ...]:
    """Names of what is not as it was when the plan was made, or was changed and put back since.

    A file that a planned file newly refers to needs no look: the one that refers to it has changed.
    """
    files = [name for name, (path, signature) in plan.signatures.items() if sources.signature(path) != signature]
    added = _signed(_own_files(book, plan.chapter), relative_to=book.root).keys() - plan.signatures.keys()
    now = {"data": {name: checksum(name) for name in plan.data}, "version of": content_keys.environment(book.root)}
    return (*sorted({*files, *added}), *differences(plan.depends_on, now))


def differences(old: Mapping[str, Mapping[str, Any]], new: Mapping[str, Mapping[str, Any]]) -> Iterable[str]:
    """Names of what changed, appeared or vanished between two executions."""
    for kind, part in new.items():
        before = old.get(kind, {})
        for name in sorted({*part, *before}):
            if part.get(name) != before.get(name):
                yield name if kind == "file" else f"{kind} {name}"


def _own_files(book: Book, chapter: str) -> set[Path]:
    """The chapter and every file of the book that carries its name: claims, records, published values."""
    named = {*book.folder.glob(f"**/{chapter}.*"), *book.folder.glob(f"**/{chapter}/**/*")}
    hidden = {p for p in named if any(part.startswith(".") for part in p.relative_to(book.folder).parts)}
    return {p for p in named - hidden if p.is_file() and p.suffix != ".ipynb"}


def registered_checksum(name: str) -> str:
    """The checksum of a data set of the library's registry; a `Refusal` for one that is not in it."""
    from leakage.data import fetch  # data sets may be large: only for chapters that declare one

    try:
        return fetch.checksum(name)
    except ValueError as error:
        raise Refusal(f"a claims file declares data that the registry does not have: {error}") from error


def execution_provenance(book: Book, device: str) -> dict[str, Any]:
    """Commit, versions, machine and time of an execution that starts now; `device` as the parameter says it."""
    commit, dirty = _commit(book.root)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {"commit": commit, "dirty": dirty} | machine(device) | {"date": now}


def machine(device: str) -> dict[str, Any]:
    """Device, processor and versions of what is executed in this process or one like it."""
    from leakage import runtime  # and with it PyTorch, which nobody needs who shows what was executed

    chosen = runtime.pick_device(device)
    kind = content_keys.device_kind(chosen)
    return {
        "device": chosen.type,
        "device_name": kind.removeprefix("cuda ") if chosen.type == "cuda" else f"CPU, {cores()} cores",
        "processor": content_keys.processor(),
        "versions": {"python": platform.python_version(), "leakage": leakage.__version__}
        | {name: metadata.version(name) for name in _TOOLS},
    }


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _commit(root: Path) -> tuple[str | None, bool]:
    """Commit of the repository and whether files differ from it; (`None`, `False`) where there is no commit.

    A copy without `.git` that lies inside another repository has none: that one's commit says nothing of it. Records
    of earlier runs are no sources and do not count.
    """
    try:
        if _git(root, "rev-parse", "--show-cdup").strip():
            return None, False
        head = _git(root, "rev-parse", "--verify", "HEAD")
        return head.strip(), bool(_git(root, "status", "--porcelain", "--", ".", ":(exclude)book/records").strip())
    except (OSError, subprocess.CalledProcessError):
        return None, False


def _git(root: Path, *arguments: str) -> str:
    """What git says of the repository at `root`, whichever one the environment names, as it does inside a hook."""
    own = {n: value for n, value in os.environ.items() if not n.startswith("GIT_") or n.startswith("GIT_CONFIG")}
    command = ["git", "-C", root, *arguments]
    return subprocess.run(command, capture_output=True, check=True, env=own).stdout.decode("utf-8", "replace")
