"""A claims file is read as it is written and by the rules, or refused in one line with its place."""

import math
import random
import re
from collections import Counter
from functools import partial

import pytest
import yaml

from declared import claim, declaration, save
from reproduced.claims import declarations
from reproduced.claims.measurements import Count, Exact


@pytest.fixture
def write(tmp_path):
    """Write a claims file (a value or a text) and return its path."""
    return partial(save, tmp_path)


def test_a_claims_file_is_read_as_it_is_written(write):
    declared = declarations.load(write(declaration()))
    assert [claim.id for claim in declared.claims] == ["t.one", "t.two", "t.data", "t.large", "t.beyond.more"]
    assert declared.by_id["t.one"].paper == "0.6"
    assert declared.by_id["t.data"].needs == ("mnist",)
    assert (declared.by_id["t.beyond.more"].where, declared.data) == ("", ("mnist",))
    groups = {group: [claim.id for claim in claims] for group, claims in declared.groups().items()}
    assert groups == {
        "The paper's claims": ["t.one", "t.two", "t.data", "t.large"],
        "Ours, not in the paper": ["t.beyond.more"],
    }


def test_a_value_keeps_its_digits_and_is_never_a_yaml_type(write):
    text = yaml.safe_dump(declaration()).replace("paper: 0.6", "paper: 0.600").replace("Figure 1", "yes")
    declared = declarations.load(write(text))
    assert (declared.by_id["t.one"].paper, declared.by_id["t.one"].where) == ("0.600", "yes")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"chapter": "other"}, "`chapter` must be the name of the file, 'toy'; got 'other'"),
        ({"prefix": "T!"}, "`prefix` must be one lower-case word"),
        ({"title": ""}, "the file: `title` must be text"),
        ({"titel": "x"}, "the file: unknown field titel; known: chapter, claims, data, paper, prefix, p"),
        ({"claims": []}, "declares no claim"),
        ({"claims": "none"}, "`claims` must be a list"),
        ({"claims": ["t.one"]}, "a claim without id must be a mapping"),
        ({"claims": [claim("t.one"), claim("t.one")]}, "declared twice: t.one"),
        ({"claims": [claim("u.one")]}, "claim u.one: `id` must be t.<row>"),
        ({"claims": [claim("t.o-ne")]}, "claim t.o-ne: `id` must be t.<row>"),
        ({"claims": [claim("t.beyond.one")]}, "claim t.beyond.one: `kind` must be ours, as its id says; got 'figure'"),
        ({"claims": [claim("t.one", kind="guess")]}, "claim t.one: `kind` must be one of theorem, figure,"),
        ({"claims": [claim("t.one", values={})]}, "claim t.one: `values` must say what each value is"),
        ({"claims": [claim("t.one", values=["x"])]}, "claim t.one: `values` must say what each value is"),
        ({"claims": [claim("t.one", values={"X": "w"})]}, "a value must have a name of lower-case letters; got X"),
        ({"claims": [claim("t.one", values={"x": "w", "in": "w"})]}, "of lower-case letters; got in"),
        ({"claims": [claim("t.one", values={"x": ""})]}, "claim t.one: `x` must be text"),
        ({"claims": [claim("t.one", values={"x": "w", "y": "w"})]}, "claim t.one: no rule looks at y"),
        ({"claims": [claim("t.one", holds="y.low > 1")]}, "claim t.one: `holds`: a rule names 'y', which `values`"),
        ({"claims": [claim("t.one", refuted="x.low")]}, "claim t.one: `refuted`: a rule must be a comparison"),
        ({"claims": [claim("t.one", in_part="x.low >")]}, "claim t.one: `in_part`: not an expression"),
        ({"claims": [claim("t.one", why="It is {y}.")]}, "claim t.one: `why` names y, which `values` does not"),
        ({"claims": [claim("t.one", expected="held in part")]}, "claim t.one: `in_part` is required"),
        ({"claims": [claim("t.one", shows="y")]}, "claim t.one: `shows` must have one of x in braces, and no other; "),
        ({"claims": [claim("t.one", shows="{x} {y}")]}, "claim t.one: `shows` must have one of x in braces"),
        ({"claims": [claim("t.one", exact="yes")]}, "claim t.one: `exact` must be true, or left out; got 'yes'"),
        ({"claims": [claim("t.one", wher="x")]}, "claim t.one: unknown field wher"),
        ({"claims": [{"id": "t.one"}]}, "claim t.one: `claim` is missing"),
        ({"claims": [claim("t.one", claim=["x"])]}, "claim t.one: `claim` must be text"),
        ({"claims": [claim("t.one", profile="smoke")]}, "claim t.one: `profile` must be one of ci, paper; got 'smoke'"),
        ({"claims": [claim("t.one", expected="fine")]}, "`expected` must be one of held, held in part, did"),
        ({"claims": [claim("t.one", needs=["adult"])]}, "claim t.one: `needs` names adult, which `data` of the file"),
        ({"claims": [claim("t.one", needs="mnist")]}, "claim t.one: `needs` must be a list"),
        ({"data": [["mnist"]]}, "`data` must be a list of names"),
        ({"published": ["x"]}, "`published` must be a mapping of figures"),
        ({"published": {"fig1": {"x": [1], "y": [1, 2]}}}, "published fig1 must be columns of one length"),
        ({"published": {"fig1": "x"}}, "published fig1 must be columns of one length"),
        ({"published": {"fig1": {"x": ["a"]}}}, "published fig1 must hold finite numbers only; got 'a'"),
        ({"published": {"fig1": {"x": [[1]]}}}, "published fig1 must hold finite numbers only; got ['1']"),
        ({"published": {"fig1": {"x": [".nan"]}}}, "published fig1 must hold finite numbers only"),
        ({"published": {"fig1": {"x": ["nan"]}}}, "published fig1 must hold finite numbers only; got 'nan'"),
        ({"published": {"fig1": {"x": ["-inf"]}}}, "published fig1 must hold finite numbers only; got '-inf'"),
        ({"published": {"fig1": {"x": ["1e999"]}}}, "published fig1 must hold finite numbers only; got '1e999'"),
        ({"published": {"fig1": {"x": ["1_0"]}}}, "published fig1 must hold finite numbers only; got '1_0'"),
        ({"published": {"fig1": {"x": ["٣"]}}}, "published fig1 must hold finite numbers only; got '٣'"),
    ],
)
def test_a_faulty_declaration_is_refused_with_its_place(write, change, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is compared with `in`
        declarations.load(write(declaration(**change)))
    assert str(caught.value).startswith("toy.yml: ")
    assert message in str(caught.value)


@pytest.mark.parametrize("expected", ["held in part", "did not hold", "undecided"])
def test_a_verdict_other_than_held_is_declared_with_its_reason(write, expected):
    entry = claim("t.one", expected=expected, in_part="x.low < 1")
    del entry["why"]
    with pytest.raises(ValueError, match=f"claim t.one: `why` is required, for the expected verdict is '{expected}'"):
        declarations.load(write(declaration(claims=[entry])))


@pytest.mark.parametrize(
    ("value", "verdict"), [(0.5, "held"), (2.5, "held in part"), (3.5, "undecided"), (4.5, "did not hold")]
)
def test_the_verdict_is_that_of_the_first_rule_that_is_satisfied(write, value, verdict):
    rules = {"holds": "x.high < 2", "in_part": "x.high < 3", "refuted": "x.low > 4"}
    (declared,) = declarations.load(write(declaration(claims=[claim("t.one", **rules)]))).claims
    assert declared.verdict({"x": Exact(value, 0.1)}) == verdict


@pytest.mark.parametrize(("shows", "told"), [({}, "x 0.5"), ({"shows": "{x} of $n^{2}$"}, "0.5 of $n^{2}$")])
def test_beside_the_verdict_stand_a_few_words_with_what_was_measured(write, shows, told):
    (declared,) = declarations.load(write(declaration(claims=[claim("t.one", **shows)]))).claims
    assert declared.told({"x": Exact(0.5, 0.1)}) == told


def test_rules_that_contradict_each_other_on_a_measurement_are_refused(write):
    (declared,) = declarations.load(write(declaration(claims=[claim("t.one", refuted="x.low > 1")]))).claims
    with pytest.raises(ValueError, match="contradict each other: it holds and is refuted"):
        declared.verdict({"x": Exact(1.5, 0.1)})


@pytest.mark.parametrize(
    ("rules", "idle"),
    [
        ({"holds": "x.high < 2 and x.low > 0.25"}, ()),
        ({"holds": "x.high < 2 or x.low > 0.25"}, (2, 0.25)),  # each is true without the other
        ({"holds": "x.high < 0", "refuted": "x.low > 9"}, ()),  # undecided: each could decide it
        ({"holds": "x.high < 0 and x.low > 9", "refuted": "x.low > 9 and x.high < 0"}, (0, 9, 9, 0)),
        ({"holds": "x.high < 0 and x.low > 9", "in_part": "x.low > 0.25"}, ()),
    ],
)
def test_a_number_that_decides_nothing_is_idle(write, rules, idle):
    (declared,) = declarations.load(write(declaration(claims=[claim("t.one", **rules)]))).claims
    assert declared.idle({"x": Exact(1, 0.5)}) == idle


def test_a_reason_names_the_measurements_and_leaves_mathematics_alone(write):
    entry = claim(
        "t.one", kind="theorem", expected="undecided", why=r"Of $n^{x}$ and $\frac{x}{x}$: {x}.", proof="Slips."
    )
    (declared,) = declarations.load(write(declaration(claims=[entry]))).claims
    values = {"x": Count(2, 3)}
    assert declared.reason("undecided", values) == r"Of $n^{x}$ and $\frac{x}{x}$: 2 of 3."
    assert declared.reason("held", values) == "Not expected: undecided was."


def test_a_slip_in_the_proof_stands_beside_a_theorem_that_holds(write):
    (declared,) = declarations.load(write(declaration(claims=[claim("t.one", proof="It drops a term.")]))).claims
    assert declared.reason("held", {}) == "As stated; the printed proof: It drops a term."


def test_a_missing_field_of_the_file_is_named(write):
    content = declaration()
    del content["paper"]
    with pytest.raises(ValueError, match="the file: `paper` is missing"):
        declarations.load(write(content))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\na: 2", "'a' stands twice"),
        ("a: [", "while parsing"),
        ("- a", "the file must be a mapping"),
        ("[" * 3000, "line 1 is nested deeper than 20 levels"),
        ("\n".join("  " * depth + f"k{depth}:" for depth in range(3000)), "line 20 is nested deeper than 20 levels"),
        ("a: &a [x]\nb: *a", "line 2 refers to another place of the file; write the value out"),
        ("a: &a [*a]", "line 1 refers to another place"),
        ("a0: &a0 [x]\n" + "\n".join(f"a{i}: &a{i} [{f'*a{i - 1}, ' * 9}]" for i in range(1, 12)), "line 2 refers"),
        ("a: \x00", "special characters are not allowed"),
        ("a: 1\n---\nb: 2", "expected a single document"),
        ("", "the file must be a mapping"),
        ("x" * 100_000, r"characters\)$"),
    ],
)
def test_a_text_that_is_no_clean_mapping_is_refused_in_one_short_line(write, text, message):
    with pytest.raises(ValueError, match=message) as caught:
        declarations.load(write(text))
    assert str(caught.value).startswith("toy.yml: ")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_file_in_another_encoding_is_refused(tmp_path):
    path = tmp_path / "toy.yml"
    path.write_bytes("title: café".encode("latin-1"))
    with pytest.raises(ValueError, match=r"toy\.yml: .*can't decode byte 0xe9"):
        declarations.load(path)


MUTATIONS = 800
OBEYED = [
    b"\n",
    b"\t",
    b" ",
    b"  ",
    b": ",
    b"- ",
    b"#",
    b"[",
    b"{",
    b"}",
    b"'",
    b'"',
    b"|",
    b">",
    b"*a",
    b"&a ",
    b"!!x ",
]
OBEYED += [b"%", b"---\n", b"...\n", b"? ", b"<<: ", b"\0", b"\xff", b"\xe2\x80\xa8", b"nan"]


def mutated(text: bytes, draw: random.Random) -> bytes:
    """`text` after one to three accidents: a bit flipped, bytes cut, doubled, moved or replaced by what YAML obeys."""
    for _ in range(draw.randint(1, 3)):
        start = draw.randrange(len(text) + 1)
        stop = min(len(text), start + draw.choice((0, 1, 1, 5, 40)))
        piece = text[start:stop]
        new = draw.choice(
            [
                bytes([piece[0] ^ 1 << draw.randrange(8)]) + piece[1:] if piece else b"",
                b"",
                piece * 2,
                draw.choice(OBEYED),
                text[: draw.randrange(len(text) + 1)][-20:],
            ]
        )
        text = text[:start] + new + text[stop:]
    return text


def skeleton(declared: declarations.Declarations) -> tuple:
    """What a claims file says beyond free text."""
    claims = [(one.id, one.kind, one.profile, one.expected, one.needs, one.rules) for one in declared.claims]
    return declared.chapter, declared.prefix, declared.data, declared.published, claims


def test_a_claims_file_that_was_damaged_is_refused_in_one_line_or_read_by_the_rules(write):
    """What is accepted has another wording, or another value that is allowed; no check can tell these from the true."""
    path, draw = write(declaration(published={"fig1": {"x": [1, 2], "y": [0.5, 0.25]}})), random.Random(5)
    text, original = path.read_bytes(), declarations.load(path)
    outcomes = Counter()
    for _ in range(MUTATIONS):
        path.write_bytes(mutated(text, draw))
        try:
            read = declarations.load(path)
        except ValueError as error:
            outcomes["refused" if re.fullmatch(r"toy\.yml: .{1,450}", str(error)) else f"told wrongly: {error}"] += 1
            continue
        for one in read.by_id.values():
            assert re.fullmatch(rf"{read.prefix}(\.[A-Za-z0-9_]+)+", one.id)
            assert one.profile in ("ci", "paper")
            assert one.expected in declarations.VERDICTS
            assert set(one.needs) <= set(read.data)
            assert all(isinstance(word, str) and word.strip() for word in (one.claim, *one.values.values()))
            assert one.kind in declarations.KINDS
            assert {"held", "refuted"} <= one.rules.keys()
        assert all(math.isfinite(x) for curve in read.published.values() for column in curve.values() for x in column)
        outcomes[
            "equal" if read == original else "reworded" if skeleton(read) == skeleton(original) else "changed"
        ] += 1
    print(dict(outcomes))
    assert set(outcomes) == {"refused", "equal", "reworded", "changed"}
    assert sum(outcomes.values()) == MUTATIONS
    assert outcomes["refused"] > MUTATIONS / 2
