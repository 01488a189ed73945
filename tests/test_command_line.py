"""Hostile requests get one bounded line and an exit status, and no folder is touched that is not a build's."""

import pytest

from leakage.pipeline import build as building
from leakage.pipeline import cli
from leakage.pipeline.build import Report
from miniature import add_chapter, is_a_refusal, make_repository, run, snapshot, without_chapters

LONG = 100_000
# What shells, parsers, terminals and file systems stumble over; every option is given each of them.
HOSTILE = [
    "", " ", "\t", "\n", "\x00", "\x1b[2J", "\x7f", "\\", "'", '"', "''", "`id`", "$(id)", "${HOME}",
    "; id", "| id", "&& id",
    "%s%n", "{}", "{0.__class__}", "{{ 7 * 7 }}", "__import__('os').system('id')", "lambda: 0", "#", "*", "?", "[a-z]",
    "~", "..", "../..", "/", "/etc/passwd", "/dev/null", "//", "C:\\", "file:///etc/passwd", "-", "--",
    "--help", "-p", "@x",
    "=", "nan", "inf", "-inf", "None", "null", "True", "1e3", "1.0", "0x10", "1_000", "٣", "１", "²",
    "½", "1 ", " 1", "+ 1",
    "--1", "-1", "4294967296", "18446744073709551616", "9" * 20, "9" * 21, "9" * 5000, "-" + "9" * 5000, "auto ", "CPU",
    "cuda:", "cuda:-1", "cuda:01", "cuda:٣", "cuda:127", "cuda:128", "cuda:254", "cuda:255", "cuda:256", "cuda:999",
    "cuda:1e1", "cuda:" + "9" * 20, "Cuda:0", "mps", "meta", "ci\n", "CI", "ci,paper", "ｃｉ",
    "smoke\x00", "\ud800", "\u202eic",
    "é", "☃", "x" * LONG, "<script>alert(1)</script>", "a=b=c", "words ", "WORDS", "words.md.md", "book/book/words",
    "./words", "words/..", "words\n",
]  # fmt: skip
# All that each option takes; whatever else it is given is refused. The seeds are whole numbers of 32 bits.
SEEDS = {"0", "7", "+7", "007", "4294967295"}
GOOD = {
    "profile": {"smoke", "ci", "paper"},
    "seed": SEEDS,
    "device": {"auto", "cpu"},
    "jobs": {"1", "2", "1024"},
    "timeout": {"1", "600", "1000000"},
    "chapter": {"words", "sums", "book/words", "words.md", "book/words.md"},
    "pair": {"seed=7", "profile=ci", "device=cpu"},
}
COMMANDS = {
    "build --profile": ("profile", lambda value: ["build", f"--profile={value}"]),
    "build --seed": ("seed", lambda value: ["build", f"--seed={value}"]),
    "build --device": ("device", lambda value: ["build", f"--device={value}"]),
    "build --jobs": ("jobs", lambda value: ["build", f"--jobs={value}"]),
    "build --timeout": ("timeout", lambda value: ["build", f"--timeout={value}"]),
    "build -p profile": ("profile", lambda value: ["build", "-p", f"profile={value}"]),
    "build -p seed": ("seed", lambda value: ["build", "-p", f"seed={value}"]),
    "build -p device": ("device", lambda value: ["build", "-p", f"device={value}"]),
    "build -p": ("pair", lambda value: ["build", "-p", value]),
    "build CHAPTER": ("chapter", lambda value: ["build", "--", value]),
    "build words CHAPTER": ("chapter", lambda value: ["build", "--", "words", value]),
    "status --profile": ("profile", lambda value: ["status", f"--profile={value}"]),
    "status --seed": ("seed", lambda value: ["status", f"--seed={value}"]),
    "status --device": ("device", lambda value: ["status", f"--device={value}"]),
    "status -p": ("pair", lambda value: ["status", "-p", value]),
    "record CHAPTER": ("chapter", lambda value: ["record", "--", value]),
}


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    """A book of two chapters that was never built."""
    root = make_repository(tmp_path_factory.mktemp("book") / "repository", "words", "sums")
    for name in ("words", "sums"):
        add_chapter(root, name)
    return root


@pytest.fixture
def small_book(tmp_path):
    """A book of one chapter, to break."""
    root = make_repository(tmp_path / "repository", "sums")
    add_chapter(root, "sums")
    return root


@pytest.fixture
def reached(monkeypatch):
    """What commands would have done: the book's own functions are replaced by a list of calls."""
    calls = []
    monkeypatch.setattr(building, "build", lambda *given, **more: calls.append(more) or Report({}, ()))
    monkeypatch.setattr(building, "state_lines", lambda *given, **more: calls.append(more) or ())
    monkeypatch.setattr(building, "keep_record", lambda book, name: calls.append(book.choose([name])) or "it")
    return calls


# ── requests ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_there_are_enough_hostile_requests():
    assert len(set(HOSTILE)) == len(HOSTILE)
    assert len(HOSTILE) * len(COMMANDS) >= 1500


@pytest.mark.parametrize("name", COMMANDS)
def test_a_hostile_value_is_refused_in_one_line_and_a_good_one_taken(book, reached, capsys, name):
    kind, command = COMMANDS[name]
    before, wrong = snapshot(book), []
    for value in (value for value in HOSTILE if value not in GOOD[kind]):
        answer = run(book, command(value), capsys)
        if not is_a_refusal(*answer) or reached:
            wrong.append((value[:80], answer))
        reached.clear()
    assert wrong == []
    for value in GOOD[kind]:
        status, _, err = run(book, command(value), capsys)
        assert (status, err, len(reached)) == (0, "", 1), value
        reached.clear()
    assert snapshot(book) == before


# ── folders ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("value", ["", "\0", "a\0b", "nowhere", "book/nowhere", "_toc.yml", "x" * LONG, "é\ud800"])
@pytest.mark.parametrize("command", ["build", "status"])
def test_a_root_is_a_folder_that_exists(book, reached, capsys, monkeypatch, command, value):
    monkeypatch.chdir(book)
    assert is_a_refusal(cli.main([command, "--root", value]), *capsys.readouterr())
    assert not reached


def test_outside_a_book_there_is_nothing_to_build(tmp_path, capsys):
    assert is_a_refusal(cli.main(["build", "--root", str(tmp_path)]), *capsys.readouterr())


SOURCES = [
    ".",
    "..",
    "/",
    "book",
    "book/",
    "book/out",
    "book/claims",
    "book/new/deep",
    "lib/leakage",
    "lib/leakage/new",
]
SOURCES += [".git", ".git/new", "lib", "mine", "link", "_toc.yml", "", "a\0b"]


@pytest.mark.parametrize("folder", SOURCES)
def test_a_build_takes_no_folder_that_holds_anything_else(small_book, capsys, monkeypatch, folder):
    for path in ("mine/claims/kept.json", "mine/site/kept.html", "mine/site-src/kept.md", "mine/logs/sums.log"):
        (small_book / path).parent.mkdir(parents=True)
        (small_book / path).write_text("mine", "utf-8")
    (small_book / ".git").mkdir()
    (small_book / "link").symlink_to("book")
    monkeypatch.chdir(small_book)
    before = snapshot(small_book)
    assert is_a_refusal(cli.main(["build", "--no-render", "--build-dir", folder]), *capsys.readouterr())
    assert snapshot(small_book) == before


@pytest.mark.parametrize("folder", ["_build", "new", "new/deep", "empty", "lib/new"])
def test_a_folder_that_a_build_made_or_found_empty_is_its_own(small_book, capsys, monkeypatch, folder):
    monkeypatch.chdir(without_chapters(small_book))
    (small_book / "empty").mkdir()
    command = ["build", "--no-render", "--build-dir", folder]
    assert cli.main(command) == 0
    (small_book / folder / "claims").mkdir()
    (small_book / folder / "claims" / "old.json").write_text("{}", "utf-8")
    assert cli.main(command) == 0
    assert not (small_book / folder / "claims" / "old.json").exists()
    assert "may overwrite and delete everything in it" in (small_book / folder / ".leakage-build").read_text("utf-8")


def test_the_folder_build_of_the_book_may_come_from_a_cache(small_book, capsys):
    (without_chapters(small_book) / "_build/executed/ci").mkdir(parents=True)
    (small_book / "_build/executed/ci/sums.ipynb").write_text("{}", "utf-8")
    assert run(small_book, ["build", "--no-render"], capsys)[0] == 0
