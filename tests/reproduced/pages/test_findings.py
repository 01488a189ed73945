"""From judgements to findings: what a chapter found, and when a judgement is at fault."""

import json
from dataclasses import replace

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from reproduced.claims import texts
from reproduced.claims.declarations import Claim, Declarations
from reproduced.claims.rules import Rule
from reproduced.pages import findings
from reproduced.run.book import Book, write_json
from small_book import RUN, TOY, X, add_chapter, claim, make_repository


def declared(*claims: Claim) -> Declarations:
    return Declarations.model_construct(chapter="toy", title="A toy", data=("mnist",), claims=claims)


def stored(name: str = "t.one", verdict: str = "held", low: float | str = 0.9, **fields) -> dict:
    values = [{"name": "x", "measured": X | {"low": low}}]
    told = {"id": name, "verdict": verdict, "values": values, "rule": "held if x.high < 2", "reason": ""}
    told["rule_digest"] = "0123456789ab"
    return told | {"seconds": 0.1, "profile": "ci", "seed": 0, "device": "cpu"} | fields


def executed(*judged: dict, **run) -> nbformat.NotebookNode:
    """An executed notebook with one output for each judgement."""
    outputs = [new_output("display_data", {"text/plain": ""}, metadata={"claim": one}) for one in judged]
    plain = new_output("stream", name="stdout", text="words")
    cells = [new_markdown_cell("# Title"), new_code_cell(outputs=[plain, *outputs])]
    return new_notebook(cells=cells, metadata={"repro": RUN | {"data": {}} | run})


def read(*judged: dict, claims: tuple[Claim, ...] = (claim(),), **run) -> findings.ChapterFindings:
    return findings.read_findings(executed(*judged, **run), declared(*claims))


def test_a_judgement_keeps_its_values_and_gains_what_was_declared():
    one = claim(paper="1.05", needs=("mnist",))
    found = read(stored(low="-inf"), claims=(one,)).as_json
    assert {name: found[name] for name in RUN} == RUN
    (told,) = found["claims"]
    own = {name: value for name, value in stored(low="-inf").items() if name not in ("profile", "seed", "device")}
    words = {"claim": "That $|x| < 2$.", "where": "Figure 1", "paper": "1.05", "how": texts.rule_text(one)}
    marks = {"kind": "figure", "idle": [], "shows": "x 1 [-inf, 1.1]", "exact": False}
    assert told == own | words | marks | {"expected": "held"}
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_the_judgement_of_a_claim_that_was_declared_anew_is_kept_as_it_is():
    rules = {"holds": Rule("y.high < 2"), "refuted": Rule("y.low > 2")}
    (one,) = read(stored(), claims=(claim(values={"y": "another"}, **rules),)).as_json["claims"]
    assert (one["verdict"], one["idle"], one["shows"]) == ("held", [], "")


@pytest.mark.parametrize(
    ("profile", "needs", "verdict", "reason"),
    [
        ("smoke", (), "not judged", ""),
        ("ci", (), "not run", "The chapter did not judge it."),
        ("ci", ("mnist",), "not run", "It needs MNIST, test set, which `make data` fetches."),
    ],
)
def test_a_claim_that_was_not_judged_is_among_the_findings(profile, needs, verdict, reason):
    (one,) = read(claims=(claim(needs=needs),), profile=profile).judgements
    assert (one.verdict, one.reason, one.values, one.seconds) == (verdict, reason, {}, None)
    assert one.page_link == "toy.html"


HERE, GONE = {"mnist": "f00d"}, {"mnist": "absent"}
NOT_RUN = stored(verdict="not run", values=[], reason="MNIST is absent.")


@pytest.mark.parametrize(
    ("declaration", "judged", "run", "fault"),
    [
        (claim(), [stored()], {}, None),
        (
            claim(),
            [stored(verdict="did not hold")],
            {},
            "expected held, measured did not hold: 1.00 [0.90, 1.10] against",
        ),
        (claim(expected="held in part"), [stored()], {}, "expected held in part, measured held"),
        (claim(expected="not run"), [stored()], {}, "expected not run, measured held"),
        (claim(), [], {}, "expected held, not run: the chapter did not judge it"),
        (claim(needs=("mnist",)), [], {"data": GONE}, None),
        (claim(needs=("mnist",)), [], {"data": HERE}, "expected held, not run: the chapter did not judge it"),
        (claim(needs=("mnist",)), [stored()], {"data": GONE}, "judged held, although its data were absent"),
        (claim(expected="not run"), [], {}, None),
        (claim(needs=("mnist",)), [NOT_RUN], {"data": GONE}, None),
        (claim(needs=("mnist",)), [NOT_RUN], {"data": HERE}, "not run, although its data are here: MNIST is absent."),
        (claim(needs=("mnist", "adult")), [NOT_RUN], {"data": HERE | {"adult": "absent"}}, None),
        (claim(), [], {"profile": "smoke"}, None),
        (claim(), [stored(verdict="not judged")], {"profile": "smoke"}, None),
    ],
)
def test_a_judgement_is_at_fault_if_it_is_not_the_declared_one(declaration, judged, run, fault):
    found = read(*judged, claims=(declaration,), **run).faults
    assert len(found) == (fault is not None)
    assert fault is None or fault in found[0]
    assert all(line.startswith("t.one: ") for line in found)


@pytest.mark.parametrize("profile", ["smoke", "ci", "paper"])
def test_judgements_twice_or_undeclared_are_at_fault_in_every_profile(profile):
    found = read(stored(), stored(), stored("t.two"), profile=profile).faults
    assert found == ("t.one: judged 2 times", "t.two: judged, but not declared")


@pytest.fixture
def book(tmp_path) -> Book:
    """A book of one chapter."""
    root = make_repository(tmp_path, "toy")
    add_chapter(root, "toy")
    return Book(root, root / "_build")


def test_chapters_are_those_of_the_plan_and_those_that_make_claims(book):
    assert findings.read_chapters(book) == {"toy": findings.Chapter("toy", "Chapter toy")}
    listed = {name: value for name, value in vars(TOY).items() if name != "title"} | {"title": "A  toy"}
    (book.folder / "chapters.yml").write_text(json.dumps({"chapters": [listed | {"name": "idle"}, listed]}), "utf-8")
    assert findings.read_chapters(book) == {"idle": replace(TOY, name="idle"), "toy": TOY}


def test_a_record_of_a_full_scale_run_is_current_until_the_claim_is_declared_anew(book):
    (declared_now,) = book.declarations("toy").claims
    kept = {"id": declared_now.id, "verdict": "held", "values": [], "rule_digest": declared_now.rule_digest}
    for digest, is_current in ((kept["rule_digest"], True), ("another", False)):
        write_json(book.full_scale_file("toy"), {"claims": [kept | {"rule_digest": digest}]})
        assert findings.read_full_scale(book, "toy")[declared_now.id].is_current == is_current
