"""A file of the book that is not what it should be is refused in one line, before anything is executed."""

from pathlib import Path

import pytest

from miniature import add_chapter, is_a_refusal, make_repository, run, snapshot
from reproduced import build as building
from reproduced.pages import render
from reproduced.run.book import open_book

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


@pytest.fixture
def small_book(tmp_path):
    """A book of one chapter, to break."""
    root = make_repository(tmp_path / "repository", "sums")
    add_chapter(root, "sums")
    return root


@pytest.fixture
def unexecuted(monkeypatch):
    """No chapter may be executed."""
    monkeypatch.setattr(building, "run_plans", lambda *given, **more: pytest.fail("a chapter was executed"))


@pytest.mark.parametrize(("path", "content"), CASES, ids=[f"{path}-{number}" for number, (path, _) in enumerate(CASES)])
def test_a_broken_file_of_the_book_is_refused_before_anything_is_executed(
    small_book, unexecuted, capsys, path, content
):
    (small_book / path).write_bytes(content if isinstance(content, bytes) else content.encode())
    before = snapshot(small_book)
    answer = run(small_book, ["build", "--no-render"], capsys)
    assert is_a_refusal(*answer), answer
    assert Path(path).stem in answer[2]
    assert snapshot(small_book) == before


def test_the_files_of_this_book_are_whole():
    render.check(open_book(Path(__file__).parents[1]))
