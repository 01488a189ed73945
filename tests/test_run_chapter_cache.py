"""An executed notebook counts only if it is complete and of the files, data and versions that are here now.

Chapters run without a kernel here: their cells are not executed, only the claim records in them are shown.
"""

import shutil

import pytest

from kernels import without_kernels
from miniature import add_chapter, build, copy_of, edit, executions, leakage, make_repository
from reproduced.run import chapter_cache


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A repository of two chapters that has been built."""
    root = make_repository(tmp_path_factory.mktemp("finished") / "repository", "words", "sums")
    add_chapter(root, "words", module="letters")
    add_chapter(root, "sums")
    edit(root / "book/claims/sums.yml", "paper: key", "paper: key\ndata: [mnist]")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chapter_cache, "data_checksum", lambda name: "absent")
        without_kernels(patch)
        assert build(root) == 0
    return root


@pytest.fixture
def repository(finished, tmp_path, monkeypatch):
    """A copy of the built repository, to change."""
    monkeypatch.setattr(chapter_cache, "data_checksum", lambda name: "absent")
    without_kernels(monkeypatch)
    return copy_of(finished, tmp_path / "repository")


# ── what is reused ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_another_data_set_makes_only_the_chapter_stale_that_declares_it(repository, monkeypatch, capsys):
    monkeypatch.setattr(chapter_cache, "data_checksum", lambda name: "f00d")
    assert leakage(repository, "status") == 0
    assert [line.split(",")[0] for line in capsys.readouterr().out.splitlines()] == [
        "words: fresh",
        "sums: stale (changed: data mnist)",
    ]


def test_an_execution_of_another_processor_counts_and_says_so(repository, monkeypatch, capsys):
    monkeypatch.setattr(chapter_cache.store, "processor", lambda: "abacus")
    before = executions(repository)
    assert build(repository) == 0
    assert executions(repository) == before
    assert capsys.readouterr().out.count(": up to date, from another processor (") == 2


# ── what is damaged afterwards ──────────────────────────────────────────────────────────────────────────────────────


DAMAGES = {
    "cut short": lambda good: good[: len(good) // 2],
    "empty": lambda good: b"",
    "another file": lambda good: b"{}",
    "no text": lambda good: b"\xff\xfe",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_notebook_counts_as_none(repository, capsys, damage):
    path = repository / "_build/executed/ci/sums.ipynb"
    good = path.read_bytes()
    path.write_bytes(damage(good))
    assert path.read_bytes() != good
    assert build(repository, "words") == 0, "another chapter than the damaged one"
    assert leakage(repository, "status") == 0
    assert "sums: new" in capsys.readouterr().out
    assert leakage(repository, "record", "sums") == 2
    assert not (repository / "_build/claims/sums.json").exists()
    before = len(executions(repository))
    assert build(repository) == 0
    assert executions(repository)[before:] == ["sums"]


def test_what_a_killed_build_left_beside_an_executed_notebook_is_removed(repository):
    left = repository / "_build/executed/ci/sums.partial.ipynb"
    shutil.copy(left.with_name("sums.ipynb"), left)
    assert build(repository) == 0
    assert not left.exists()
