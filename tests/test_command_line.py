"""The folders that a command is given: those that are not there are refused, and what is not a build's stays."""

import pytest

from miniature import add_chapter, is_a_refusal, make_repository, run, snapshot, without_chapters
from reproduced import command_line


@pytest.fixture
def small_book(tmp_path):
    """A book of one chapter, to break."""
    root = make_repository(tmp_path / "repository", "sums")
    add_chapter(root, "sums")
    return root


@pytest.mark.parametrize("value", ["", "nowhere", "book/nowhere", "_toc.yml"])
@pytest.mark.parametrize("command", ["build", "status"])
def test_a_root_is_a_folder_that_exists(small_book, capsys, monkeypatch, command, value):
    monkeypatch.chdir(small_book)
    before = snapshot(small_book)
    assert is_a_refusal(command_line.main([command, "--root", value]), *capsys.readouterr())
    assert snapshot(small_book) == before


def test_outside_a_book_there_is_nothing_to_build(tmp_path, capsys):
    assert is_a_refusal(command_line.main(["build", "--root", str(tmp_path)]), *capsys.readouterr())


SOURCES = [".", "..", "book", "book/new/deep", "lib/leakage", ".git", "lib", "mine", "link", "_toc.yml"]


@pytest.mark.parametrize("folder", SOURCES)
def test_a_build_takes_no_folder_that_holds_anything_else(small_book, capsys, monkeypatch, folder):
    for path in ("mine/claims/kept.json", "mine/site/kept.html", "mine/site-src/kept.md", "mine/logs/sums.log"):
        (small_book / path).parent.mkdir(parents=True)
        (small_book / path).write_text("mine", "utf-8")
    (small_book / ".git").mkdir()
    (small_book / "link").symlink_to("book")
    monkeypatch.chdir(small_book)
    before = snapshot(small_book)
    assert is_a_refusal(command_line.main(["build", "--no-render", "--build-dir", folder]), *capsys.readouterr())
    assert snapshot(small_book) == before


@pytest.mark.parametrize("folder", ["_build", "new", "new/deep", "empty", "lib/new"])
def test_a_folder_that_a_build_made_or_found_empty_is_its_own(small_book, capsys, monkeypatch, folder):
    monkeypatch.chdir(without_chapters(small_book))
    (small_book / "empty").mkdir()
    command = ["build", "--no-render", "--build-dir", folder]
    assert command_line.main(command) == 0
    (small_book / folder / "claims").mkdir()
    (small_book / folder / "claims" / "old.json").write_text("{}", "utf-8")
    assert command_line.main(command) == 0
    assert not (small_book / folder / "claims" / "old.json").exists()
    assert "may overwrite and delete everything in it" in (small_book / folder / ".leakage-build").read_text("utf-8")


def test_the_folder_build_of_the_book_may_come_from_a_cache(small_book, capsys):
    (without_chapters(small_book) / "_build/executed/ci").mkdir(parents=True)
    (small_book / "_build/executed/ci/sums.ipynb").write_text("{}", "utf-8")
    assert run(small_book, ["build", "--no-render"], capsys)[0] == 0
