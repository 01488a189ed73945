"""A rule says what its text says, shows as mathematics, and is refused if it is more than comparisons."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leakage.metrics.estimates import Estimate
from reproduced.claims.measurements import Count, Exact
from reproduced.claims.rules import Rule

VALUES = {"a": Estimate(2, 1, 3, 9), "b": Exact(5, 0.5), "wrong": Count(2, 4)}
SEVERAL = {"a": [Exact(1, 0), Exact(2, 0)], "b": [Exact(2, 0), Exact(4, 0)], "wrong": [Count(0, 3), Count(2, 3)]}


# ── what a rule says: of one measurement each, and of several ───────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("a.low > 0.9 and a.high < 3.1", True),
        ("a.low > 1", False),
        ("a.low >= 1", True),
        ("b.low == 4.5 and b.high == 5.5", True),
        ("wrong == 2 and wrong.of == 4", True),
        ("0.06 < wrong.low < 0.07 and 0.93 < wrong.high < 0.94", True),
        ("not a.low > 2 or b.low < 0", True),
        ("abs(a.low - b.low) < 3.6", True),
        ("a.low + b.low * 2 - 1 == 9 and b.high / 2 == 2.75 and -a.low < 0 and a.high ** 2 <= 9", True),
        ("min(a.low, b.low) == 1 and max(a.high, 7) == 7", True),
    ],
)
def test_a_rule_says_what_its_text_says(text, verdict):
    assert Rule(text)(VALUES) is verdict


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("min(a.low) == 1 and max(a.low, b.low) == 4", True),
        ("all(a.low > 0) and any(a.low > 1.5)", True),
        ("all(a.low > 1)", False),
        ("all(b.low - 2 * a.low == 0)", True),
        ("max(wrong) == 2 and any(wrong == 0)", True),
    ],
)
def test_of_several_measurements_a_rule_takes_all_any_least_or_largest(text, verdict):
    assert Rule(text)(SEVERAL) is verdict


@given(st.lists(st.booleans(), min_size=3, max_size=3))
def test_and_or_not_are_those_of_logic(truths):
    values = {name: Exact(float(truth), 0) for name, truth in zip("abc", truths, strict=True)}
    a, b, c = (f"{name}.low > 0.5" for name in "abc")
    x, y, z = truths
    assert Rule(f"{a} and ({b} or not {c})")(values) is (x and (y or not z))
    assert Rule(f"{a} and {b} or not {c}")(values) is ((x and y) or not z)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a > 3", r"needs a.low or a.high: it is no count"),
        ("a.of > 3", "it is no count"),
        ("b.low / (wrong - 2) > 1", "cannot be applied to what was measured"),
    ],
)
def test_a_rule_that_does_not_fit_what_was_measured_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        Rule(text)(VALUES)


def test_several_measurements_outside_of_all_and_any_are_refused():
    with pytest.raises(ValueError, match="cannot be applied"):
        Rule("a.low > 0 and b.low > 0")(SEVERAL)


# ── what is no rule ─────────────────────────────────────────────────────────────────────────────────────────────────

REFUSED = {
    "a.low": "must be a comparison",
    "a.low > b.low": "must compare with a number",
    "a.low > 2 ** 3 and a.low >": "not an expression",
    "a.real > 1": "cannot have 'a.real'",
    "a.low > True": "cannot have 'True'",
    "a.low > 1e999": "cannot have",
    "a.low != 3": "cannot have",
    "(a.low > 1) > 2": "must be a number",
    "all(a.low) and a.low > 1": "must be a comparison",
    "abs(a.low, b.low) > 1": "cannot have",
    "min(a.low, key=1) > 1": "cannot have",
    "__import__('os').system('x') > 1": "cannot have",
    "": "not an expression",
}


@pytest.mark.parametrize(("text", "message"), REFUSED.items(), ids=lambda part: "")
def test_what_is_more_or_less_than_a_comparison_with_a_number_is_refused(text, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Rule(text)


PIECES = ["a.low", "b.high", "wrong", "a", "1", "0.5", "<", ">", "==", "and", "or", "not", "(", ")", ",", "min", "all"]
PIECES += ["abs", "+", "-", "*", "/", "**", ".low", "__class__", "lambda", ":", "[", "]", "for", "in", "'x'", "\\", "#"]


def or_refused(make, *arguments):
    """What it makes, or the sentence by which it is refused."""
    try:
        return make(*arguments)
    except ValueError as error:
        return str(error)


@given(st.lists(st.sampled_from(PIECES), max_size=12).map(" ".join))
def test_any_text_is_a_rule_or_refused_in_one_line(text):
    read = or_refused(Rule, text)
    if isinstance(read, Rule):
        read = or_refused(read, VALUES)
    assert isinstance(read, bool) or "\n" not in read


# ── what the numbers of a rule do ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "thresholds"),
    [
        ("a.low > 0.9 and b.high < 7", [(0.9, True), (7, True)]),
        ("a.low > 0.9 or b.high < 7", [(0.9, False), (7, False)]),  # either is enough, so neither decides
        ("abs(a.low - 1) < 0.5 and wrong == 2", [(1, True), (0.5, True), (2, True)]),
        ("a.low ** 2 < 3", [(3, True)]),  # the power is none of the numbers compared with
        ("a.low > 5 and b.high < 1", [(5, False), (1, False)]),  # both fail: moving one is not enough
    ],
)
def test_a_threshold_that_decides_changes_the_outcome_when_it_is_moved(text, thresholds):
    assert Rule(text).thresholds(VALUES) == thresholds


@pytest.mark.parametrize(
    ("text", "margins", "distance"),
    [
        ("a.low > 0.25 and b.high < 7.5", [0.75, 2], 0.75),
        ("a.low > 0.25 or not b.high < 7.5", [0.75, 2], 0.75),
        ("not (a.low > 0.25 and b.high < 7.5)", [0.75, 2], -0.75),
        ("0.5 < a.low < 4 and wrong == 2 and wrong.of == 5", [0.5, 0.5, -0.5], -0.5),
    ],
)
def test_the_distance_of_a_rule_is_that_of_its_nearest_comparison(text, margins, distance):
    read = Rule(text)
    assert read.margins(VALUES) == margins
    assert read.distance(margins) == distance
    assert (distance > 0) is read(VALUES)


def test_of_several_measurements_the_nearest_or_the_farthest_counts():
    assert Rule("all(a.low > 0.25) and any(b.low > 1)").margins(SEVERAL) == [0.75, 3]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map(" ".join))
def test_a_rule_is_true_where_its_margin_is_positive(text):
    read = or_refused(Rule, text)
    if isinstance(read, Rule) and isinstance(true := or_refused(read, VALUES), bool):
        distance = read.distance(read.margins(VALUES))
        assert distance == 0 or (distance > 0) is true
