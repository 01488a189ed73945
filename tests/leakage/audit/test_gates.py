"""A bar fails on every leak that the sample can decide, hardly ever on noise, and is refused where it cannot fail."""

import functools
import json
import math

import numpy as np
import pytest

from checking import refusals
from leakage import audit
from leakage.audit.gates import Gate
from leakage.membership.evaluation import outsiders_needed

ROWS = 240
REPETITIONS = 20
MOST_ALARMS = 4  # a bar that fails 5 % of audits without a leak fails more of 20 with a chance of 0.003


def halves(draws, models, rows):
    """Complementary random halves."""
    first = np.argsort(draws.random((models // 2, rows)), axis=1) < rows // 2
    return np.stack([first, ~first], 1).reshape(models, rows)


def losses_of(draws, member, leak=0.0):
    """Losses of rows of very different difficulty, which the models share; members lose less by `leak`."""
    level = 2 * draws.normal(size=member.shape[1])
    return np.logaddexp(0, -(level + draws.normal(size=member.shape) + leak * member))


DESIGNS = {
    "one model": (lambda draws, rows: draws.random((1, rows)) < 0.5, {}),
    "two models": (lambda draws, rows: draws.random((2, rows)) < 0.5, {}),
    "pairs": (lambda draws, rows: halves(draws, 8, rows), {}),
    "subsets": (lambda draws, rows: draws.random((7, rows)) < 0.5, {}),
    "one target": (lambda draws, rows: draws.random((8, rows)) < 0.5, {"target": 0}),
    "one split, eight seeds": (lambda draws, rows: np.tile(draws.random(rows) < 0.5, (8, 1)), {}),
}
BARS = {"auc": 0.5, "advantage": 0.0, "tpr@0.05": 0.05, "slice:auc": 0.5, "slice:tpr@0.1": 0.1}


@functools.cache
def alarms(design):
    """How often each bar fails where nothing leaks."""
    draws, found = np.random.default_rng(0), dict.fromkeys(BARS, 0)
    make, more = DESIGNS[design]
    for _ in range(REPETITIONS):
        member = make(draws, ROWS)
        losses = losses_of(draws, member)
        easy = losses.mean(0) < np.median(losses.mean(0))  # a slice whose rows all look like members
        result = audit.of_losses(losses, member, labels=easy, fprs=(0.05, 0.1), **more)
        for metric, bar in BARS.items():
            found[metric] += result.at_least(metric) > bar
    return found


@pytest.mark.slow
@pytest.mark.parametrize("metric", BARS)
@pytest.mark.parametrize("design", DESIGNS)
def test_a_bar_hardly_ever_fails_where_nothing_leaks(design, metric):
    assert alarms(design)[metric] <= MOST_ALARMS


def total_leak(member):
    """Losses that separate members from outsiders under every model, with no two equal."""
    return np.where(member, 0.01, 3.0) + 1e-4 * np.random.default_rng(1).random(member.shape)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [200, 900])
@pytest.mark.parametrize("design", DESIGNS)
def test_a_total_leak_fails_every_bar_that_the_sample_can_decide(design, rows):
    make, more = DESIGNS[design]
    member = make(np.random.default_rng(0), rows)
    result = audit.of_losses(total_leak(member), member, fprs=(0.1, 0.01), labels=["all"] * rows, **more)
    named = {"one model": "one model", "pairs": "complementary pairs", "one target": "one target and shadow models"}
    assert json.loads(result.to_json())["design"] == named.get(design, "subsets")
    decided = 0
    unseen = {"tpr@0.01"} if result.outsiders < 100 else set()
    if design not in ("pairs", "subsets", "one target"):
        unseen |= {"advantage"}
        with pytest.raises(ValueError, match="learnt on shadow models"):
            result.judge([Gate("advantage", 0.9)])
    for metric in {"auc", "advantage", "tpr@0.1", "tpr@0.01", "slice:tpr@0.1"} - unseen:
        for bar in (0.0, 0.3, 0.9):
            if result.lower_end(metric).attainable <= bar:
                with pytest.raises(ValueError, match="no attack could exceed"):
                    result.judge([Gate(metric, bar)])
                continue
            (gate,) = result.judge([Gate(metric, bar)])
            assert gate.failed, gate
            assert gate.at_least == pytest.approx(gate.attainable)
            decided += 1
    assert decided >= 8


@pytest.mark.parametrize(("metric", "bar"), [("tpr@0.01", 0.01), ("tpr@0.1", 0.0), ("auc", 0.9)])
def test_the_number_of_outsiders_that_a_refusal_names_is_the_least_that_decides(metric, bar):
    needed = int(outsiders_needed(metric, bar, level=0.95).replace(",", ""))
    for count, decides in ((needed, True), (needed - 1, False)):
        member = np.arange(2 * count) < count
        result = audit.of_losses(total_leak(member[None])[0], member, fprs=(0.1,))
        if decides:
            assert result.judge([Gate(metric, bar)])[0].failed
        else:
            with pytest.raises(ValueError, match=f"takes {needed:,} outsiders"):
                result.judge([Gate(metric, bar)])


def test_a_sample_that_cannot_fail_a_bar_says_so_under_its_table():
    member = np.arange(600) < 300
    (note,) = [note for note in audit.of_losses(total_leak(member[None])[0], member).notes if "perfect scores" in note]
    assert "300 outsiders" in note
    assert outsiders_needed("tpr@0.01", 0.0, level=0.95) in note


@pytest.mark.parametrize("models", [2, 4, 8])
def test_a_stronger_leak_has_no_lower_end(models):
    """The intervals of models that all find everybody lie above those of models that find nearly everybody."""
    member = halves(np.random.default_rng(0), models, 800)
    leak = total_leak(member)
    most = leak.copy()
    most[0, np.flatnonzero(member[0])[:6]] = 4.0  # six members of one model look like outsiders
    lows = [audit.of_losses(losses, member).interval("loss", "tpr@0.01").low for losses in (most, leak)]
    assert 0.9 < lows[0] <= lows[1] < 1


def minority(rows=3000, models=8, leak=6.0):
    """A tenth of the rows leak; the others do not."""
    draws = np.random.default_rng(0)
    member, rare = halves(draws, models, rows), np.arange(rows) % 10 == 0
    return losses_of(draws, member & rare, leak=leak), member, np.where(rare, "rare", "common")


def test_the_worst_slice_is_found_where_the_average_passes():
    losses, member, labels = minority()
    found = audit.of_losses(losses, member, labels=labels, groups=np.arange(len(labels)) < 8)
    average, worst = found.judge([Gate("tpr@0.01", 0.2), Gate("slice:tpr@0.01", 0.2)])
    assert not average.failed
    assert worst.failed
    assert worst.slice == "label rare"
    assert worst.at_least > 0.4
    assert worst.too_small == ("group True",)  # eight rows
    assert found.at_least("slice:tpr@0.01") == pytest.approx(worst.at_least)
    assert "Worst slice: label rare" in found._repr_html_()


def test_a_bar_is_refused_if_a_small_slice_may_leak_or_members_are_turned_over():
    losses, member, labels = minority(rows=900, leak=60.0)
    with pytest.raises(ValueError, match=r"slice label rare .* too few to show"):
        audit.of_losses(losses, member, labels=labels).judge([Gate("slice:tpr@0.01", 0.9)])
    losses, member, labels = minority(rows=900, leak=0.0)
    assert not audit.of_losses(losses, member, labels=labels).judge([Gate("slice:tpr@0.01", 0.1)])[0].failed
    with pytest.raises(ValueError, match="turned over"):
        audit.of_losses(total_leak(~member), member).judge([Gate("auc", 0.6)])


def test_the_headline_is_the_attack_that_finds_most_at_one_percent():
    """LiRA finds a few rows for sure; the loss of the others says a little about all."""
    draws = np.random.default_rng(0)
    member = halves(draws, 8, 2000)
    losses = losses_of(draws, member, leak=0.3)
    sure = np.arange(2000) % 12 == 0
    losses[:, sure] = np.where(member[:, sure], 0.5, 1.0) + 0.01 * draws.random((8, sure.sum()))
    found = audit.of_losses(losses, member)
    assert found.headline == "tpr@0.01"
    lows = {row.attack: found.interval(row.attack, "tpr@0.01").low for row in found.results}
    assert found.strongest.attack == max(lows, key=lows.__getitem__)
    assert {record["row"] for record in found.exposed_rows(20)} <= set(np.flatnonzero(sure))
    few = audit.of_losses(losses[:, :150], member[:, :150])
    assert few.headline == "auc"


def some_audit(**more):
    member = np.arange(200) < 100
    return audit.of_losses(total_leak(member[None])[0], member, **more)


test_a_gate_that_says_nothing_is_refused = refusals(
    (lambda: Gate("auc", 1.0), "must be at least 0 and below 1"),
    (lambda: Gate("tpr@0.01", 5), "such as 0.05 for 5 %, got 5"),
    (lambda: Gate("auc", -0.1), "must be at least 0 and below 1"),
    (lambda: Gate("auc", math.nan), "must be at least 0 and below 1"),
    (lambda: Gate("slice:precision", 0.5), "must be one of"),
    (lambda: some_audit().judge([Gate("tpr@0.01", 0.5)]), "no attack could exceed tpr@0.01=0.5 on this sample"),
    (lambda: some_audit().judge([Gate("slice:auc", 0.5)]), "needs `labels` or `groups`"),
    (lambda: some_audit(labels=np.arange(200)).judge([Gate("slice:auc", 0.5)]), "needs `labels` or `groups`"),
    (lambda: some_audit(labels=[0] * 200).judge([Gate("slice:tpr@0.001", 0.5)]), "in the largest slice even perfect"),
)
