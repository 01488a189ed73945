"""Replications: seeds that nobody chose, kept whatever happens, and said of the rules they were drawn for."""

import dataclasses
import json
import math
import subprocess

import pytest

from declared import claim, declaration, save
from kernels import without_kernels
from leakage.claims import declarations
from leakage.pipeline import plan, replications
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
    return [one["seed"] for one in kept(root)[chapter]]


def test_every_chapter_runs_once_at_each_seed_of_the_commit(repository):
    head = git(repository, "rev-parse", "HEAD")
    assert leakage(repository, "replicate", "--seeds", "2") == 0
    assert seeds(repository, "sums") == seeds(repository, "words") == replications.drawn(head, 2)
    assert len(set(replications.drawn(head, 50))) == 50
    (found,) = (one["claims"]["sums.a"] for one in kept(repository)["sums"][:1])
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
    assert [one["seed"] for one in first["sums"]] == seeds(repository, "sums")[:1]
    assert len(executions(repository)) == 6


def test_runs_are_kept_as_they_end_in_the_order_of_their_seeds(repository, capsys):
    whole = kept_after(repository, capsys, "--seeds", "3", "--jobs", "1")
    path = repository / "book/records/replication.json"
    path.write_text(json.dumps(whole | {"sums": [whole["sums"][0], whole["sums"][2]]}), "utf-8")
    assert kept_after(repository, capsys, "--seeds", "3") == whole
    assert len(executions(repository)) == 7


def kept_after(repository, capsys, *arguments) -> dict:
    """What is kept once `leakage replicate` has counted its tasks to the end, without what clocks say."""
    out = run(repository, ["replicate", *arguments], capsys)[1].splitlines()
    total = out[0].split()[0]
    assert out[-2].endswith(f"({total} of {total} tasks)")
    return {name: [one | {"seconds": 0} for one in runs] for name, runs in kept(repository).items()}


def test_a_changed_rule_is_tried_again_and_changed_words_are_not(repository):
    assert leakage(repository, "replicate", "--seeds", "1") == 0
    old = kept(repository)
    edit(repository / "book/claims/sums.yml", "x.high < 2", "x.high < 3")
    edit(repository / "book/claims/words.yml", "Figure 1", "Figure 2")
    head = commit(repository)
    assert replications.summaries(open_book(repository)).keys() == {"words.a"}
    assert leakage(repository, "replicate", "--seeds", "2") == 0
    assert kept(repository)["sums"][:1] == old["sums"], "what the old rules said is kept"
    assert seeds(repository, "sums")[1:] == replications.drawn(head, 2)
    assert seeds(repository, "words") == [old["words"][0]["seed"], replications.drawn(head, 1)[0]]
    told = replications.summaries(open_book(repository))
    assert {id: one["seeds"] for id, one in told.items()} == {"words.a": 2, "sums.a": 2}


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
    assert replications.summaries(open_book(repository))["sums.a"]["seeds"] == 1


# ── what is said of them ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def declared(tmp_path):
    listed = [claim("t.one", values={"x": "w", "y": "w"}, holds="x.high < 2 and y.low > 0", refuted="x.low > 2")]
    (one,) = declarations.load(save(tmp_path, declaration(claims=listed))).claims
    return one


@pytest.fixture
def runs(declared):
    def of(*margins: list[float], verdict="held", rule="") -> list[dict]:
        shared = {"rule": rule or replications.rule_digest(declared), "verdict": verdict}
        return [{"claims": {"t.one": shared | {"margins": {"held": one, "refuted": [-1]}}}} for one in margins]

    return of


def test_what_a_claim_shows_and_how_it_is_marked_leave_its_replications_as_they_are(declared):
    shown = dataclasses.replace(declared, shows="{y}", exact=True)
    assert replications.rule_digest(shown) == replications.rule_digest(declared)


def test_the_distance_is_in_standard_deviations_of_the_nearest_comparison(declared, runs):
    told = replications.summary(runs([1, 10], [3, 30]), declared)
    assert (told["seeds"], told["same"]) == (2, 2)
    assert told["distance"] == pytest.approx((1 + 3) / 2 / math.sqrt(2))  # both are as far in units of their own
    assert replications.summary(runs([1, "inf"], [3, "inf"]), declared)["distance"] == pytest.approx(math.sqrt(2))
    # The least of the means, and not the mean of the least: 2 and 2, though at each seed one of them is at 1.
    assert replications.summary(runs([1, 3], [3, 1]), declared)["distance"] == pytest.approx(2 / math.sqrt(2))
    assert replications.summary(runs([1, 5], [1, 5]), declared)["distance"] == math.inf
    assert replications.summary(runs([1, "-inf"], [1, 5]), declared)["distance"] == -math.inf
    assert replications.summary(runs([1, 5]), declared)["distance"] is None
    assert replications.summary(runs([1, 5], [1, 5], verdict="undecided"), declared)["same"] == 0
    assert replications.summary([{"claims": {}}], declared) is None
    assert replications.summary(runs([1, 5], rule="of another time"), declared) is None


def test_replications_in_two_folders_at_once_keep_what_both_found(repository, monkeypatch):
    """One begins and ends while the other runs: neither takes the record for what it was when it began."""

    def meanwhile(root):
        with monkeypatch.context() as patch:
            without_kernels(patch)
            assert (
                leakage(repository, "replicate", "words", "--seeds", "2", "--build-dir", str(repository / "_build/b"))
                == 0
            )

    started = iter([meanwhile])
    without_kernels(monkeypatch, lambda root: next(started, lambda _: None)(root))
    folder = str(repository / "_build/a")
    assert leakage(repository, "replicate", "sums", "--seeds", "2", "--jobs", "1", "--build-dir", folder) == 0
    assert [len(seeds(repository, chapter)) for chapter in ("sums", "words")] == [2, 2]
    without_kernels(monkeypatch)
    assert leakage(repository, "replicate", "sums", "--seeds", "3", "--build-dir", folder) == 0, "it goes on there"
