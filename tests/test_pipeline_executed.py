"""An executed notebook is believed only if it is what was written, and of files that stayed as they were meanwhile.

Chapters run without a kernel here: their cells are not executed, only the claim records in them are shown.
"""

import io
import json
import os
import shutil
from multiprocessing import Pipe
from pathlib import Path

import nbformat
import pytest
from papermill.engines import NBClientEngine

from kernels import Meanwhile, without_kernels
from miniature import add_chapter, build, copy_of, edit, executions, leakage, ledger, make_repository, staged
from reproduced.run import execute, plan, worker
from reproduced.run.book import STANDARD, open_book
from reproduced.run.build import build as build_book
from reproduced.run.progress import Progress
from reproduced.run.worker import Started


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A repository of two chapters that has been built."""
    root = make_repository(tmp_path_factory.mktemp("finished") / "repository", "words", "sums")
    add_chapter(root, "words", module="letters")
    add_chapter(root, "sums")
    edit(root / "book/claims/sums.yml", "paper: key", "paper: key\ndata: [mnist]")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "registered_checksum", lambda name: "absent")
        without_kernels(patch)
        assert build(root) == 0
    return root


@pytest.fixture
def repository(finished, tmp_path, monkeypatch):
    """A copy of the built repository, to change."""
    monkeypatch.setattr(plan, "registered_checksum", lambda name: "absent")
    without_kernels(monkeypatch)
    return copy_of(finished, tmp_path / "repository")


# ── what changes while a chapter runs ───────────────────────────────────────────────────────────────────────────────


def put_back(root: Path) -> None:
    """Edit a module, and then put it back with its date."""
    module = root / "lib/leakage/numbers.py"
    before, text = module.stat(), module.read_text("utf-8")
    module.write_text("VALUE = 666\n", "utf-8")
    module.write_text(text, "utf-8")
    os.utime(module, ns=(before.st_atime_ns, before.st_mtime_ns))


# What `leakage record` writes, without a claim.
RECORD = json.dumps(
    {**dict.fromkeys(("profile", "device", "date"), "x"), "commit": None, "dirty": False, "seed": 0, "claims": []}
)

CHANGES: dict[str, Meanwhile] = {
    "leakage/numbers.py": lambda root: edit(root / "lib/leakage/numbers.py", "3", "4"),
    "leakage/numbers.py ": put_back,
    "book/sums.md": lambda root: edit(root / "book/sums.md", "Words.", "Other words."),
    "book/claims/sums.yml": lambda root: edit(root / "book/claims/sums.yml", "Figure 1", "Figure 2"),
    "book/records/sums.json": lambda root: (root / "book/records/sums.json").write_text(RECORD),
    "version of lock": lambda root: (root / "requirements.txt").write_text("torch==1"),
}


@pytest.mark.parametrize("changed", CHANGES)
def test_what_changes_while_a_chapter_runs_is_told_and_the_next_build_runs_it_again(
    repository, monkeypatch, capsys, changed
):
    edit(repository / "book/sums.md", "# Chapter sums", "# Chapter of sums")
    without_kernels(monkeypatch, CHANGES[changed])
    assert build(repository, "sums") == 1
    line = f"sums: {changed.strip()} changed while it ran, so build it again."
    assert line in capsys.readouterr().err.splitlines()
    assert f"While this chapter ran, this changed: {changed.strip()}." in staged(repository, "sums.ipynb")
    assert ledger(repository, "sums")["claims"][0]["where"] == "Figure 1", "the claims are those it was planned with"
    assert leakage(repository, "status") == 0
    assert f"sums: stale (changed: {changed.strip()}" in capsys.readouterr().out
    without_kernels(monkeypatch)
    before = len(executions(repository))
    assert build(repository, "sums") == 0
    assert executions(repository)[before:] == ["sums"]
    assert build(repository, "sums") == 0
    assert executions(repository)[before:] == ["sums"]


def test_data_that_change_while_a_chapter_runs_are_told(repository, monkeypatch, capsys):
    edit(repository / "book/sums.md", "# Chapter sums", "# Chapter of sums")
    without_kernels(monkeypatch, lambda _: monkeypatch.setattr(plan, "registered_checksum", lambda name: "f00d"))
    answers = iter(["absent"])
    monkeypatch.setattr(plan, "registered_checksum", lambda name: next(answers, "f00d"))
    assert build(repository) == 1
    assert "sums: data mnist changed while it ran, so build it again." in capsys.readouterr().err


def test_what_a_chapter_does_not_import_may_change_while_it_runs(repository, monkeypatch):
    edit(repository / "book/sums.md", "# Chapter sums", "# Chapter of sums")
    without_kernels(monkeypatch, lambda root: edit(root / "lib/leakage/alphabet.py", "abc", "abcd"))
    assert build(repository, "sums") == 0


def test_another_data_set_makes_only_the_chapter_stale_that_declares_it(repository, monkeypatch, capsys):
    monkeypatch.setattr(plan, "registered_checksum", lambda name: "f00d")
    assert leakage(repository, "status") == 0
    assert [line.split(",")[0] for line in capsys.readouterr().out.splitlines()] == [
        "words: fresh",
        "sums: stale (changed: data mnist)",
    ]


def test_an_execution_of_another_processor_counts_and_says_so(repository, monkeypatch, capsys):
    monkeypatch.setattr(plan.content_keys, "processor", lambda: "abacus")
    before = executions(repository)
    assert build(repository) == 0
    assert executions(repository) == before
    assert capsys.readouterr().out.count(": up to date, from another processor (") == 2


def test_a_package_whose_path_cannot_be_told_to_a_kernel_is_refused(finished, tmp_path, capsys):
    root = copy_of(finished, tmp_path / f"a{os.pathsep}b")
    assert build(root) == 2
    assert f"no folder above the package may have '{os.pathsep}' in its name" in capsys.readouterr().err


# ── what is altered afterwards ──────────────────────────────────────────────────────────────────────────────────────


ALTERATIONS = {
    "cut short": lambda good: good[: len(good) // 2],
    "empty": lambda good: b"",
    "another file": lambda good: b"{}",
    "no text": lambda good: b"\xff\xfe",
    "a verdict changed by hand": lambda good: good.replace(b'"verdict": "held"', b'"verdict": "did not hold"'),
}


@pytest.mark.parametrize("alter", ALTERATIONS.values(), ids=ALTERATIONS)
def test_an_altered_notebook_counts_as_none(repository, capsys, alter):
    path = repository / "_build/executed/ci/sums.ipynb"
    good = path.read_bytes()
    path.write_bytes(alter(good))
    assert path.read_bytes() != good
    assert build(repository, "words") == 0, "another chapter than the one that was altered"
    assert leakage(repository, "status") == 0
    assert "sums: new" in capsys.readouterr().out
    assert leakage(repository, "record", "sums") == 2
    assert not (repository / "_build/claims/sums.json").exists()
    before = len(executions(repository))
    assert build(repository) == 0
    assert executions(repository)[before:] == ["sums"]


def test_the_spaces_of_a_notebook_do_not_matter(repository):
    path = repository / "_build/executed/ci/sums.ipynb"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8"))), "utf-8")
    before = executions(repository)
    assert build(repository) == 0
    assert executions(repository) == before


def test_what_a_killed_build_left_beside_an_executed_notebook_is_removed(repository):
    left = repository / "_build/executed/ci/sums.partial.ipynb"
    shutil.copy(left.with_name("sums.ipynb"), left)
    assert build(repository) == 0
    assert not left.exists()


# ── who watches ─────────────────────────────────────────────────────────────────────────────────────────────────────


class Gone(io.TextIOBase):
    """The stream of a terminal that was closed."""

    def isatty(self):
        return False

    def write(self, text):
        raise OSError("Input/output error")


def test_a_terminal_that_goes_away_is_no_failure_of_a_chapter(repository):
    book = open_book(repository)
    shutil.rmtree(book.build / "executed")
    with Progress(Gone()) as progress:
        report = build_book(book, [], STANDARD, checksum=lambda _: "absent", rendered=False, progress=progress)
    assert (report.faults, len(report.ledgers)) == ((), 2)


def test_an_error_of_who_is_told_is_not_taken_for_the_end_of_what_is_told():
    receiving, sending = Pipe(duplex=False)
    sending.send(Started("sums", 1, 6))
    sending.send("")
    sending.close()
    messages = execute._received(receiving)
    assert next(messages) == Started("sums", 1, 6)
    with pytest.raises(OSError, match="gone"):
        messages.throw(OSError("the terminal is gone"))
    assert list(execute._received(receiving)) == [""]


@pytest.mark.parametrize(
    ("deaths", "begun", "starts", "said"),
    [
        (1, False, 2, ""),
        (3, False, 3, "RuntimeError: Kernel died before replying to kernel_info"),
        (1, True, 1, "RuntimeError: Kernel died before replying to kernel_info"),
    ],
)
def test_a_kernel_that_dies_before_its_first_cell_is_started_again(monkeypatch, tmp_path, deaths, begun, starts, said):
    started = []

    def run(notebook, kernel_name, **rest):
        started.append(kernel_name)
        if begun:
            notebook.cell_start(notebook.nb.cells[0], 0)
        if len(started) <= deaths:
            raise RuntimeError("Kernel died before replying to kernel_info")

    monkeypatch.setattr(NBClientEngine, "execute_managed_notebook", run)
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1")], metadata=kernel)
    task = worker.Task("sums", nbformat.writes(notebook), {}, tmp_path / "sums.ipynb", tmp_path, tmp_path / "log", 60)
    _, sending = Pipe(duplex=False)
    assert (worker._papermill(task, sending), len(started)) == (said, starts)
