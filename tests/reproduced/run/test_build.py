"""`leakage build` on a book in miniature: what runs, what is reused, what a reader and an exit status are told."""

import errno
import io
import json
import os
import signal
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import nbformat
import psutil
import pytest

from checking import HANGS, wait_until
from reproduced import build as building
from reproduced.run import chapter_cache, executor
from small_book import (
    LEAKAGE,
    RULE,
    add_chapter,
    build,
    copy_of,
    edit,
    executions,
    heed_interrupts,
    leakage,
    make_repository,
    read_findings,
    snapshot,
    staged,
    without_kernels,
)


def outputs(root: Path, name: str, profile: str = "ci") -> str:
    """All text that the cells of an executed chapter printed."""
    notebook = nbformat.read(root / "_build" / "executed" / profile / f"{name}.ipynb", as_version=4)
    code = (cell for cell in notebook.cells if cell.cell_type == "code")
    return "".join(output.get("text", "") for cell in code for output in cell.outputs)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A repository of two chapters, one of letters and one of numbers, that has been built."""
    # Papermill fills in what stands in braces in the name of its output.
    root = make_repository(tmp_path_factory.mktemp("finished") / "repository {seed} {", "words", "sums")
    environment = 'print([os.environ.get(n) for n in ("OMP_NUM_THREADS", "LEAKAGE_QUIET", "PYTHONHASHSEED")])'
    add_chapter(root, "words", "print(sys.executable, os.getcwd())", environment, module="letters")
    add_chapter(root, "sums", "print(numbers.VALUE, profile, seed)")
    edit(root / "book/claims/sums.yml", "paper: key", "paper: key\ndata: [mnist]")
    with redirect_stdout(io.StringIO()), pytest.MonkeyPatch.context() as patch:
        patch.setattr(chapter_cache, "data_checksum", lambda name: "absent")
        assert build(root, "--seed", "5", "--jobs", "2") == 0
    return root


@pytest.fixture
def repository(finished, tmp_path, monkeypatch):
    """A copy of the built repository, to change."""
    monkeypatch.setattr(chapter_cache, "data_checksum", lambda name: "absent")
    return copy_of(finished, tmp_path / "repository")


def rebuild(root: Path, *arguments: str) -> tuple[int, list[str]]:
    """Build again with the fixture's seed; the exit status, and what was executed by it."""
    before = len(executions(root))
    status = build(root, "--seed", "5", *arguments)
    return status, executions(root)[before:]


# ── what a build leaves ─────────────────────────────────────────────────────────────────────────────────────────────


def test_each_chapter_ran_once_with_the_parameters_given(finished):
    assert sorted(executions(finished)) == ["sums", "words"]
    assert "3 ci 5" in outputs(finished, "sums")


def test_kernels_are_of_this_interpreter_and_start_in_the_repository(finished):
    assert f"{sys.executable} {finished}" in outputs(finished, "words")


def test_kernels_have_limited_threads_no_bars_and_a_fixed_hash(finished):
    assert str(["1", "1", "0"]) in outputs(finished, "words")


def test_the_injected_parameters_are_folded_and_no_machine_path_is_kept(finished):
    notebook = nbformat.read(finished / "_build" / "executed" / "ci" / "sums.ipynb", as_version=4)
    (injected,) = [cell for cell in notebook.cells if "injected-parameters" in cell.metadata.get("tags", [])]
    assert "hide-input" in injected.metadata["tags"]
    assert str(finished) not in nbformat.writes(notebook)


def test_the_findings_say_what_was_found_and_where_it_comes_from(finished):
    found = read_findings(finished, "sums")
    assert (found["profile"], found["seed"], found["device"], found["commit"]) == ("ci", 5, "cpu", None)
    assert found["versions"]["python"] == sys.version.split()[0]
    (claim,) = found["claims"]
    expected = {
        "id": "sums.a",
        "verdict": "held",
        "expected": "held",
        "paper": "1.05",
        "kind": "figure",
        "seconds": 0.1,
    }
    assert claim | expected == claim


# ── what is reused ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_nothing_is_executed_twice_not_even_in_a_copy_of_the_repository(repository):
    assert rebuild(repository) == (0, [])


def test_an_edited_module_runs_the_chapters_that_import_it_and_no_other(repository, capsys, monkeypatch):
    without_kernels(monkeypatch)
    edit(repository / "lib/leakage/alphabet.py", "abc", "abcd")
    assert rebuild(repository) == (0, ["words"])
    assert "changed: leakage/alphabet.py" in capsys.readouterr().out


def test_another_data_set_makes_only_the_chapter_stale_that_declares_it(repository, monkeypatch, capsys):
    monkeypatch.setattr(chapter_cache, "data_checksum", lambda name: "f00d")
    assert leakage(repository, "status", "--seed", "5") == 0
    words, sums = capsys.readouterr().out.splitlines()
    assert words.startswith("words: fresh, ")
    assert sums.startswith("sums: stale (changed: data mnist), ")
    assert sums.endswith("✓ 1 held")


DAMAGES = {
    "cut short": lambda good: good[: len(good) // 2],
    "another file": lambda good: b"{}",
    "no text": lambda good: b"\xff\xfe",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_notebook_counts_as_none(repository, monkeypatch, capsys, damage):
    without_kernels(monkeypatch)
    path = repository / "_build/executed/ci/sums.ipynb"
    path.write_bytes(damage(path.read_bytes()))
    assert rebuild(repository, "words") == (0, [])
    assert leakage(repository, "status", "--seed", "5") == 0
    assert "sums: new" in capsys.readouterr().out
    assert leakage(repository, "record", "sums") == 2
    assert not (repository / "_build/claims/sums.json").exists()
    assert rebuild(repository) == (0, ["sums"])


@pytest.mark.slow
def test_an_interrupted_build_ends_its_kernels_and_is_no_failure_of_a_chapter(tmp_path):
    root = make_repository(tmp_path / "repository", "one")
    add_chapter(root, "one", "time.sleep(10**6)")
    command = [*LEAKAGE, "build", "--no-render", "--root", root]
    runner = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, preexec_fn=heed_interrupts
    )
    wait_until(lambda: executions(root) == ["one"])
    family = psutil.Process(runner.pid).children(recursive=True)
    runner.send_signal(signal.SIGINT)
    _, told = runner.communicate(timeout=HANGS)
    assert runner.returncode == 130
    assert told.strip() == "leakage: interrupted; what was finished is kept, and the next build goes on from there."
    wait_until(lambda: not any(member.is_running() and member.status() != "zombie" for member in family))
    assert not (root / "_build" / "executed" / "ci" / "one.ipynb").exists()


# ── what fails ──────────────────────────────────────────────────────────────────────────────────────────────────────

BREAKAGES = {
    "raises": ('raise ValueError("no luck\\nat all")', "in cell 5 of 6", "ValueError: no luck at all"),
    "killed": ("os.kill(os.getpid(), 9)", "in cell 5 of 6", "DeadKernelError: the kernel was killed or crashed"),
    "exits": ("sys.exit(0)", "in cell 5 of 6", "SystemExit: 0"),
    "orphans": ("os.kill(os.getppid(), 9); time.sleep(10**6)", "in cell 5 of 6", "its process ended with exit code -9"),
}


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """A repository in which one chapter is sound and each other one fails in its own way; root, status and errors."""
    root = make_repository(tmp_path_factory.mktemp("broken") / "repository", "sound", *BREAKAGES)
    add_chapter(root, "sound")
    for name, (source, *_) in BREAKAGES.items():
        add_chapter(root, name, source)
        old = root / "_build" / "claims" / f"{name}.json"
        old.parent.mkdir(parents=True, exist_ok=True)
        old.write_text("{}")
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as told:
        status = build(root, "--jobs", "3")
    return root, status, told.getvalue()


def test_failing_chapters_stop_no_other_and_make_the_build_fail(broken):
    root, status, told = broken
    assert status == 1
    assert sorted(executions(root)) == sorted(["sound", *BREAKAGES]), told
    assert read_findings(root, "sound")["claims"][0]["verdict"] == "held"


@pytest.mark.parametrize("name", BREAKAGES)
def test_a_failure_is_told_with_chapter_cell_seconds_and_error_in_one_line(broken, name):
    _, where, error = BREAKAGES[name]
    (line,) = [line for line in broken[2].splitlines() if line.startswith(f"✗ {name}:")]
    assert where in line
    assert " s: " in line
    assert error in line


@pytest.mark.slow
def test_a_cell_that_takes_too_long_is_ended(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(executor.CELL_SECONDS, "ci", 1)
    root = make_repository(tmp_path / "repository", "slow")
    add_chapter(root, "slow", "time.sleep(10**6)")
    assert build(root) == 1
    # Which cell that is, a busy machine may decide.
    assert capsys.readouterr().err.strip().endswith(" s: CellTimeoutError: the cell took longer than 1 s")


@pytest.mark.parametrize("name", BREAKAGES)
def test_a_failed_chapter_loses_its_old_claims_and_shows_its_error(broken, name):
    root, *_ = broken
    assert not (root / "_build" / "claims" / f"{name}.json").exists()
    notebook = nbformat.reads(staged(root, f"{name}.ipynb"), as_version=4)
    errors = [output for cell in notebook.cells for output in cell.get("outputs", []) if output.output_type == "error"]
    assert len(errors) == 1
    assert f"# Chapter {name}\n\n```{{warning}}\nThis chapter stopped in code cell 5 of 6" in notebook.cells[0].source
    assert "papermill-error" not in staged(root, f"{name}.ipynb")


def test_the_scoreboard_names_the_chapters_that_failed(broken):
    board = staged(broken[0], "_generated/scoreboard.md")
    assert board.count("did not run to its end") == len(BREAKAGES)
    assert board.count('id="row-sound-a"') == 1


def test_a_failed_chapter_is_not_taken_for_fresh(broken, capsys):
    assert leakage(broken[0], "status") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(",")[0] for line in lines] == ["sound: fresh", *(f"{name}: failed" for name in BREAKAGES)]


def test_a_verdict_that_differs_from_the_declared_one_fails_the_build(repository, capsys, monkeypatch):
    without_kernels(monkeypatch)
    edit(repository / "book/claims/sums.yml", '"held"', '"did not hold"')
    edit(repository / "book/sums.md", "'reason': ''", "'reason': 'so'")
    assert rebuild(repository)[0] == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"sums.a: expected did not hold, measured held: 1.00 [0.90, 1.10] against {RULE}"


# ── a subset of the chapters ────────────────────────────────────────────────────────────────────────────────────────


def test_chapters_not_asked_for_are_shown_as_they_were_with_a_note_if_they_changed(repository):
    edit(repository / "lib/leakage/alphabet.py", "abc", "abcd")
    assert rebuild(repository, "sums") == (0, [])
    assert "of an earlier run; since then this has changed: leakage/alphabet.py." in staged(repository, "words.ipynb")
    assert "earlier run" not in staged(repository, "sums.ipynb")


def test_chapters_never_executed_stand_as_a_note_with_their_title_and_labels(repository):
    (repository / "_build/executed/ci/words.ipynb").unlink()
    assert rebuild(repository, "sums") == (0, [])
    page = staged(repository, "words.md")
    assert page.startswith("(ch-words)=\n# Chapter words\n\n```{warning}\nThis chapter was not executed")
    assert not (repository / "_build/claims/words.json").exists()


def test_a_full_disk_ends_a_build_in_one_line(repository, capsys, monkeypatch):
    def refuse(*given, **more):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(repository / "_build" / "x"))

    monkeypatch.setattr(building, "run_plans", refuse)
    assert build(repository) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("leakage: ")
    assert all(words in line for words in (os.strerror(errno.ENOSPC), "_build", "what was finished is kept"))


# ── what is refused ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nosuch"], "'nosuch' is no chapter; the chapters are: words, sums."),
        (["--profile", "big"], "`profile` must be one of smoke, ci, paper; got 'big'."),
        (["--seed", "-1"], "`seed` must be a whole number from 0 to 4294967295; got -1."),
        (["--device", "gpu"], "`device` must be one of auto, cpu"),
        (["--jobs", "0"], "argument --jobs: must be a whole number from 1 to 1024; got '0'."),
    ],
)
def test_a_wrong_request_gets_one_line_and_changes_nothing(repository, capsys, arguments, message):
    before = snapshot(repository)
    assert build(repository, *arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("leakage: ")
    assert message in line
    assert snapshot(repository) == before


def test_two_builds_into_one_folder_are_refused(repository, capsys):
    with building.hold_build_folder(repository / "_build"):
        assert build(repository) == 2
    assert "another build is running" in capsys.readouterr().err


def test_a_repository_of_another_owner_is_said_in_gits_words(repository, capsys, monkeypatch):
    without_kernels(monkeypatch)

    def refuse(root, *arguments):
        raise subprocess.CalledProcessError(
            128, "git", stderr=b"fatal: detected dubious ownership\nTo add an exception"
        )

    (repository / ".git").mkdir()
    monkeypatch.setattr(chapter_cache, "_git", refuse)
    assert build(repository, "--seed", "5") == 0
    assert "leakage: the results have no commit: fatal: detected dubious ownership To add" in capsys.readouterr().err
    assert leakage(repository, "replicate") == 2
    assert "dubious ownership" in capsys.readouterr().err


# ── the other commands ──────────────────────────────────────────────────────────────────────────────────────────────


def test_only_a_finished_full_scale_run_is_recorded_and_it_makes_the_page_stale(repository, capsys, monkeypatch):
    without_kernels(monkeypatch)
    assert leakage(repository, "record", "sums") == 2
    assert "`leakage build sums --profile paper` makes one" in capsys.readouterr().err
    assert build(repository, "sums", "--profile", "paper") == 0
    assert leakage(repository, "record", "sums") == 2
    assert "executed without a commit" in capsys.readouterr().err
    monkeypatch.setattr(chapter_cache, "read_commit", lambda root: ("f00d", False, ""))
    (repository / "_build/executed/paper/sums.ipynb").unlink()
    assert build(repository, "sums", "--profile", "paper") == 0
    assert leakage(repository, "record", "sums") == 0
    kept = json.loads((repository / "book/records/sums.json").read_text("utf-8"))
    assert (kept["profile"], kept["claims"][0]["id"]) == ("paper", "sums.a")
    assert kept["claims"][0]["rule_digest"] == "0123456789ab"  # of the rule that judged, not today's
    assert rebuild(repository) == (0, ["sums"])


def test_a_warning_of_the_renderer_fails_the_build_and_the_site_is_kept(repository, capsys):
    edit(repository / "book/intro.md", "# A small book", "# A small book\n\n{ref}`nowhere`\n")
    assert build(repository, "--seed", "5", render=True) == 1
    printed = capsys.readouterr()
    assert "undefined label: 'nowhere'" in printed.err
    assert "\x1b" not in printed.err
    site = repository / "_build/site/_build/html"
    assert f"The book: {site / 'index.html'}" in printed.out
    assert 'class="verdict-sign held">✓' in (site / "intro.html").read_text("utf-8")
