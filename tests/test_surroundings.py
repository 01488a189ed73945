"""What is around a build may be missing or full: one line says so, and nothing is lost."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from judgements import judgement, ledger
from miniature import add_chapter, build, make_repository
from patience import HANGS
from reproduced import build as building
from reproduced.pages import claim_tables, summaries
from reproduced.run import chapter_cache


@pytest.fixture
def book(tmp_path):
    """A book of one chapter that was never built."""
    root = make_repository(tmp_path / "repository", "sums")
    add_chapter(root, "sums")
    return root


# ── the file system ─────────────────────────────────────────────────────────────────────────────────────────────────


def is_one_line(status: int, err: str, *words: str) -> bool:
    return status == 1 and err.startswith("leakage: ") and err.count("\n") == 1 and all(word in err for word in words)


def test_a_full_disk_ends_a_build_in_one_line(book, capsys, monkeypatch):
    def refuse(*given, **more):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(book / "_build" / "x"))

    monkeypatch.setattr(building, "run_plans", refuse)
    words = os.strerror(errno.ENOSPC), "_build", "what was finished is kept"
    assert is_one_line(build(book), capsys.readouterr().err, *words)


# ── the installation ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_package_that_is_not_installed_is_named_with_the_extra_that_has_it(book):
    code = "import sys; sys.modules['{}'] = None; from reproduced import command_line; sys.exit(command_line.main({}))"
    for package, command in (("jupytext", "status"), ("jupytext", "build")):
        arguments = [command, "--root", str(book)]
        script = [sys.executable, "-c", code.format(package, arguments)]
        done = subprocess.run(script, capture_output=True, text=True, timeout=HANGS)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(
            f"leakage: this needs the package {package}, which is not installed; install leak"
        )
        assert done.stderr.count("\n") == 1


def test_data_can_be_listed_without_pytorch_and_the_packages_of_the_book(tmp_path):
    absent = ("jupytext", "nbformat", "papermill", "jupyter_book", "sphinx_external_toc", "torch")
    code = f"import sys; sys.modules.update(dict.fromkeys({absent}))\n"
    code += "from reproduced import command_line; command_line.main(['data'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HANGS)
    assert (done.returncode, done.stderr) == (0, "")
    assert "mnist" in done.stdout


def test_saved_losses_can_be_audited_without_what_windows_lacks(tmp_path):
    absent = ("fcntl", "grp", "pwd", "resource", "termios")
    generator = np.random.default_rng(0)
    np.savez(tmp_path / "scores.npz", losses=generator.random((4, 60)), member=generator.random((4, 60)) < 0.5)
    code = f"import sys; sys.modules.update(dict.fromkeys({absent}))\n"
    code += "from reproduced import command_line; sys.exit(command_line.main(sys.argv[1:]))"
    script = [sys.executable, "-c", code, "audit", "scores.npz", "--report", "audit.html", "--json", "audit.json"]
    done = subprocess.run(script, cwd=tmp_path, capture_output=True, text=True, timeout=HANGS)
    assert (done.returncode, done.stderr) == (0, "")
    assert {"audit.html", "audit.json"} <= {path.name for path in tmp_path.iterdir()}


# ── the commit ──────────────────────────────────────────────────────────────────────────────────────────────────────


def git(folder: Path, *arguments: str) -> None:
    options = ["-c", "user.name=n", "-c", "user.email=e", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", "-C", folder, *options, *arguments], check=True, capture_output=True, timeout=HANGS)


@pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")
def test_a_commit_is_that_of_the_repository_itself_and_of_no_other(book, tmp_path, monkeypatch):
    assert chapter_cache._commit(book) == (None, False)
    git(tmp_path, "init")
    git(tmp_path, "commit", "--allow-empty", "-m", "other")
    assert chapter_cache._commit(book) == (None, False), "of the repository around it"
    monkeypatch.setenv("GIT_DIR", str(tmp_path / ".git"))
    assert chapter_cache._commit(book) == (None, False), "of the repository of a hook"
    monkeypatch.delenv("GIT_DIR")
    git(book, "init")
    git(book, "add", ".")
    git(book, "commit", "-m", "own")
    own, dirty = chapter_cache._commit(book)
    assert (len(own), dirty) == (40, False)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    (book / "new").touch()
    assert chapter_cache._commit(book) == (own, True)


# ── data that is not here ───────────────────────────────────────────────────────────────────────────────────────────


NEEDS = [("location",), ("location", "mnist"), ("location",), ("multi30k",), ("mnist",), ()]


@pytest.fixture
def lacking(monkeypatch, tmp_path):
    """The sentence for claims that need sets, with these verdicts, in this profile."""
    monkeypatch.setenv("LEAKAGE_DATA", str(tmp_path / "data"))

    def say(verdict="not run", profile="ci", least="ci", needs=tuple(NEEDS)) -> str:
        fields = [{"needs": sets, "profile": least} for sets in needs]
        claims = [judgement(f"t.c{number}", verdict, fields=one) for number, one in enumerate(fields)]
        return summaries.lacking_data([ledger(*claims, profile=profile)])

    return say


def test_claims_that_lack_data_are_counted_by_set_with_the_command_that_gets_it(lacking):
    counted = "5 claims (location 3, mnist 2, multi30k 1)"
    assert lacking() == f"Not run for want of data: {counted}; `make data` fetches these sets."
    one = "Not run for want of data: 1 claim (mnist 1); `make data` fetches this set."
    assert lacking(needs=(("mnist",), ())) == one


@pytest.mark.parametrize(
    "case",
    [{"verdict": "held"}, {"verdict": "not judged", "profile": "smoke"}, {"least": "paper"}, {"needs": ((), ())}],
)
def test_nothing_is_said_of_claims_that_no_data_would_have_run(lacking, case):
    assert lacking(**case) == ""


def test_a_damaged_set_is_named_with_its_file_and_stays_as_it_is(lacking, tmp_path):
    path = tmp_path / "data/location/dataset_location.tgz"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"damaged")
    cure = "move it away and run `.venv/bin/leakage data location`."
    damaged = f"location is damaged (location/dataset_location.tgz): {cure}"
    counted = "Not run for want of data: 5 claims (location 3, mnist 2, multi30k 1)"
    assert lacking() == f"{counted}; `make data` fetches mnist, multi30k; {damaged}"
    assert lacking(needs=(("location",),)) == f"Not run for want of data: 1 claim (location 1); {damaged}"
    assert path.read_bytes() == b"damaged"


def test_a_set_is_here_if_all_its_files_are_good(monkeypatch, lacking):
    from leakage.data import datasets

    files = datasets.DATASETS["mnist"].files

    def states(*given):
        found = [datasets.FileStatus(file, Path(file.path), state) for file, state in zip(files, given, strict=True)]
        monkeypatch.setattr(datasets, "status", lambda name: tuple(found))

    states("verified", "verified")
    assert lacking(needs=(("mnist",),)) == ""
    states("verified", "absent")
    assert "`make data` fetches this set" in lacking(needs=(("mnist",),))
    states("verified", "damaged")
    assert "mnist is damaged (mnist/t10k-labels-idx1-ubyte.gz)" in lacking(needs=(("mnist",),))


def test_either_form_of_a_set_is_enough(monkeypatch, lacking):
    from leakage.data import datasets

    found = [datasets.FileStatus(file, Path(file.path), "absent") for file in datasets.DATASETS["adult"].files]
    found[0] = datasets.FileStatus(found[0].file, found[0].path, "verified")
    monkeypatch.setattr(datasets, "status", lambda name: tuple(found))
    assert lacking(needs=(("adult",),)) == ""


def test_the_sentence_stands_first_on_the_scoreboard():
    board = claim_tables.scoreboard([], ["A toy"], "Not run for want of data: 1 claim (mnist 1).")
    assert board.startswith("Not run for want of data: 1 claim (mnist 1).\n\n**A toy.** This chapter did not run")
