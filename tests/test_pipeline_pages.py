"""From records to pages: what a ledger says, when a judgement is at fault, and what the generated pages show."""

import io
import json
import re

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from reproduced.run.execute import Outcome
from reproduced.run.plan import differences
from reproduced.run.progress import Progress
from reproduced.run.worker import Started

from miniature import CONFIG, HEADER, INTRO, PARAMETERS, build, cell, ledger, staged
from reproduced.claims import texts
from reproduced.claims.declarations import Claim, Declarations
from reproduced.claims.rules import Rule
from reproduced.pages import collect, render, tables

RUN = {"commit": "a" * 40, "dirty": False, "profile": "ci", "seed": 0, "device": "cpu", "device_name": "CPU, 2 cores"}
RUN |= {"versions": {"python": "3.11.7"}, "processor": "x86_64 AVX2", "seconds": 12.3}
RUN |= {"date": "2026-01-02T03:04:05+00:00", "data": {}}


def declared(*claims: Claim) -> Declarations:
    return Declarations.model_construct(chapter="toy", data=("mnist",), claims=claims)


def claim(name: str = "t.one", **fields) -> Claim:
    values = {"kind": "figure", "claim": "That $|x| < 2$.", "expected": "held", "where": "Figure 1"}
    rules = {"holds": Rule("x.high < 2"), "refuted": Rule("x.low > 2")}
    return Claim.model_construct(id=name, **values | {"values": {"x": "what is measured"}} | rules | fields)


def record(name: str = "t.one", verdict: str = "held", low: float | str = 0.9, **fields) -> dict:
    measured = {"kind": "estimate", "estimate": 1.0, "low": low, "high": 1.1, "n": 5, "level": 0.95}
    values = {
        "id": name,
        "verdict": verdict,
        "values": [{"name": "x", "measured": measured}],
        "rule": "held if x.high < 2",
    }
    return values | {"reason": "", "seconds": 0.1, "profile": "ci", "seed": 0, "device": "cpu"} | fields


def executed(*records: dict, **run) -> nbformat.NotebookNode:
    """An executed notebook with one output for each record."""
    outputs = [new_output("display_data", {"text/plain": ""}, metadata={"claim": one}) for one in records]
    plain = new_output("stream", name="stdout", text="words")
    cells = [new_markdown_cell("# Title"), new_code_cell(outputs=[plain, *outputs])]
    return new_notebook(cells=cells, metadata={"repro": RUN | run})


# ── ledgers ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_page_names_the_machine():
    found = collect.make_ledger(executed(record(), processor="x86_64 AVX2"), declared(claim()))
    assert "CPU, 2 cores (x86_64 AVX2)" in texts.provenance(found)
    assert "CPU, 2 cores (x86_64 AVX2)" in tables.status({"toy": found})


def test_a_record_keeps_its_values_and_gains_what_was_declared():
    found = collect.make_ledger(executed(record(low="-inf")), declared(claim(paper="1.05", needs=("mnist",))))
    assert {name: found[name] for name in RUN if name != "data"} == {n: v for n, v in RUN.items() if n != "data"}
    (one,) = found["claims"]
    own = {name: value for name, value in record(low="-inf").items() if name not in ("profile", "seed", "device")}
    words = {"claim": "That $|x| < 2$.", "where": "Figure 1", "paper": "1.05", "how": texts.rule_text(claim())}
    marks = {"kind": "figure", "idle": [], "shows": "x 1 [-inf, 1.1]", "exact": False}
    assert one == own | words | marks | {"expected": "held", "least_profile": "ci"}
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_a_record_of_a_claim_that_was_declared_anew_is_kept_as_it_is():
    rules = {"holds": Rule("y.high < 2"), "refuted": Rule("y.low > 2")}
    (one,) = collect.make_ledger(executed(record()), declared(claim(values={"y": "another"}, **rules)))["claims"]
    assert (one["verdict"], one["idle"], one["shows"]) == ("held", [], "")


@pytest.mark.parametrize(
    ("profile", "least", "verdict", "reason"),
    [
        ("smoke", "ci", "not judged", ""),
        ("ci", "paper", "not run", "This needs the profile paper."),
        ("ci", "ci", "not run", "The chapter did not judge it."),
        ("ci", "ci with mnist", "not run", "It needs MNIST, test set, which `make data` fetches."),
    ],
)
def test_a_claim_without_a_record_is_in_the_ledger(profile, least, verdict, reason):
    profile_of, *needs = least.split(" with ")
    found = collect.make_ledger(executed(profile=profile), declared(claim(profile=profile_of, needs=tuple(needs))))
    (one,) = found["claims"]
    assert (one["verdict"], one["reason"], one["values"], one["seconds"]) == (verdict, reason, [], None)


HERE, GONE = {"mnist": "f00d"}, {"mnist": "absent"}
NOT_RUN = record(verdict="not run", values=[], reason="MNIST is absent.")


@pytest.mark.parametrize(
    ("declaration", "records", "run", "fault"),
    [
        (claim(), [record()], {}, None),
        (
            claim(),
            [record(verdict="did not hold")],
            {},
            "expected held, measured did not hold: 1.00 [0.90, 1.10] against",
        ),
        (claim(expected="held in part"), [record()], {}, "expected held in part, measured held"),
        (claim(expected="not run"), [record()], {}, "expected not run, measured held"),
        (claim(), [], {}, "expected held, not run: no record of it"),
        (claim(needs=("mnist",)), [], {"data": GONE}, None),
        (claim(needs=("mnist",)), [], {"data": HERE}, "expected held, not run: no record of it"),
        (claim(needs=("mnist",)), [record()], {"data": GONE}, "judged held, although its data were absent"),
        (claim(expected="not run"), [], {}, None),
        (claim(profile="paper"), [], {}, None),
        (claim(profile="paper"), [record(verdict="not run")], {}, None),
        (claim(profile="paper"), [], {"profile": "paper"}, "expected held, not run: no record of it"),
        (claim(needs=("mnist",)), [NOT_RUN], {"data": GONE}, None),
        (claim(needs=("mnist",)), [NOT_RUN], {"data": HERE}, "not run, although its data are here: MNIST is absent."),
        (claim(needs=("mnist", "adult")), [NOT_RUN], {"data": HERE | {"adult": "absent"}}, None),
        (claim(), [], {"profile": "smoke"}, None),
        (claim(), [record(verdict="not judged")], {"profile": "smoke"}, None),
    ],
)
def test_a_judgement_is_at_fault_if_it_is_not_the_declared_one(declaration, records, run, fault):
    found = collect.faults(executed(*records, **run), declared(declaration))
    assert len(found) == (fault is not None)
    assert fault is None or fault in found[0]
    assert all(line.startswith("t.one: ") for line in found)


@pytest.mark.parametrize("profile", ["smoke", "ci", "paper"])
def test_records_twice_or_undeclared_are_at_fault_in_every_profile(profile):
    found = collect.faults(executed(record(), record(), record("t.two"), profile=profile), declared(claim()))
    assert found == ["t.one: recorded 2 times", "t.two: recorded, but not declared"]


def test_what_changed_between_two_executions_is_named():
    old = {"file": {"a.py": "1", "b.py": "1"}, "data": {"mnist": "absent"}, "parameter": {"seed": 0}}
    new = {"file": {"a.py": "2", "c.py": "1"}, "data": {"mnist": "f00d"}, "parameter": {"seed": 0}}
    assert list(differences(old, new)) == ["a.py", "b.py", "c.py", "data mnist"]


# ── tables ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def ledgers():
    more = claim("t.beyond.more", kind="ours", expected="did not hold", where="")
    late = claim("t.large", profile="paper", claim="More.")
    notebook = executed(record(verdict="held in part"), record("t.beyond.more", "did not hold", reason="so"))
    return {"toy": collect.make_ledger(notebook, declared(claim(paper="a | b"), late, more))}


def test_the_status_says_when_where_and_with_what(ledgers):
    text = tables.status(ledgers)
    assert "| [](/toy) | 2026-01-02 03:04:05 UTC | 12 | ci | 0 | CPU, 2 cores (x86_64 AVX2) | aaaaaaaaaa |" in text
    assert "Versions: python 3.11.7." in text
    assert tables.status({}) == "No chapter was executed for this copy of the book.\n"


def test_a_page_can_show_what_a_build_says_at_its_end(ledgers):
    told = tables.last_lines(ledgers)
    assert "\nClaims: figures: ◐ 1 held in part, – 1 not run; ours: ✗ 1 did not hold\n```" in told
    assert "Claims: none" in tables.last_lines({})


# ── staging ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_alt_text_of_a_picture_goes_where_the_renderer_looks():
    picture = new_output("display_data", {"image/png": "x"}, metadata={"image/png": {"alt": "A curve.", "width": 5}})
    notebook = new_notebook(cells=[new_code_cell(outputs=[picture]), new_code_cell()])
    notebook.cells[0].metadata["mystnb"] = {"figure": {"name": "fig"}}
    render.copy_alt_texts(notebook)
    assert notebook.cells[0].metadata["mystnb"] == {"figure": {"name": "fig"}, "image": {"alt": "A curve."}}
    assert "mystnb" not in notebook.cells[1].metadata


def test_a_note_stands_after_the_title_or_first():
    assert render.with_note("(l)=\n# T\n\nText.", "N.") == "(l)=\n# T\n\n```{warning}\nN.\n```\n\n\nText."
    assert render.with_note("Text.", "N.") == "```{warning}\nN.\n```\n\nText."


# ── progress ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_each_running_chapter_and_is_left_with_the_finished_lines():
    stream = Terminal()
    with Progress(stream) as progress:
        progress.tell(Started("one", 1, 4))
        progress.tell(Started("two", 2, 4))
        progress.tell(Started("one", 3, 4))
        assert "one" in stream.getvalue().split("\x1b[J")[-1]
        assert "two" in stream.getvalue().split("\x1b[J")[-1]
        assert "██████████░░░░░░░░░░ cell 3/4" in stream.getvalue()
        progress.tell(Outcome("one", 3.0, 4, 4))
        progress.tell(Outcome("two", 2.0, 2, 4, "ValueError: no"))
    assert shown(stream.getvalue()) == [
        "✓ one: 4 cells in 3.0 s",
        "✗ two: failed in cell 2 of 4 after 2.0 s: ValueError: no",
    ]


def shown(written: str) -> list[str]:
    """The lines on a terminal after each "so many lines up, erase what is below" was obeyed."""
    first, *rest = re.split(r"(?:\x1b\[(\d+)A)?\r\x1b\[J", written)
    lines = first.splitlines()
    for up, text in zip(rest[::2], rest[1::2], strict=True):
        lines = lines[: len(lines) - int(up or 0)] + text.splitlines()
    return lines


# ── a chapter with the real ledger ──────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def real_book(tmp_path):
    """A repository without a package of its own: its one chapter uses the ledger and the figures that are tested."""
    sources = (
        'run = runtime.begin(profile, seed, device)\nledger = Ledger("real", run)\nledger.declared()',
        'picture, ax = figures.figure()\nfigures.show(picture, alt="An empty pair of axes, for a test only.")',
        'ledger.judge("r.one", x=Estimate(0.5, 0.4, 0.6, 9))',
        'glue("half", "0.50")\nledger.verdicts()',
    )
    imports = "from leakage import figures, runtime\nfrom reproduced.claims.ledger import Ledger, glue\n"
    imports += "from leakage.metrics.intervals import Estimate"
    cells = [cell(imports), cell(PARAMETERS, "parameters"), *map(cell, sources)]
    rules = "kind: figure, values: {x: W}, holds: x.high < 1, refuted: x.low > 1, expected: held"
    one = f"{{id: r.one, claim: C., where: W, {rules}}}"
    two = f"{{id: r.data, claim: C., where: W, {rules}, needs: [mnist]}}"
    head = "chapter: real, prefix: r, title: T, paper: k, data: [mnist]"
    texts = {
        "book/claims/real.yml": f"{{{head}, claims: [{one}, {two}]}}",
        "book/real.md": f"{HEADER}\n# Real\n\n" + "\nWords.\n\n".join(cells),
        "book/intro.md": INTRO,
        "_config.yml": CONFIG,
        "_toc.yml": "format: jb-book\nroot: intro\nchapters: [{file: real}]\n",
    }
    for path, text in texts.items():
        (tmp_path / "repository" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "repository" / path).write_text(text, "utf-8")
    return tmp_path / "repository"


def test_a_chapter_that_uses_the_real_library_is_collected_and_staged(real_book, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("LEAKAGE_DATA", str(tmp_path / "nothing"))
    assert build(real_book) == 0
    printed = capsys.readouterr().out
    lacking = "Not run for want of data: 1 claim (mnist 1); `make data` fetches this set.\n"
    assert printed.endswith(f"Claims: figures: ✓ 1 held, – 1 not run\n{lacking}")
    assert staged(real_book, "_generated/scoreboard.md").startswith(lacking)
    judged = [one["values"] for one in ledger(real_book, "real")["claims"]]
    assert [values and values[0]["measured"]["estimate"] for values in judged] == [0.5, []]
    notebook = nbformat.reads(staged(real_book, "real.ipynb"), as_version=4)
    alts = [one.metadata.mystnb.image.alt for one in notebook.cells if "mystnb" in one.metadata]
    assert alts == ["An empty pair of axes, for a test only."]
    assert f"```{{warning}}\n{lacking.strip()} Captions" in notebook.cells[0]["source"]
    assert notebook.metadata["repro"]["data"] == {"mnist": "absent"}
