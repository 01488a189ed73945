"""A claims file is read as it is written and by the rules, or refused in one line with its place."""

import json
from functools import partial
from pathlib import Path

import check_jsonschema
import pytest
import yaml
from click.testing import CliRunner

from reproduced.claims import declarations
from reproduced.claims.measurements import Count, Exact
from small_book import claim_entry, declaration, save_claims

CLAIMS = Path(__file__).parents[3] / "book" / "claims"


@pytest.fixture
def write(tmp_path):
    """Write a claims file (a value or a text) and return its path."""
    return partial(save_claims, tmp_path)


@pytest.fixture
def load(write):
    """The only claim of a claims file, with these fields."""
    return lambda **fields: declarations.load(write(declaration(claims=[claim_entry("t.one", **fields)]))).claims[0]


# ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_claims_file_is_read_as_it_is_written(write):
    declared = declarations.load(write(declaration()))
    assert [claim.id for claim in declared.claims] == ["t.one", "t.two", "t.data", "t.beyond.more"]
    assert declared.by_id["t.data"].needs == ("mnist",)
    assert (declared.by_id["t.beyond.more"].where, declared.data) == ("", ("mnist",))
    groups = {group: [claim.id for claim in claims] for group, claims in declared.groups().items()}
    assert groups == {
        "The paper's claims": ["t.one", "t.two", "t.data"],
        "Ours, not in the paper": ["t.beyond.more"],
    }


def test_a_value_keeps_its_digits_and_is_never_a_yaml_type(write):
    text = yaml.safe_dump(declaration()).replace("paper: 0.6", "paper: 0.600").replace("Figure 1", "yes")
    declared = declarations.load(write(text))
    assert (declared.by_id["t.one"].paper, declared.by_id["t.one"].where) == ("0.600", "yes")


def without(entry: dict, field: str) -> dict:
    return {name: value for name, value in entry.items() if name != field}


REFUSED = [
    ({"chapter": "other"}, "`chapter` must be the name of the file, 'toy'; got 'other'"),
    ({"titel": "x"}, "`titel`: Extra inputs are not permitted; got 'x'"),
    ({"claims": ["t.one"]}, "a claim without id: Input should be a valid dictionary or instance of Claim; got 't.one'"),
    ({"claims": [claim_entry("t.one"), claim_entry("t.one")]}, "declared twice: t.one"),
    ({"claims": [claim_entry("u.one")]}, "claim u.one: `id` must begin with t, the prefix of the file"),
    (
        {"claims": [claim_entry("t.beyond.one")]},
        "claim t.beyond.one: `kind` must be ours, as the id says; got 'figure'",
    ),
    ({"claims": [claim_entry("t.one", values={"x": "w", "y": "w"})]}, "claim t.one: no rule looks at y"),
    ({"claims": [claim_entry("t.one", holds="y.low > 1")]}, "claim t.one: a rule names y; `values` declares x"),
    ({"claims": [claim_entry("t.one", refuted="x.low")]}, "claim t.one: `refuted`: a rule must be a comparison"),
    (
        {"claims": [claim_entry("t.one", why="It is {y}.")]},
        "claim t.one: `why` or `defence` names y; `values` declares x",
    ),
    ({"claims": [claim_entry("t.one", shows="y")]}, "claim t.one: `shows` must have one of x in braces; got 'y'"),
    ({"claims": [claim_entry("t.one", expected="held in part")]}, "claim t.one: `in_part` is required"),
    ({"claims": [without(claim_entry("t.one", expected="undecided"), "why")]}, "claim t.one: `why` is required"),
    (
        {"claims": [without(claim_entry("t.one"), "where")]},
        "claim t.one: `where` is required, for the kind is 'figure'",
    ),
    ({"claims": [claim_entry("t.one", needs=["adult"])]}, "claim t.one: `needs` names adult, which `data` does not"),
    ({"published": {"fig1": {"x": [1], "y": [1, 2]}}}, "`published.fig1` must be columns of one length"),
]


@pytest.mark.parametrize(("change", "message"), REFUSED, ids=lambda part: "")
def test_a_faulty_declaration_is_refused_with_its_place_the_rule_and_the_value(write, change, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is compared with `in`
        declarations.load(write(declaration(**change)))
    assert str(caught.value).startswith("toy.yml: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\na: 2", "'a' stands twice in one entry"),
        ("a: [", "while parsing"),
        ("- a", "should be a valid dictionary"),
        ("", "should be a valid dictionary"),
        ("x" * 100_000, r"characters\)\.$"),
    ],
)
def test_a_text_that_is_no_clean_mapping_is_refused_in_one_short_line(write, text, message):
    with pytest.raises(ValueError, match=message) as caught:
        declarations.load(write(text))
    assert str(caught.value).startswith("toy.yml: ")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_editors_have_the_schema_of_today():
    cure = "python -c 'from reproduced.claims import declarations; print(declarations.schema(), end=\"\")'"
    kept = (CLAIMS / "schema.json").read_text("utf-8")
    assert json.loads(kept) == json.loads(declarations.schema()), f"write it anew: {cure} > book/claims/schema.json"


def test_every_claims_file_of_the_book_fits_the_schema_and_names_it():
    files = sorted(CLAIMS.glob("*.yml"))
    result = CliRunner().invoke(check_jsonschema.main, ["--schemafile", f"{CLAIMS / 'schema.json'}", *map(str, files)])
    assert result.exit_code == 0, result.output
    assert {path.read_text("utf-8").splitlines()[0] for path in files} == {
        "# yaml-language-server: $schema=schema.json"
    }


# ── judging ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("value", "verdict"), [(0.5, "held"), (2.5, "held in part"), (3.5, "undecided"), (4.5, "did not hold")]
)
def test_the_verdict_is_that_of_the_first_rule_that_is_satisfied(load, value, verdict):
    declared = load(holds="x.high < 2", in_part="x.high < 3", refuted="x.low > 4")
    assert declared.verdict({"x": Exact(value, 0.1)}) == verdict


def test_rules_that_contradict_each_other_on_a_measurement_are_refused(load):
    with pytest.raises(ValueError, match="contradict each other: it holds and is refuted"):
        load(refuted="x.low > 1").verdict({"x": Exact(1.5, 0.1)})


@pytest.mark.parametrize(
    ("rules", "unused"),
    [
        ({"holds": "x.high < 2 and x.low > 0.25"}, ()),
        ({"holds": "x.high < 2 or x.low > 0.25"}, (2, 0.25)),  # each is true without the other
        ({"holds": "x.high < 0", "refuted": "x.low > 9"}, ()),  # undecided: each could decide it
        ({"holds": "x.high < 0 and x.low > 9", "refuted": "x.low > 9 and x.high < 0"}, (0, 9, 9, 0)),
        ({"holds": "x.high < 0 and x.low > 9", "in_part": "x.low > 0.25"}, ()),
    ],
)
def test_a_threshold_that_does_not_affect_the_verdict_is_unused(load, rules, unused):
    assert load(**rules).unused_thresholds({"x": Exact(1, 0.5)}) == unused


# ── words beside the verdict ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("shows", "summary"), [({}, "x 0.5"), ({"shows": "{x} of $n^{2}$"}, "0.5 of $n^{2}$")])
def test_beside_the_verdict_stand_a_few_words_with_what_was_measured(load, shows, summary):
    assert load(**shows).summary({"x": Exact(0.5, 0.1)}) == summary


def test_a_reason_names_the_measurements_and_leaves_mathematics_alone(load):
    declared = load(kind="theorem", expected="undecided", why=r"Of $n^{x}$ and $\frac{x}{x}$: {x}.")
    values = {"x": Count(2, 3)}
    assert declared.reason("undecided", values) == r"Of $n^{x}$ and $\frac{x}{x}$: 2 of 3."
    assert declared.reason("held", values) == "Not expected: undecided was."


def test_a_slip_in_the_proof_stands_beside_a_theorem_that_holds(load):
    assert load(proof="It drops a term.").reason("held", {}) == "As stated; the printed proof: It drops a term."
