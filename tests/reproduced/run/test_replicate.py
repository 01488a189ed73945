"""Replications: seeds that nobody chose, kept whatever happens, and said of the rules they were drawn for."""

import json
import math
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from checking import HANGS
from leakage.metrics.estimates import Estimate
from reproduced.claims import declarations, measurements
from reproduced.pages import claim_tables
from reproduced.run import chapter_cache, replications
from reproduced.run.book import open_book
from small_book import (
    add_chapter,
    claim_entry,
    declaration,
    edit,
    executions,
    leakage,
    make_repository,
    run,
    save_claims,
    without_kernels,
)


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
    monkeypatch.setattr(chapter_cache, "data_checksum", lambda name: "absent")
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
    """The runs of each chapter, in the order of their lines."""
    return replications.read(open_book(root))


def seeds(root, chapter) -> list[int]:
    """The seeds of the chapter's runs, in the order of the draw."""
    return [one["seed"] for one in sorted(kept(root)[chapter], key=lambda one: one["seed_index"])]


def test_every_chapter_runs_once_at_each_seed_of_the_commit(repository):
    head = git(repository, "rev-parse", "HEAD")
    assert leakage(repository, "replicate", "--seeds", "2") == 0
    assert seeds(repository, "sums") == seeds(repository, "words") == replications.draw_seeds(head, 2)
    assert len(set(replications.draw_seeds(head, 50))) == 50
    assert leakage(repository, "replicate", "--seeds", "2") == 0  # what is kept is no change, and is not run again
    assert len(executions(repository)) == 4


def test_a_line_says_all_of_a_run(repository, monkeypatch):
    edit(repository / "book/claims/sums.yml", "paper: key", "paper: key\ndata: [mnist, adult]")
    head = commit(repository)
    monkeypatch.setattr(chapter_cache, "data_checksum", {"mnist": "absent", "adult": "abc"}.get)
    assert leakage(repository, "replicate", "sums", "--seeds", "2", "--jobs", "1") == 0
    lines = (repository / "book/records/replication.jsonl").read_text("utf-8").splitlines()
    first, second = map(json.loads, lines)
    assert [first["seed_index"], second["seed_index"]] == [0, 1]
    assert (first["chapter"], first["seed"], first["commit"]) == ("sums", replications.draw_seeds(head, 1)[0], head)
    assert {"device", "device_name", "processor", "date", "seconds"} <= first.keys()
    assert {"python", "torch", "numpy", "leakage"} <= first["versions"].keys()
    assert first["data"] == {"adult": "abc"}
    assert first["cells"] == replications.cells_digest(open_book(repository).notebook("sums"))
    found = first["claims"]["sums.a"]
    assert found["verdict"] == "held"
    assert measurements.from_json(found["values"]["x"]) == Estimate(1.0, 0.9, 1.1, 5)
    assert found["margins"] == {"held": [pytest.approx(0.9)], "refuted": [pytest.approx(-1.1)]}


def test_what_was_found_before_an_interruption_stays_and_more_seeds_are_added(repository, monkeypatch):
    with monkeypatch.context() as patch:
        stop = iter([False, False])
        without_kernels(patch, lambda root: next(stop, True) and pytest.fail("interrupted"))
        with pytest.raises(pytest.fail.Exception):
            leakage(repository, "replicate", "--seeds", "3", "--jobs", "1")
    first = kept(repository)
    assert leakage(repository, "replicate", "--seeds", "3") == 0
    assert kept(repository)["sums"][:1] == first["sums"]
    assert len(executions(repository)) == 6


def sentences(book):
    """What the kept runs of each claim say in words, by chapter and id."""
    kept, found = replications.read(book), {}
    for name in book.chapters:
        code, claims = replications.cells_digest(book.notebook(name)), book.declarations(name).claims
        told = ((one.id, replications.replication(kept[name], one, cells=code)) for one in claims)
        found[name] = {id: one.sentence for id, one in told if one}
    return found


def test_a_changed_rule_is_tried_again_and_changed_words_are_not(repository):
    assert leakage(repository, "replicate", "--seeds", "1") == 0
    old = kept(repository)
    edit(repository / "book/claims/sums.yml", "x.high < 2", "x.high < 3")
    edit(repository / "book/claims/words.yml", "Figure 1", "Figure 2")
    head = commit(repository)
    assert sentences(open_book(repository)) == {
        "words": {"words.a": "Runs under today's declaration: 1 held."},
        "sums": {"sums.a": "Earlier runs: 1 held."},
    }
    assert leakage(repository, "replicate", "--seeds", "2") == 0
    assert kept(repository)["sums"][:1] == old["sums"], "what the old rules said is kept"
    assert {*seeds(repository, "sums")} == {old["sums"][0]["seed"], *replications.draw_seeds(head, 2)}
    assert {*seeds(repository, "words")} == {old["words"][0]["seed"], *replications.draw_seeds(head, 1)}
    assert sentences(open_book(repository)) == {
        "words": {"words.a": "Runs under today's declaration: 2 held."},
        "sums": {"sums.a": "Runs under today's declaration: 2 held. Earlier runs: 1 held."},
    }


def test_a_chapter_whose_code_changed_is_tried_again(repository):
    assert leakage(repository, "replicate", "--seeds", "1") == 0
    add_chapter(repository, "sums", "1 + 1")
    commit(repository)
    assert leakage(repository, "replicate", "--seeds", "1") == 0
    assert (len(seeds(repository, "sums")), len(seeds(repository, "words"))) == (2, 1)
    told = sentences(open_book(repository))["sums"]["sums.a"]
    assert told == "Runs under today's declaration: 2 held. The chapter's code has changed since 1 of them."


def test_what_lacks_seeds_is_run_and_nothing_else(repository, capsys):
    _, told, _ = run(repository, ["replicate", "--seeds", "2"], capsys)
    assert "4 tasks, at 2 seeds\n" in told
    _, told, _ = run(repository, ["replicate", "--seeds", "1"], capsys)
    assert "tasks" not in told


def test_without_a_clean_commit_nothing_is_replicated(repository, capsys):
    edit(repository / "book/sums.md", "Words.", "Other words.")
    status, _, error = run(repository, ["replicate"], capsys)
    assert (status, "commit first" in error, executions(repository)) == (2, True, [])


def test_a_chapter_that_fails_at_a_seed_is_told_and_kept_and_so_are_the_others(repository, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        without_kernels(patch, fails="sums")
        status, _, error = run(repository, ["replicate", "--seeds", "1"], capsys)
    (failed,) = kept(repository)["sums"]
    assert (status, "ValueError: broken" in error) == (1, True)
    assert (failed["error"], failed["claims"]) == ("ValueError: broken", {})
    assert len(kept(repository)["words"][0]["claims"]) == 1
    assert leakage(repository, "replicate", "--seeds", "1") == 0
    assert len(set(seeds(repository, "sums"))) == 2, "another seed takes its place, and the failure stays"
    told = sentences(open_book(repository))["sums"]
    assert told == {"sums.a": "Runs under today's declaration: 1 held."}


@pytest.fixture
def declared(tmp_path):
    """A claim whose rule has two comparisons."""
    listed = [claim_entry("t.one", values={"x": "w", "y": "w"}, holds="x.high < 2 and y.low > 0", refuted="x.low > 2")]
    (one,) = declarations.load(save_claims(tmp_path, declaration(claims=listed))).claims
    return one


@pytest.fixture
def runs(declared):
    """Runs of one verdict, by today's rule and code unless others are named, with the margins of both comparisons."""

    def make(*margins: list, verdict="held", rule="", code="today") -> list[dict]:
        shared = {"rule": rule or declared.rule_digest, "verdict": verdict}
        found = [shared | {"margins": {"held": one, "refuted": [-1]}} for one in margins]
        return [{"cells": code, "claims": {"t.one": one}} for one in found]

    return make


def test_what_a_claim_shows_and_how_it_is_marked_leave_its_replications_as_they_are(declared):
    shown = declared.model_copy(update={"shows": "{y}", "exact": True})
    assert shown.rule_digest == declared.rule_digest


def test_runs_by_earlier_rules_are_counted_apart(declared, runs):
    now = [*runs([1, 10], [3, 30]), *runs([1, 10], verdict="undecided")]
    earlier = [*runs([1, 10], [1, 10], rule="replaced"), *runs([1, 10], rule="replaced before", verdict="undecided")]
    found = replications.replication([*earlier, *now, {"claims": {}}], declared, cells="today")
    assert found.brief == "2 of 3; 3 earlier, by other rules or code"
    counts = "2 held, 1 undecided"
    assert found.sentence == f"Runs under today's declaration: {counts}. Earlier runs: {counts}."
    assert replications.replication(now, declared, cells="today").brief == "2 of 3"
    before = replications.replication(earlier, declared, cells="today")
    assert before.brief == "not yet repeated with today's rule; 3 earlier, by other rules or code"
    assert replications.replication([{"claims": {}}], declared, cells="today") is None


def test_runs_of_older_code_of_the_chapter_count_until_ten_are_newer(declared, runs):
    older = [*runs([1, 10], [1, 10], code="before"), {"claims": runs([1, 10])[0]["claims"]}]
    found = replications.replication(older, declared, cells="today")
    assert found.sentence == "Runs under today's declaration: 3 held. The chapter's code has changed since 3 of them."
    found = replications.replication([*older, *runs(*[[1, 10]] * 9)], declared, cells="today")
    assert found.sentence == "Runs under today's declaration: 12 held. The chapter's code has changed since 3 of them."
    found = replications.replication([*older, *runs(*[[1, 10]] * 10)], declared, cells="today")
    assert found.sentence == "Runs under today's declaration: 10 held. Earlier runs: 3 held."


def test_the_distance_is_in_standard_deviations_of_the_nearest_comparison(declared, runs):
    def distances(*margins):
        return replications.replication(runs(*margins), declared, cells="today").distances

    deviation = math.sqrt(2)  # of 1 and 3; that of 10 and 30 is ten times as large
    assert distances([1, 10], [3, 30]) == pytest.approx([1 / deviation, 3 / deviation])
    assert distances([1, 3], [3, 1]) == pytest.approx([1 / deviation, 1 / deviation])
    assert distances([1, "inf"], [3, "inf"]) == pytest.approx([1 / deviation, 3 / deviation])
    assert distances([1, 5], [1, 5]) == (math.inf, math.inf)  # nothing varies
    assert distances([1, "-inf"], [1, 5]) == (-math.inf, math.inf)
    assert distances([1, 5]) == ()


def test_the_digest_of_a_chapters_code_ignores_prose_parameters_and_imports_and_nothing_else(repository):
    def digest() -> str:
        return replications.cells_digest(open_book(repository).notebook("sums"))

    before = digest()
    edit(repository / "book/sums.md", "Words.", "Other words.")
    edit(repository / "book/sums.md", "seed = 0", "seed = 5")
    edit(repository / "book/sums.md", "from leakage import numbers", "from leakage.moved import (\n    numbers,\n)")
    assert digest() == before
    edit(repository / "book/sums.md", "executions.txt", "others.txt")
    assert digest() != before


def test_no_distance_is_told_of_what_only_rounding_moves():
    def told(*distances):
        return replications.Replication("held", Counter(held=2), Counter(), distances).distances_text

    assert told(1.5, 4.2) == "At 2 seeds 1.5 to 4.2 standard deviations from the threshold."
    assert told(21.4, 2e5) == "At 2 seeds 21.4 to more than 1,000 standard deviations from the threshold."
    assert told(1e4, 2e5) == told(math.inf, math.inf) == told() == ""


def test_a_run_counts_as_a_flip_under_the_declaration_of_its_day(declared):
    def judged_at(verdict, expected, margin=1.0, rule="replaced"):
        judged = {"rule": rule, "verdict": verdict, "margins": {"held": [margin, 1.0]}}
        return {"claims": {declared.id: judged | ({"expected": expected} if expected else {})}}

    earlier = [judged_at("held", "undecided"), judged_at("held", "held"), judged_at("undecided", None)]
    now = [judged_at("held", "held", margin, declared.rule_digest) for margin in (0.5, 0.5 + 1e-16)]
    found = replications.replication([*earlier, *now], declared, cells="today")
    assert (found.earlier_flips, found.is_steady, found.distances_text) == (1, True, "")
    moved = [*now, judged_at("held", "held", 0.6, declared.rule_digest)]
    assert not replications.replication(moved, declared, cells="today").is_steady
    assert replications.count_withdrawn(earlier, {declared.id}) == (0, 0)
    assert replications.count_withdrawn(earlier, ()) == (3, 1)


def test_every_kept_verdict_says_what_was_expected():
    book = open_book(Path(__file__).parents[3])
    judged = [one for runs in replications.read(book).values() for run in runs for one in run["claims"].values()]
    assert judged
    assert all(one["expected"] for one in judged)


def test_every_flip_is_listed_with_its_seed():
    judged = {"rule": "then", "verdict": "held", "expected": "undecided"}
    runs = [{"seed": 7, "commit": "f00d" * 10, "claims": {"t.one": judged, "t.two": judged | {"verdict": "undecided"}}}]
    (flip,) = replications.flips({"chapter": runs})
    assert (flip["id"], flip["seed"], flip["commit"]) == ("t.one", 7, "f00df00d")
    table = claim_tables.flips([flip], [])
    assert "| `t.one` | 7, `f00df00d` | undecided | held | withdrawn |" in table
    assert "was the expected one" in claim_tables.flips([], [])
