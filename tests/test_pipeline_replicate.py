"""Replications: seeds that nobody chose, kept whatever happens, and said of the rules they were drawn for."""

import json
import math
import subprocess

import pytest

from declared import claim, declaration, save
from kernels import without_kernels
from leakage.claims import declarations
from leakage.pipeline import plan, replications, tables
from leakage.pipeline.book import open_book
from miniature import add_chapter, edit, executions, leakage, make_repository, run
from patience import HANGS


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository of two chapters, committed."""
    root = make_repository(tmp_path / "repository", "words", "sums")
    add_chapter(root, "words", module="letters")
    add_chapter(root, "sums")
    (root / ".gitignore").write_text("_build\nexecutions.txt\n__pycache__\n", "utf-8")
    for variable in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(variable, raising=False)
    git(root, "init")
    commit(root)
    monkeypatch.setattr(plan, "registered_checksum", lambda name: "absent")
    without_kernels(monkeypatch)
    return root


def git(root, *arguments) -> str:
    author = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", "-C", root, *author, *arguments], check=True, capture_output=True, timeout=HANGS)
    return done.stdout.decode().strip()


def commit(root) -> str:
    git(root, "add", "--all")
    git(root, "commit", "--message", "Change")
    return git(root, "rev-parse", "HEAD")


def kept(root) -> dict:
    return json.loads((root / "book/records/replication.json").read_text("utf-8"))


def seeds(root, chapter) -> list[int]:
    return [one["seed"] for one in kept(root)[chapter]["runs"]]


def test_every_chapter_runs_once_at_each_seed_of_the_commit(repository):
    head = git(repository, "rev-parse", "HEAD")
    assert leakage(repository, "replicate", "--seeds", "2") == 0
    assert seeds(repository, "sums") == seeds(repository, "words") == replications.drawn(head, 2)
    assert len(set(replications.drawn(head, 50))) == 50
    (found,) = (one["claims"]["sums.a"] for one in kept(repository)["sums"]["runs"][:1])
    assert (found["verdict"], found["found"]) == ("held", "1.00 [0.90, 1.10]")
    assert found["margins"] == {"held": [pytest.approx(0.9)], "refuted": [pytest.approx(-1.1)]}
    assert leakage(repository, "replicate", "--seeds", "2") == 0  # what is kept is no change, and is not run again
    assert len(executions(repository)) == 4


def test_what_was_found_before_an_interruption_stays_and_more_seeds_are_added(repository, monkeypatch):
    with monkeypatch.context() as patch:
        stop = iter([False, False, True])
        without_kernels(patch, lambda root: next(stop) and pytest.fail("interrupted"))
        with pytest.raises(pytest.fail.Exception):
            leakage(repository, "replicate", "--seeds", "3", "--jobs", "1")
    first = kept(repository)
    assert leakage(repository, "replicate", "--seeds", "3") == 0
    assert [one["seed"] for one in first["sums"]["runs"]] == seeds(repository, "sums")[:1]
    assert len(executions(repository)) == 6


def test_a_changed_rule_begins_its_chapter_anew_and_changed_words_do_not(repository):
    assert leakage(repository, "replicate", "--seeds", "1") == 0
    old = kept(repository)
    edit(repository / "book/claims/sums.yml", "x.high < 2", "x.high < 3")
    edit(repository / "book/claims/words.yml", "Figure 1", "Figure 2")
    head = commit(repository)
    assert replications.summaries(open_book(repository)).keys() == {"words.a"}
    assert leakage(repository, "replicate", "--seeds", "2") == 0
    assert seeds(repository, "sums") == replications.drawn(head, 2)
    assert seeds(repository, "words")[:1] == [one["seed"] for one in old["words"]["runs"]]
    assert kept(repository)["words"]["commit"] == old["words"]["commit"]
    (earlier,) = kept(repository)["sums"]["earlier"]
    assert earlier["runs"] == old["sums"]["runs"], "what the old rules said is kept"


def test_without_a_clean_commit_nothing_is_replicated(repository, capsys):
    edit(repository / "book/sums.md", "Words.", "Other words.")
    status, _, error = run(repository, ["replicate"], capsys)
    assert (status, "commit first" in error, executions(repository)) == (2, True, [])


def test_a_chapter_that_fails_at_a_seed_is_told_and_the_others_are_kept(repository, capsys):
    edit(repository / "book/sums.md", "metadata={'claim'", "metadata={'claims'")
    commit(repository)
    status, _, error = run(repository, ["replicate", "--seeds", "1"], capsys)
    assert (status, seeds(repository, "words") != []) == (0, True)
    assert kept(repository)["sums"]["runs"][0]["claims"] == {}
    assert error == ""


# ── what is said of them ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def declared(tmp_path):
    listed = [claim("t.one", values={"x": "w", "y": "w"}, holds="x.high < 2 and y.low > 0", refuted="x.low > 2")]
    (one,) = declarations.load(save(tmp_path, declaration(claims=listed))).claims
    return one


def part(*margins: list[float], verdict="held") -> dict:
    found = [{"verdict": verdict, "margins": {"held": one, "refuted": [-1]}} for one in margins]
    return {"runs": [{"claims": {"t.one": one}} for one in found]}


def test_the_distance_is_in_standard_deviations_of_the_nearest_comparison(declared):
    told = replications.summary(part([1, 10], [3, 30]), declared)
    assert (told["seeds"], told["same"]) == (2, 2)
    assert told["distance"] == pytest.approx((1 + 3) / 2 / math.sqrt(2))  # both are as far in units of their own
    assert replications.summary(part([1, "inf"], [3, "inf"]), declared)["distance"] == pytest.approx(math.sqrt(2))
    assert replications.summary(part([1, 5], [1, 5]), declared)["distance"] == math.inf
    assert replications.summary(part([1, 5]), declared)["distance"] is None
    assert replications.summary(part([1, 5], [1, 5], verdict="undecided"), declared)["same"] == 0
    assert replications.summary({"runs": [{"claims": {}}]}, declared) is None


@pytest.mark.parametrize(
    ("distance", "text"),
    [(4.25, "same in 9 of 10, 4.2 s.d. from the threshold"), (math.inf, "same in 9 of 10"), (None, "same in 9 of 10")],
)
def test_the_scoreboard_says_how_often_a_verdict_came_again(distance, text):
    entry = {"id": "t.one", "claim": "C.", "where": "W", "kind": "figure", "paper": None, "values": [], "seconds": 0.1}
    entry |= {"verdict": "held", "expected": "held", "reason": ""}
    run = {"profile": "ci", "seed": 0, "device": "cpu", "commit": None, "dirty": False, "date": "2026-01-02"}
    again = {"t.one": {"seeds": 10, "same": 9, "distance": distance}}
    board = tables.scoreboard({"toy": run | {"claims": [entry]}}, {"toy": "A toy"}, "", again)
    assert f"| **t.one** C. *figure, W* | ✓ held |  |  | {text} | 0.1 |" in board
