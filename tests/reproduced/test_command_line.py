"""A wrong folder or a broken file of the book is refused in one line, before anything is executed or changed."""

from pathlib import Path

import pytest

from checking import is_a_refusal
from leakage import command_line
from reproduced.pages import render
from reproduced.run.book import open_book
from small_book import add_chapter, edit, make_repository, run, snapshot, without_chapters


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


BROKEN = {
    "_toc.yml": ["", "root: [", "format: jb-book\nroot: nowhere", "format: jb-book\nroot: intro\nchapterz: []"],
    "_config.yml": ["title: [", b"title: \xff"],
    "book/chapters.yml": ["chapters: [{}]", "chapters: ["],
    "book/records/sums.json": ["{}", '{"claims": 3}'],
    "book/records/replication.jsonl": ["{", "3", "{}"],
    "book/claims/sums.yml": ["", "chapter: [", b"chapter: \xff"],
    "book/sums.md": ["", "# Only words", "```{code-cell}\n:tags: [parameters]\nseed =\n```\n"],
}
CASES = [(path, content) for path, contents in BROKEN.items() for content in contents]


@pytest.mark.parametrize(("path", "content"), CASES, ids=[f"{path}-{number}" for number, (path, _) in enumerate(CASES)])
def test_a_broken_file_of_the_book_is_refused_before_anything_is_executed(small_book, capsys, path, content):
    (small_book / path).write_bytes(content if isinstance(content, bytes) else content.encode())
    before = snapshot(small_book)
    answer = run(small_book, ["build", "--no-render"], capsys)
    assert is_a_refusal(*answer), answer
    assert Path(path).stem in answer[2]
    assert snapshot(small_book) == before


@pytest.mark.parametrize(
    ("path", "old", "new", "message"),
    [
        ("sums.md", ":tags: [parameters]", ":tags: [other]", "book/sums.md must have one cell tagged `parameters`"),
        ("sums.md", 'device = "auto"', "device = os.name", "the `parameters` cell may only assign plain values"),
        ("claims/sums.yml", "holds:", "hold:", "book/claims/sums.yml: claim sums.a: `holds`: Field required."),
        ("claims/sums.yml", "paper: key", "paper: key\ndata: [none]", "data that the registry does not have"),
    ],
)
def test_a_fault_in_a_chapter_or_its_claims_is_named(small_book, capsys, path, old, new, message):
    edit(small_book / "book" / path, old, new)
    answer = run(small_book, ["build", "--no-render"], capsys)
    assert is_a_refusal(*answer)
    assert message in answer[2]


def test_the_files_of_this_book_are_whole():
    render.check(open_book(Path(__file__).parents[2]))
