"""The ledger judges what is declared, once, by the rule given, and its records survive as plain JSON."""

import json

import pytest

from leakage.metrics.estimates import Estimate
from reproduced import runtime
from reproduced.claims import declarations, measurements
from reproduced.claims import ledger as claims
from reproduced.claims.measurements import Exact
from reproduced.repository import BUILD_VARIABLE
from small_book import claim_entry, declaration, save_claims


@pytest.fixture
def shown(monkeypatch):
    """What the ledger displays: (data, metadata) of each output."""
    outputs = []
    monkeypatch.setattr(claims, "_display", lambda data, metadata: outputs.append((data, metadata)))
    return outputs


@pytest.fixture
def ledger(tmp_path, shown, monkeypatch):
    """Open a ledger on the declarations in one profile, with all data at hand."""
    monkeypatch.setattr(claims.datasets, "is_available", lambda name: True)

    def open_ledger(profile="ci", **changes):
        save_claims(tmp_path / "claims", declaration(**changes))
        return claims.Ledger("toy", runtime.begin(profile, 3, "cpu"), book=tmp_path)

    return open_ledger


def record(shown) -> dict:
    return shown[-1][1]["claim"]


FOUND = Estimate(0.5, 0.4, 0.6, 100)
RULE = "held if x.high < 2; refuted if x.low > 2"


def test_a_record_holds_verdict_measurements_and_run_and_is_plain_json(ledger, shown):
    ledger().judge("t.one", x=FOUND)
    found = record(shown)
    stored = {"kind": "estimate", "estimate": 0.5, "low": 0.4, "high": 0.6, "n": 100, "level": 0.95}
    expected = {"id": "t.one", "verdict": "held", "values": [{"name": "x", "measured": stored}], "reason": "Seen."}
    expected |= {"rule": RULE, "profile": "ci", "seed": 3, "device": "cpu"}
    assert found | expected == found
    assert len(found["rule_digest"]) == 12
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_an_output_shows_the_verdict_in_sign_and_words_and_the_rule(ledger, shown):
    ledger().judge("t.one", x=FOUND)
    data, _ = shown[-1]
    assert data["text/plain"] == f"t.one ✓ held x 0.50 [0.40, 0.60]; rule: {RULE}"
    rule = "held if `x.high < 2`; refuted if `x.low > 2`"
    assert data["text/markdown"] == f"**t.one** ✓ held: x 0.50 [0.40, 0.60]; {rule}"


@pytest.mark.parametrize(
    ("name", "value", "verdict", "reason"),
    [
        ("t.one", 1, "held", "Seen."),
        ("t.one", 2, "undecided", "Not expected: held was."),
        ("t.one", 3, "did not hold", "Not expected: held was."),
        ("t.two", 2, "held in part", "Up to 2."),
    ],
)
def test_the_verdict_and_its_reason_follow_the_declared_rules(ledger, shown, name, value, verdict, reason):
    ledger().judge(name, x=Exact(value, 0.25))
    assert (record(shown)["verdict"], record(shown)["reason"]) == (verdict, reason)


@pytest.mark.parametrize(
    ("measured", "message"),
    [
        ({"x": 0.5}, "t.one: `x` must be an Estimate, an Exact"),
        ({"x": [FOUND, FOUND]}, "t.one: the rule 'x.high < 2' cannot be applied"),
        ({}, "t.one: its values are x; got none"),
        ({"x": FOUND, "y": FOUND}, "t.one: its values are x; got x, y"),
    ],
)
def test_a_faulty_judgement_is_refused_and_leaves_no_record(ledger, shown, measured, message):
    book = ledger()
    with pytest.raises(ValueError, match=message):
        book.judge("t.one", **measured)
    assert shown == []
    book.judge("t.one", x=FOUND)


def test_an_unknown_id_is_refused_with_the_nearest_one(ledger):
    with pytest.raises(ValueError, match=r"'t.ones' is not declared in claims/toy.yml; did you mean 't.one'"):
        ledger().judge("t.ones", x=FOUND)


def test_a_build_judges_a_claim_once_and_a_reader_as_often_as_they_like(ledger, monkeypatch):
    book = ledger()
    book.judge("t.data", x=FOUND)
    book.judge("t.data", x=FOUND)
    monkeypatch.setenv(BUILD_VARIABLE, "_build")
    with pytest.raises(ValueError, match=r"t.data is judged already"):
        book.judge("t.data", x=FOUND)


def test_the_published_curves_are_handed_out_by_figure(ledger):
    book = ledger(published={"fig1": {"p": [1, 2], "advantage": [0.5, "1e-1"]}})
    assert book.published("fig1") == {"p": (1.0, 2.0), "advantage": (0.5, 0.1)}
    with pytest.raises(ValueError, match="`figure` must be one of fig1; got 'fig2'"):
        book.published("fig2")


def test_in_profile_smoke_nothing_is_judged_but_the_rules_are_applied(ledger, shown):
    book = ledger("smoke")
    book.judge("t.two", x=Exact(9, 0))
    assert (record(shown)["verdict"], record(shown)["reason"]) == ("not judged", "")
    assert record(shown)["values"][0]["measured"]["value"] == 9
    with pytest.raises(ValueError, match=r"t\.data: the rule"):
        book.judge("t.data", x=[FOUND, FOUND])


def test_without_its_data_a_claim_is_not_run_whether_judged_or_not(ledger, shown, monkeypatch):
    monkeypatch.setattr(claims.datasets, "is_available", lambda name: False)
    why = "It needs MNIST, test set, which `make data` fetches."
    for judged in (False, True):
        book = ledger()
        if judged:
            book.judge("t.data", x=FOUND)  # of other data: it is not kept
            assert (record(shown)["verdict"], record(shown)["reason"]) == ("not run", why)
            assert record(shown)["values"] == []
        (row,) = (line for line in book.verdicts().markdown.splitlines() if "t.data" in line)
        assert "| – not run |" in row
        assert row.endswith(f"| {why} |")


def test_glue_writes_what_mystnb_reads(shown):
    claims.glue("auc", "0.50")
    assert shown == [
        (
            {"application/papermill.record/text/plain": "'0.50'"},
            {"scrapbook": {"name": "auc", "mime_prefix": "application/papermill.record/"}},
        )
    ]
    with pytest.raises(ValueError, match="`text` of 'auc' must be a formatted string, got float"):
        claims.glue("auc", 0.5)  # type: ignore[arg-type]


def rows(table) -> list[list[str]]:
    """Cells of the rows of a Markdown table, read as its renderer reads it."""
    lines = [line for line in table._repr_markdown_().splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.replace(r"\|", "¦").strip("|").split("|")] for line in lines]


HOW = "held if `x.high < 2`; refuted if `x.low > 2`. `x`: what is measured"


def test_the_declared_claims_are_a_table_with_ours_apart(ledger):
    table = ledger().declared()
    assert rows(table)[2] == ["`t.one`", "figure", "That $¦x¦ < 2$.", "Figure 1", HOW]
    assert "**Ours, not in the paper**" in table.markdown
    assert rows(table)[-1] == ["`t.beyond.more`", "ours", "That $¦x¦ < 2$.", HOW]  # no row of ours has a place


def test_the_verdicts_are_a_table_with_claims_and_reasons_in_which_no_claim_is_missing(ledger):
    book = ledger()
    book.judge("t.two", x=Exact(2, 0.25))
    found = {row[0]: row[1:] for row in rows(book.verdicts())}
    assert found["`t.two` That $¦x¦ < 2$."] == ["◐ held in part", "", "x 2", "Up to 2."]
    assert found["`t.one` That $¦x¦ < 2$."] == ["– not run", "0.6", "", "Not judged so far."]
    assert len(found) == 2 + 4


def test_a_finding_of_ours_is_marked_and_an_erratum_is_confirmed(ledger, shown):
    slip = claim_entry("t.slip", kind="erratum")
    book = ledger(claims=[*declaration()["claims"], slip])
    book.judge("t.slip", x=FOUND)
    assert record(shown)["verdict"] == "held"  # as its rules say
    assert shown[-1][0]["text/markdown"].startswith("**t.slip** ✓ confirmed: x 0.50 [0.40, 0.60]; confirmed if")
    book.judge("t.beyond.more", x=Exact(3, 0))
    assert "**t.beyond.more** ✗ did not hold (our finding): x 3" in shown[-1][0]["text/markdown"]
    verdicts = [row[1] for row in rows(book.verdicts())]
    assert verdicts[-2:] == ["✗ did not hold (our finding)", "✓ confirmed"]


def test_a_full_scale_record_stands_beside_with_where_it_comes_from(ledger, tmp_path):
    stored = [{"name": "x", "measured": measurements.to_json(Estimate(0.61, 0.6, 0.62, 10**6))}]
    full = {"id": "t.one", "verdict": "held", "values": stored, "reason": ""}
    header = {
        "profile": "paper",
        "seed": 0,
        "device": "cuda",
        "device_name": "H200",
        "commit": "a" * 40,
        "dirty": False,
    }
    (tmp_path / "records").mkdir()
    record = header | {"date": "2026-01-02T03:04:05+00:00", "claims": [full]}
    (tmp_path / "records" / "toy.json").write_text(json.dumps(record))
    table = ledger().verdicts()
    assert rows(table)[2][-1] == "0.610 [0.600, 0.620] ✓ held (by an earlier rule)"
    assert rows(table)[3][-1] == ""
    full["rule_digest"] = declarations.load(tmp_path / "claims" / "toy.yml").by_id["t.one"].rule_digest
    (tmp_path / "records" / "toy.json").write_text(json.dumps(record))
    assert rows(ledger().verdicts())[2][-1] == "0.610 [0.600, 0.620] ✓ held"
    assert "Full scale: profile paper, seed 0, H200, commit aaaaaaaaaa, 2026-01-02." in table.markdown


def test_the_text_of_a_chapter_can_have_a_value_of_the_full_scale_record(ledger, tmp_path):
    several = measurements.to_json([Exact(1.5, 0), Exact(2.5, 0)])
    values = [{"name": "x", "measured": several}, {"name": "y", "measured": several[0]}]
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / "toy.json").write_text(json.dumps({"claims": [{"id": "t.one", "values": values}]}))
    book = ledger()
    assert [book.recorded("t.one", "x", 1), book.recorded("t.one", "y")] == ["2.5", "1.5"]
    assert book.recorded("t.one", "z") == book.recorded("t.two", "x") == "–"


def test_the_ledger_finds_its_files_from_the_root(tmp_path, monkeypatch):
    (tmp_path / "book").mkdir()
    (tmp_path / "_toc.yml").touch()
    save_claims(tmp_path / "book" / "claims", declaration())
    monkeypatch.chdir(tmp_path / "book")
    assert "t.one" in claims.Ledger("toy", runtime.begin("ci", 0, "cpu")).declared().markdown
    with pytest.raises(FileNotFoundError, match=r"other\.yml"):
        claims.Ledger("other", runtime.begin("ci", 0, "cpu"))
