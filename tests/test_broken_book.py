"""A file of the book that is not what it should be is refused in one line, before anything is executed."""

import json
from pathlib import Path

import pytest

from leakage.pipeline import build as building
from leakage.pipeline import contents
from leakage.pipeline.book import open_book
from miniature import add_chapter, is_a_refusal, make_repository, run, snapshot

LONG = 100_000
DEEP = "[" * 5000
LAUGHS = "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n"
RECORD = {"profile": "paper", "seed": 0, "device": "cpu", "commit": None, "dirty": False, "date": "2026-01-02"}
PLANNED = "name: sums, number: 1, title: T, question: Q, answer: A, paper: P, authors: A, year: 2020, key: k"


def planned(old: str, new: str) -> str:
    """A plan of one chapter in which a text is replaced by another."""
    return f"chapters: [{{{PLANNED.replace(old, new)}}}]"


FOUND = {"kind": "exact", "value": "-inf", "error": 0}


def kept(claim: dict, **change: object) -> str:
    """The record of a full-scale run with one claim."""
    return json.dumps(RECORD | {"claims": [{"id": "sums.a", "verdict": "held"} | claim]} | change)


def parameters(text: str) -> str:
    """A chapter of a `parameters` cell alone."""
    return f"```{{code-cell}}\n:tags: [parameters]\n{text}\n```\n"


TOC = "format: jb-book\nroot: intro\n"
BROKEN = {
    "_toc.yml": [
        "", "- a", "root: [", "root: [intro]", "root: intro\nroot: intro", LAUGHS, DEEP, "root: nowhere", f"{TOC}x: 1",
        f"{TOC}chapters: [{{file: nowhere}}]", "x: 1", b"root: \xff", b"\x00", "root: 2024-13-45", f"{TOC}chapters: 3",
        "format: jb-book", f"{TOC}chapterz: [{{file: sums}}]", f"{TOC}parts: [x]", f"{TOC}chapters: [{{file: [x]}}]",
    ],
    "_config.yml": ["", "- a", "title: [", b"title: \xff", LAUGHS, DEEP],
    "book/chapters.yml": [
        "", "- a", "chapters: 3", "chapters: [x]", "chapterz: []", "chapters: [{}]", "chapters: [",
        b"chapters: \xff", LAUGHS,
        DEEP, "x" * LONG, f"chapters: [{{{PLANNED}}}, {{{PLANNED}}}]", planned("key: k", "kex: k"), planned("1", "[]"),
        planned("title: T", "title: 'a`b'"), planned("name: sums", "name: ../x"), planned("number: 1", "x: y"),
        planned("answer: A", "answer: 0.6 of them"),
    ],
    "book/records/sums.json": [
        "", "[]", "{}", json.dumps(RECORD), kept({"verdict": "fine"}), kept({"verdict": []}), kept({"id": 3}),
        *(kept({"values": value}) for value in ("many", [1], True, [{"name": "x", "measured": 1}])),
        kept({"values": [{"measured": FOUND}]}),
        kept({}, commit=3), kept({}, date=None), kept({}, dirty="no"), kept({}, seed=1.5), kept({}, claims={}),
    ],
    "book/records/replication.json": [
        "", "{", "[]", "3", '{"sums": 3}', '{"sums": {}}', '{"sums": [3]}', '{"sums": [{"claims": 3, "seed": 1}]}',
        '{"sums": [{"claims": {}, "seed": "1"}]}', '{"sums": [{"claims": {"sums.a": {}}, "seed": 1}]}', '{"a":' * LONG,
    ],
    "book/claims/sums.yml": ["", "- a", "chapter: [", b"chapter: \xff", LAUGHS, DEEP, "a: " + "x" * LONG],
    "book/sums.md": [
        "", "# Only words", b"\xff\xfe", "---\na: [\n---\n", "---\njupytext: 3\n---\n", parameters("seed ="),
        *(parameters(f"seed = {value}") for value in ("9" * 5000, "-" * LONG + "1", "[" * LONG, "f()", "\x00")),
        parameters("a = 1"), parameters("seed, device = 0, 'cpu'"),
    ],
}  # fmt: skip
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
    monkeypatch.setattr(building, "carry_out", lambda *given, **more: pytest.fail("a chapter was executed"))


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


@pytest.mark.parametrize("path", ["book/picture.png", "book/new/deep", "lib/leakage/more.py"])
def test_a_link_to_nothing_is_refused_before_anything_is_executed(small_book, unexecuted, capsys, path):
    (small_book / path).parent.mkdir(parents=True, exist_ok=True)
    (small_book / path).symlink_to("nowhere")
    (small_book / "book" / ".#sums.md").symlink_to("me@here.1")  # as an editor leaves it, which no build copies
    answer = run(small_book, ["build", "--no-render"], capsys)
    assert is_a_refusal(*answer), answer
    assert f"{path} is a link to 'nowhere', where nothing is" in answer[2]


def test_the_files_of_this_book_are_whole():
    contents.check(open_book(Path(__file__).parents[1]))


def test_whole_files_are_not_refused(small_book, monkeypatch, capsys):
    monkeypatch.setattr(building, "carry_out", lambda *given, **more: [])
    (small_book / "book/chapters.yml").write_text(f"chapters: [{{{PLANNED}}}]", "utf-8")
    (small_book / "book/records/sums.json").write_text(kept({"values": [{"name": "x", "measured": FOUND}]}), "utf-8")
    assert run(small_book, ["build", "--no-render"], capsys)[0] == 0


@pytest.mark.parametrize(
    "content",
    [
        b"\xff",
        b"VALUE = (",
        b"\x00",
        b"# coding: nonsense\n",
        b"x = " + b"-" * 50_000 + b"1",
        b"x = " + b"(" * 500,
        b"",
    ],
    ids=["encoding", "syntax", "NUL", "coding", "minus", "brackets", "empty"],
)
def test_a_module_that_is_no_python_has_a_key_like_any_other(small_book, monkeypatch, capsys, content):
    executed = []
    monkeypatch.setattr(building, "carry_out", lambda book, work, **more: executed.extend(work) or [])
    (small_book / "lib/leakage/numbers.py").write_bytes(content)
    assert run(small_book, ["build", "--no-render"], capsys)[0] == 0
    assert [one.plan.state for one in executed] == ["new"]
