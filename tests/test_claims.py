"""The ledger judges what is declared, once, by the rule given, and its records survive as plain JSON."""

import json
import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it.renderer import RendererHTML
from myst_parser.config.main import MdParserConfig
from myst_parser.parsers.mdit import create_md_parser

from declared import declaration, save
from leakage import claims, runtime
from leakage.metrics.estimates import Estimate


@pytest.fixture
def write(tmp_path):
    """Write a claims file (a value or a text) and return its path."""
    return partial(save, tmp_path)


@pytest.fixture
def shown(monkeypatch):
    """What the ledger displays: (data, metadata) of each output."""
    outputs = []
    monkeypatch.setattr(claims, "_display", lambda data, metadata: outputs.append((data, metadata)))
    return outputs


@pytest.fixture
def ledger(write, shown, monkeypatch):
    """Open a ledger on the declarations in one profile, with all data at hand."""
    monkeypatch.setattr(claims.fetch, "available", lambda name: True)

    def open_ledger(profile="ci", **options):
        run = runtime.begin(profile, 3, "cpu")
        return claims.Ledger("toy", run, declarations=write(declaration()), **options)

    return open_ledger


def record(shown) -> dict:
    return shown[-1][1]["claim"]


# ── judging ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_record_holds_verdict_measurement_and_run_and_is_plain_json(ledger, shown):
    ledger().judge("t.one", measured=Estimate(0.5, 0.4, 0.6, 100), expected="|x| < 2 at all p", passes=True)
    found = record(shown)
    expected = {"id": "t.one", "verdict": "held", "measured": 0.5, "low": 0.4, "high": 0.6, "n": 100, "reason": ""}
    expected |= {"rule": "|x| < 2 at all p", "profile": "ci", "seed": 3, "device": "cpu"}
    assert expected.items() <= found.items()
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_an_output_shows_the_verdict_in_sign_and_words(ledger, shown):
    ledger().judge("t.one", measured=Estimate(0.5, 0.4, 0.6, 100), expected="x < 2", passes=True)
    data, _ = shown[-1]
    assert data["text/plain"] == "t.one ✓ held 0.50 [0.40, 0.60]; rule: x < 2"
    assert data["text/markdown"] == "**t.one** ✓ held: 0.50 [0.40, 0.60]; rule: x &lt; 2"


@pytest.mark.parametrize(
    ("passes", "in_part", "verdict"),
    [(True, False, "held"), (True, True, "held"), (False, True, "held in part"), (False, False, "did not hold")],
)
def test_the_verdict_follows_the_rule(ledger, shown, passes, in_part, verdict):
    ledger().judge("t.one", measured=1, expected="x", passes=passes, in_part=in_part, reason="seen")
    assert record(shown)["verdict"] == verdict


@pytest.mark.parametrize(
    ("measured", "stored"),
    [
        (3, 3),
        (0.25, 0.25),
        (np.float64(0.25), 0.25),
        (np.int64(3), 3),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
    ],
)
def test_a_number_is_stored_as_plain_json(ledger, shown, measured, stored):
    ledger().judge("t.one", measured=measured, expected="x", passes=True)
    assert record(shown)["measured"] == stored
    assert type(record(shown)["measured"]) is type(stored)
    assert record(shown)["low"] is record(shown)["n"] is None


def test_an_infinite_end_of_an_interval_is_stored_as_text(ledger, shown):
    ledger().judge("t.one", measured=Estimate(1.0, -math.inf, math.inf, 2), expected="x", passes=True)
    assert (record(shown)["low"], record(shown)["high"]) == ("-inf", "inf")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"measured": math.nan}, "t.one: `measured` is NaN"),
        ({"measured": "0.5"}, "t.one: `measured` must be an Estimate or a number"),
        ({"measured": True}, "t.one: `measured` must be an Estimate or a number"),
        ({"measured": None}, "t.one: `measured` must be an Estimate or a number"),
        ({"passes": 1}, r"t.one: `passes` must be a bool, got int; write bool\(…\)"),
        ({"passes": np.bool_(True)}, "t.one: `passes` must be a bool"),
        ({"passes": torch.tensor(True)}, "t.one: `passes` must be a bool, got Tensor"),
        ({"in_part": None}, "t.one: `in_part` must be a bool"),
        ({"expected": " "}, "t.one: `expected` must say"),
    ],
)
def test_a_faulty_judgement_is_refused_and_leaves_no_record(ledger, shown, change, message):
    book = ledger()
    with pytest.raises(ValueError, match=message):
        book.judge("t.one", **{"measured": 1.0, "expected": "x", "passes": True} | change)
    assert shown == []
    book.judge("t.one", measured=1.0, expected="x", passes=True)


def test_an_unknown_id_is_refused_with_the_nearest_one(ledger):
    with pytest.raises(ValueError, match=r"'t.ones' is not declared in claims/toy.yml; did you mean 't.one'"):
        ledger().judge("t.ones", measured=1, expected="x", passes=True)


def test_a_claim_is_judged_once(ledger):
    book = ledger()
    book.judge("t.data", measured=1, expected="x", passes=True)
    with pytest.raises(ValueError, match=r"t.data is judged already"):
        book.judge("t.data", measured=1, expected="x", passes=True)


def test_the_published_curves_are_handed_out_by_figure(write):
    path = write(declaration(published={"fig1": {"p": [1, 2], "advantage": [0.5, "1e-1"]}}))
    book = claims.Ledger("toy", runtime.begin("ci", 0, "cpu"), declarations=path)
    assert book.published("fig1") == {"p": (1.0, 2.0), "advantage": (0.5, 0.1)}
    with pytest.raises(ValueError, match="`figure` must be one of fig1; got 'fig2'"):
        book.published("fig2")


@pytest.mark.parametrize("profile", ["smoke", "ci"])
def test_a_claim_that_is_not_expected_to_hold_needs_a_reason_in_every_profile(ledger, profile):
    with pytest.raises(ValueError, match=r"t.two: `reason` is required, for the declared verdict is 'held in part'"):
        ledger(profile).judge("t.two", measured=1, expected="x", passes=True)


def test_an_unexpected_failure_is_judged_all_the_same_and_says_so(ledger, shown):
    ledger().judge("t.one", measured=1, expected="x", passes=False)
    assert record(shown)["verdict"] == "did not hold"
    assert record(shown)["reason"].startswith("Not expected")


def test_in_profile_smoke_nothing_is_judged_but_the_rule_is_evaluated(ledger, shown):
    book = ledger("smoke")
    book.judge("t.one", measured=1.0, expected="x", passes=False)
    assert (record(shown)["verdict"], record(shown)["measured"]) == ("not judged", 1.0)
    book.judge("t.data", measured=1.0, expected="x", passes=True)
    assert (record(shown)["verdict"], record(shown)["reason"]) == ("not judged", "")


def test_a_claim_for_a_larger_profile_is_not_run_and_keeps_its_measurement(ledger, shown):
    ledger("ci").judge("t.large", measured=1.0, expected="x", passes=True)
    assert (record(shown)["verdict"], record(shown)["reason"]) == ("not run", "This needs the profile paper.")
    assert record(shown)["measured"] == 1.0
    ledger("paper").judge("t.large", measured=1.0, expected="x", passes=True)
    assert record(shown)["verdict"] == "held"


def test_without_its_data_a_claim_is_not_run_whether_judged_or_not(ledger, shown, monkeypatch):
    monkeypatch.setattr(claims.fetch, "available", lambda name: False)
    why = "It needs MNIST, test set, which `make data` fetches."
    for judged in (False, True):
        book = ledger()
        if judged:
            book.judge("t.data", measured=math.nan, expected="x", passes=True)  # of other data: it is not kept
            assert (record(shown)["verdict"], record(shown)["reason"]) == ("not run", why)
            assert {record(shown)[name] for name in ("measured", "low", "high", "n")} == {None}
        (row,) = (line for line in book.verdicts().markdown.splitlines() if "t.data" in line)
        assert row.endswith(f"| – not run | {why} |")


def test_seconds_count_from_the_judgement_before(ledger, shown, monkeypatch):
    now = iter([10.0, 12.5, 13.0])
    monkeypatch.setattr(claims.time, "perf_counter", lambda: next(now))
    book = ledger()
    for name in ("t.one", "t.data"):
        book.judge(name, measured=1, expected="x", passes=True)
    assert [metadata["claim"]["seconds"] for _, metadata in shown] == [2.5, 0.5]


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


# ── words and tables ────────────────────────────────────────────────────────────────────────────────────────────────


def rows(table) -> list[list[str]]:
    """Cells of the rows of a Markdown table, read as its renderer reads it."""
    lines = [line for line in table._repr_markdown_().splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.replace(r"\|", "¦").strip("|").split("|")] for line in lines]


def test_the_declared_claims_are_a_table_with_ours_apart(ledger):
    table = ledger().declared()
    assert rows(table)[2] == ["t.one", "That $¦x¦ < 2$.", "Figure 1", "x &lt; 2"]
    assert "**Ours, not in the paper**" in table.markdown
    assert rows(table)[-1] == ["t.beyond.more", "That $¦x¦ < 2$.", "x &lt; 2"]


def test_the_verdicts_are_a_table_with_reasons_in_which_no_claim_is_missing(ledger):
    book = ledger()
    book.judge("t.two", measured=Estimate(0.5, 0.4, 0.6, 9), expected="x", passes=False, in_part=True, reason="a | b")
    found = {row[0]: row[1:] for row in rows(book.verdicts())}
    assert found["t.two"] == ["", "0.50 [0.40, 0.60] (rule: x)", "◐ held in part", "a ¦ b"]
    assert found["t.one"] == ["0.6", "", "– not run", "Not judged so far."]
    assert len(found) == 2 + 5


def test_a_full_scale_record_stands_beside_with_where_it_comes_from(ledger, tmp_path):
    full = {"id": "t.one", "verdict": "held", "measured": 0.61, "low": 0.6, "high": 0.62, "n": 10**6, "reason": ""}
    path = tmp_path / "record.json"
    header = {
        "profile": "paper",
        "seed": 0,
        "device": "cuda",
        "device_name": "H200",
        "commit": "a" * 40,
        "dirty": False,
    }
    path.write_text(json.dumps(header | {"date": "2026-01-02T03:04:05+00:00", "claims": [full]}))
    table = ledger(records=path).verdicts()
    assert rows(table)[2][-1] == "0.610 [0.600, 0.620] ✓ held"
    assert rows(table)[3][-1] == ""
    assert "Full scale: profile paper, seed 0, H200, commit aaaaaaaaaa, 2026-01-02." in table.markdown


def test_the_ledger_finds_its_files_from_the_root(tmp_path, monkeypatch, write):
    (tmp_path / "book" / "claims").mkdir(parents=True)
    (tmp_path / "_toc.yml").touch()
    write(declaration()).rename(tmp_path / "book" / "claims" / "toy.yml")
    monkeypatch.chdir(tmp_path / "book")
    assert "t.one" in claims.Ledger("toy", runtime.begin("ci", 0, "cpu")).declared().markdown
    with pytest.raises(FileNotFoundError, match=r"other\.yml"):
        claims.Ledger("other", runtime.begin("ci", 0, "cpu"))


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ((0.60046, 0.59981, 0.60111), "0.6005 [0.5998, 0.6011]"),
        ((0.5, 0.5, 0.5), "0.5 [0.5, 0.5]"),
        ((1234.5, 1200.0, 1270.0), "1234 [1200, 1270]"),
        ((1e-9, 0.5e-9, 2e-9), "1e-09 [5e-10, 2e-09]"),
        ((0.5, "-inf", "inf"), "0.5 [-inf, inf]"),
        ((0.123456789, None, None), "0.1235"),
        ((48, None, None), "48"),
        (("inf", None, None), "inf"),
        ((None, None, None), ""),
    ],
)
def test_a_measurement_is_written_to_the_digits_its_interval_supports(values, text):
    assert claims.measured_text(dict(zip(("measured", "low", "high"), values, strict=True))) == text


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("a | b", r"a \| b"),
        ("two\nlines", "two lines"),
        ("$|x| < 2$ and <b>", r"$\|x\| < 2$ and &lt;b>"),
        ("`a < b` < c", "`a < b` &lt; c"),
        (r"$\|x\|$", r"$\\|x\\|$"),
        (r"\$<script>x</script>\$", r"\$&lt;script>x&lt;/script>\$"),
        (r"\`<img src=x>\`", r"\`&lt;img src=x>\`"),
        ("``<b>`", "``< b>`"),
        ("`a<b`", "`a< b`"),
        ("$p<q$", "$p< q$"),
        ("{{ '\\x3cb' }}", "{ { '\\x3cb' }}"),
        ("{raw}`x`", "{raw} `x`"),
        ("![x](http://a.b) `![`", "! [x](http://a.b) `! [`"),
    ],
)
def test_no_text_can_end_a_cell_of_a_table(text, cell):
    assert claims.in_cell(text) == cell


EXTENSIONS = ["amsmath", "attrs_inline", "colon_fence", "deflist", "dollarmath", "substitution", "tasklist"]
READER = create_md_parser(MdParserConfig(enable_extensions=EXTENSIONS), RendererHTML)
LIVE = {"html_inline", "html_block", "substitution_inline", "substitution_block", "myst_role", "fence", "colon_fence"}
LIVE |= {"heading_open", "blockquote_open", "code_block", "myst_line_comment", "image"}
# What Markdown, mathematics and templates are made of; texts of these are more hostile than texts at random.
PIECES = [
    "<",
    "<b>",
    "<!--",
    "<?",
    "</",
    ">",
    "$",
    "$$",
    "`",
    "``",
    "```",
    "~~~",
    ":::",
    "\\",
    "{",
    "{{",
    "}",
    "}}",
    "|",
]
PIECES += [
    "{raw}",
    "!",
    "[x]",
    "(javascript:a)",
    "&lt;",
    "#",
    "%",
    "script",
    "a",
    "5",
    " ",
    "\n",
    "\u2028",
    "\t",
    "é",
    "*",
    "_",
]


def live(text: str) -> set[str]:
    """What the book's renderer would make of a text, beyond words, links, mathematics and code."""
    tokens = READER.parse(text)
    return {part.type for token in tokens for part in (token, *(token.children or ()))} & LIVE


def test_the_renderer_makes_tags_templates_and_roles_of_raw_text():
    raw = "<b> ![x](a) {{ x }} {raw}`x`\n\n# T\n\n> q\n\n% c\n\n```{x}\n```\n\n<p>\n\n    code\n\n:::{x}\n:::\n\n"
    assert live(raw + "{{ y }}\n") == LIVE


@settings(max_examples=400, deadline=None, derandomize=True)
@given(text=st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
@example(text=r"\$<script>alert(1)</script>\$")
@example(text=r"\`<img src=x onerror=alert(1)>\`")
@example(text="`{{ x }}` <b>")
@example(text="![x](javascript:a) `![x](a)")
def test_no_text_becomes_more_than_words_mathematics_and_code(text):
    assert not live(claims.in_text(text) + "\n")
    row = claims.table(("a", "b", "c"), [("x", text, "y")])
    assert not live(row)
    body = [token.content for token in READER.parse(row) if token.type == "inline"][3:]
    assert (len(body), body[0], body[-1]) == (3, "x", "y")
