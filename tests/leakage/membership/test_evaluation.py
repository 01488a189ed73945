"""One contract holds for every attack of the table: blind, in no order, right on what is planted and on what is not."""

import functools
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from torch import nn

from checking import refusals
from leakage.data.membership_splits import complementary_pairs
from leakage.membership.evaluation import evaluate
from leakage.membership.table import ATTACKS
from leakage.membership.trained_models import NotAvailable, TrainedModels
from leakage.models.mlp import Mlp
from leakage.precision import DTYPE
from reproduced.runtime import stream

MODELS, POINTS = 6, 40
PAIRS = complementary_pairs(POINTS, MODELS, generator=stream(0, "pairs"))
OTHERS = complementary_pairs(POINTS, MODELS, generator=stream(0, "other pairs"))
SUBSETS = torch.rand(MODELS, POINTS, generator=stream(0, "subsets")) < 0.5
LABELS = torch.randint(2, (POINTS,), generator=stream(0, "labels"))
ROWS = torch.stack([torch.arange(POINTS, dtype=DTYPE), torch.rand(POINTS, generator=stream(0, "rows"), dtype=DTYPE)], 1)
HEIGHT, LOW = 3.0, 0.2  # of the answer at a memorised point, and of the wrong answer at any other

each_attack = pytest.mark.parametrize("name", ATTACKS)


def memorised(member: torch.Tensor) -> Mlp:
    """A network that answers wrongly, but for a tent over each point that it memorised: steep, narrow, high, right.

    Its two logits differ by a piecewise linear function of the first coordinate.
    """
    sign = 2.0 * LABELS.to(DTYPE) - 1
    corners = []
    for place in range(POINTS):
        base = -LOW * float(sign[place])
        corners += [(place - 0.4, base)]
        if member[place]:
            corners += [(place - 0.3, base), (place + 0.01, HEIGHT * float(sign[place])), (place + 0.3, base)]
        corners += [(place + 0.4, base)]
    kinks, heights = torch.tensor(corners, dtype=DTYPE).unbind(1)
    slopes = torch.cat([torch.zeros(1, dtype=DTYPE), heights.diff() / kinks.diff(), torch.zeros(1, dtype=DTYPE)])
    turns = slopes.diff()
    first = torch.stack([torch.ones_like(kinks), torch.zeros_like(kinks)], 1)
    last = torch.stack([torch.zeros_like(turns), turns])
    return Mlp((first, last), (-kinks, torch.stack([torch.zeros_like(heights[0]), heights[0]])))


NETWORKS = [memorised(member) for member in PAIRS.member]
PLANTED = TrainedModels(NETWORKS, ROWS, LABELS, PAIRS.member, PAIRS.partner, features=ROWS)


@functools.cache
def planted(name: str) -> torch.Tensor:
    return scores(PLANTED, name)


def scores(models: TrainedModels, name: str) -> torch.Tensor:
    found = evaluate(models, [name], generator=stream(0, "attack")).results[name].scores
    assert found is not None
    return found


@each_attack
def test_every_point_has_a_finite_score_under_every_model(name):
    assert planted(name).shape == (MODELS, POINTS)
    assert bool(planted(name).isfinite().all())


@each_attack
def test_what_was_memorised_is_found_first(name):
    found = planted(name)
    least = found.masked_fill(~PAIRS.member, math.inf).amin(1)
    assert bool((least > found.masked_fill(PAIRS.member, -math.inf).amax(1)).all())


@each_attack
@pytest.mark.parametrize("design", ["pairs", "subsets"])
def test_no_attack_sees_the_membership_that_it_guesses(name, design):
    if design == "pairs":
        models, flipped = PLANTED, [2, int(PAIRS.partner[2])]
        before = planted(name)
    else:
        models, flipped = TrainedModels(NETWORKS, ROWS, LABELS, SUBSETS, features=ROWS), [2]
        before = scores(models, name)
    # Who knows outsiders may know the other points, never the one that it scores.
    asked = slice(7, 8) if "outsiders" in ATTACKS[name].knows else slice(None)
    other = models.member.clone()
    other[flipped, asked] = ~other[flipped, asked]
    after = scores(TrainedModels(NETWORKS, ROWS, LABELS, other, models.partner, features=ROWS), name)
    # Sums over other models add up in another order, and some scores have nine digits.
    torch.testing.assert_close(after[2, asked], before[2, asked], rtol=1e-8, atol=1e-8)


@each_attack
def test_who_was_memorised_elsewhere_says_nothing_here(name):
    models = TrainedModels(NETWORKS, ROWS, LABELS, OTHERS.member, OTHERS.partner, features=ROWS)
    found = evaluate(models, [name], generator=stream(0, "attack")).interval(name)
    # A Mann-Whitney area at most, of halves of the points; the two models of a pair count as one.
    error = math.sqrt((POINTS + 1) / (3 * POINTS**2)) / math.sqrt(MODELS / 2)
    assert abs(found.estimate - 0.5) < 4 * error


@each_attack
def test_the_order_of_the_points_does_not_matter(name):
    order = torch.randperm(POINTS, generator=stream(0, "order"))
    torch.testing.assert_close(
        scores(PLANTED.select_points(order), name), planted(name)[:, order], rtol=1e-8, atol=1e-8
    )


@each_attack
def test_every_attack_says_what_it_takes(name):
    attack = ATTACKS[name]
    if attack.sees == "weights":
        hidden = TrainedModels([network.__call__ for network in NETWORKS], ROWS, LABELS, PAIRS.member, PAIRS.partner)
        assert "weights" in evaluate(hidden, [name], generator=stream(0, "attack")).results[name].missing
    if not attack.knows & {"shadow models", "outsiders"}:
        alone = TrainedModels(NETWORKS, ROWS, LABELS, OTHERS.member, OTHERS.partner)
        torch.testing.assert_close(scores(alone, name), planted(name))
    if "true label" not in attack.knows:
        mislabelled = TrainedModels(NETWORKS, ROWS, 1 - LABELS, PAIRS.member, PAIRS.partner)
        torch.testing.assert_close(scores(mislabelled, name), planted(name))


def test_an_attack_of_your_own_is_one_line():
    found = evaluate(
        PLANTED, {"mine": lambda models: -models.losses, "loss": ATTACKS["loss"]}, generator=stream(0, "a")
    )
    assert found.interval("mine").estimate == pytest.approx(1)
    assert found.interval("mine", over="loss").estimate == pytest.approx(0)
    assert "mine" in str(found)


@pytest.mark.slow
def test_intervals_cover_what_other_models_on_other_points_give():
    draws, found = stream(0, "coverage"), []
    for _ in range(120):
        pairs = complementary_pairs(60, 8, generator=draws)
        logits = torch.randn(60, generator=draws) + torch.randn(8, 60, generator=draws) + pairs.member
        losses = torch.nn.functional.softplus(-logits.double())
        models = TrainedModels.from_losses(losses, pairs.member, pairs.partner)
        found.append(evaluate(models, ["loss"], fprs=(0.1,), generator=draws))
    for rate in ("auc", "advantage", "tpr@0.1"):
        intervals = [one.interval("loss", rate) for one in found]
        truth = sum(one.estimate for one in intervals) / len(found)
        covered = sum(one.agrees_with(truth) for one in intervals) / len(found)
        assert covered > 0.95 - 3 * math.sqrt(0.95 * 0.05 / len(found))  # wide by intention: nothing from above


def test_a_panel_too_small_to_leave_points_out_has_no_interval():
    member = torch.tensor([[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0], [0, 1, 0, 1]]).bool()
    models = TrainedModels.from_losses(PLANTED.losses[:4, :4], member, torch.tensor([1, 0, 3, 2]))
    few = evaluate(models, ["loss"], fprs=(), generator=stream(0, "a")).interval("loss")
    assert (few.low, few.high) == (0.0, 1.0)


def test_a_rate_that_so_few_outsiders_cannot_show_is_said():
    row = evaluate(PLANTED, ["loss"], fprs=(0.1, 0.001), generator=stream(0, "a")).results["loss"]
    assert [*row.rates] == ["auc", "advantage", "tpr@0.1"]
    assert "needs ≥ 1,000 outsiders" in row.missing


def test_the_advantage_is_that_of_a_threshold_from_the_shadow_models():
    drawn = torch.rand(MODELS, POINTS, generator=stream(0, "noise"), dtype=DTYPE)
    noise = evaluate(PLANTED, {"noise": lambda _: drawn}, generator=stream(0, "a"))
    error = math.sqrt(1 / POINTS / MODELS)  # the best threshold on these very scores gains some 0.2
    assert abs(noise.interval("noise", "advantage").estimate) < 3 * error
    assert float(
        evaluate(PLANTED, ["loss"], generator=stream(0, "a")).results["loss"].rates["advantage"].min()
    ) == pytest.approx(1)


few_valued = st.lists(st.integers(-4, 4), min_size=POINTS, max_size=POINTS).map(
    lambda values: torch.tensor(values, dtype=DTYPE) / 10
)
random_scores = st.integers(0, 999).map(lambda seed: torch.randn(POINTS, generator=stream(seed, "s"), dtype=DTYPE))
OWN = {
    "one model": (SUBSETS[:1], None),
    "two models": (SUBSETS[:2], None),
    "one split": (SUBSETS[:1].expand(4, -1).contiguous(), None),
    "pairs": (PAIRS.member, PAIRS.partner),
    "targets only": (SUBSETS, (1, 3)),
}


def own_metrics(scores, member, targets=None, partner=None):
    """All that is measured of an attack that gives these scores."""
    models = TrainedModels.from_losses(torch.ones(member.shape, dtype=DTYPE), member, partner, targets=targets)
    asked = scores if targets is None else scores[list(targets)]
    found = evaluate(models, {"mine": lambda _: asked}, fprs=(0.1,))
    rates = torch.stack([*found.results["mine"].rates.values()])
    return torch.cat([rates, found.results["mine"].flagged.double().mean(1)[None]])


@pytest.mark.parametrize("design", OWN)
@settings(max_examples=25)
@given(drawn=few_valued | random_scores, seed=st.integers(0, 99), shift=st.floats(-9, 9))
def test_neither_order_nor_shift_nor_rounding_changes_what_own_scores_achieve(design, drawn, seed, shift):
    member, more = OWN[design]
    targets, partner = (more, None) if isinstance(more, tuple) else (None, more)
    draws = stream(seed, "rows")
    scores = torch.stack([drawn[torch.randperm(POINTS, generator=draws)] for _ in member]) + 0.1 * member.to(DTYPE)
    expected = own_metrics(scores, member, targets, partner)
    order = torch.randperm(POINTS, generator=draws)
    for changed in (scores + 1e-12, scores + shift, scores + 0.1 + 0.2 - 0.3):
        torch.testing.assert_close(own_metrics(changed, member, targets, partner), expected)
    torch.testing.assert_close(own_metrics(scores[:, order], member[:, order], targets, partner), expected)


@pytest.mark.parametrize("size", [0.2, 0.3, 0.7, 1e-9, 1e9])
def test_members_that_all_have_one_score_reach_their_mean(size):
    scores = torch.where(SUBSETS[:2], -size, -2 * size).to(DTYPE)
    assert own_metrics(scores, SUBSETS[:2])[1].tolist() == pytest.approx([1, 1])


def test_saved_losses_carry_the_attacks_that_need_no_more():
    models = TrainedModels.from_losses(PLANTED.losses, PAIRS.member, PAIRS.partner)
    found = evaluate(models, generator=stream(0, "attack")).results
    assert {name for name, row in found.items() if row.scores is not None} == {
        *(
            "loss",
            "global threshold",
            "sample threshold",
            "calibrated loss",
            "calibrated logit",
            "RMIA",
            "RMIA, offline",
        ),
        *("LiRA", "LiRA, own variance", "LiRA, offline"),
    }
    torch.testing.assert_close(found["LiRA"].scores, planted("LiRA"), rtol=1e-6, atol=1e-6)


def test_a_module_is_opened_where_it_is_a_plain_relu_network():
    module = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Dropout(0.5), nn.Linear(3, 2)).eval()
    images = torch.rand(POINTS, 2, 2, generator=stream(0, "images"))
    labels, member = LABELS, PAIRS.member
    opened = TrainedModels.from_modules([module] * MODELS, images, labels, member, PAIRS.partner)
    assert len(opened.mlps) == MODELS
    assert torch.allclose(opened.logits[0], module(images).double(), atol=1e-6)
    closed = TrainedModels.from_modules([nn.Sequential(module)] * MODELS, images, labels, member, PAIRS.partner)
    torch.testing.assert_close(closed.logits, opened.logits, rtol=0, atol=1e-6)
    found = evaluate(closed, ["noise", "HopSkipJump", "weight norm"], generator=stream(0, "a"))
    assert [row.missing.split(":")[0] for row in found.results.values()][2] == "needs weights"
    with pytest.raises(ValueError, match="`weight norm` has no scores: it needs weights"):
        found.interval("weight norm")
    with pytest.raises(ValueError, match="for `population` only"):
        found.interval("noise", over="HopSkipJump", interval="rows")
    with pytest.raises(NotAvailable, match="weights"):
        _ = closed.mlps


@pytest.mark.parametrize("kind", [LogisticRegression, lambda: RandomForestClassifier(5, random_state=0)])
def test_estimators_come_with_the_labels_that_they_were_given(kind):
    words = np.where(LABELS == 1, "yes", "no")
    fitted = [kind().fit(ROWS.numpy()[rows], words[rows]) for rows in PAIRS.rows.numpy()]
    models = TrainedModels.from_estimators(fitted, ROWS.numpy(), words, PAIRS.member.numpy(), PAIRS.partner.numpy())
    right = fitted[0].predict(ROWS.numpy()) == words
    assert (scores(models, "gap")[0] > 0).tolist() == right.tolist()
    assert bool(scores(models, "LiRA").isfinite().all())


def models_of(**changed):
    whole = dict(networks=NETWORKS, points=ROWS, labels=LABELS, member=PAIRS.member, partner=PAIRS.partner)
    return TrainedModels(**(whole | changed))


SEEN = LogisticRegression().fit(ROWS.numpy(), LABELS.numpy())


def test_an_estimator_that_never_saw_a_class_gives_it_no_chance():
    fewer = LogisticRegression().fit(ROWS.numpy(), 2 * LABELS.numpy())
    models = TrainedModels.from_estimators([SEEN, SEEN, fewer], ROWS.numpy(), LABELS.numpy(), SUBSETS[:3])
    assert models.logits.shape == (3, POINTS, 3)
    assert float(models.logits[2].exp()[:, 1].max()) < 1e-15
    torch.testing.assert_close(models.logits[0].exp()[:, :2], torch.from_numpy(SEEN.predict_proba(ROWS.numpy())))


test_what_fits_no_panel_is_refused = refusals(
    (lambda: models_of(networks=NETWORKS[1:]), "`member` must be"),
    (lambda: models_of(labels=LABELS + 1).margins, "`labels` must be"),
    (lambda: models_of(points=ROWS / 0), "`points` must be finite"),
    (lambda: models_of(member=SUBSETS), "complementary"),
    (lambda: TrainedModels.from_losses(-PLANTED.losses, PAIRS.member), "`losses` must be"),
    (lambda: evaluate(PLANTED, ["mine"], generator=stream(0, "a")), "`attacks` must be one of"),
    (lambda: evaluate(PLANTED, {"mine": lambda p: p.losses / 0}, generator=stream(0, "a")), "scores of mine"),
    (lambda: evaluate(PLANTED, {"mine": lambda p: p.losses[0]}, generator=stream(0, "a")), "scores of mine` must have"),
    (lambda: evaluate(PLANTED, ["loss"], generator=stream(0, "a")).interval("gap"), "`name` must be one of"),
    (lambda: evaluate(PLANTED, ["loss"], generator=stream(0, "a")).interval("loss", "acc"), "`metric` must be one of"),
    (
        lambda: evaluate(PLANTED, ["loss"], generator=stream(0, "a")).interval("loss", "tpr@1%"),
        "`metric` must be one of",
    ),
    (
        lambda: TrainedModels.from_estimators([SEEN], ROWS.numpy(), [2] * POINTS, SUBSETS[:1]),
        "`labels` must be classes",
    ),
    (lambda: models_of(networks=[*NETWORKS[1:], lambda rows: torch.zeros(len(rows), 3)]).logits, "same classes"),
)


def test_a_rate_that_never_varies_has_an_interval_with_a_width():
    never = {"never": lambda models: torch.zeros_like(models.losses)}
    found = evaluate(PLANTED, never, fprs=(0.1,), generator=stream(0, "a"))
    rate, everywhere = found.interval("never", "tpr@0.1"), evaluate(PLANTED, ["loss"]).interval("loss")
    assert (rate.low, rate.estimate) == (0, 0)
    assert 0 < rate.high < 0.5
    assert everywhere.estimate == pytest.approx(1)
    assert 0.5 < everywhere.low < 1


def test_every_source_is_in_the_references():
    known = (Path(__file__).parents[3] / "book" / "references.bib").read_text("utf-8")
    assert not [name for name, one in ATTACKS.items() if one.source and f"{{{one.source}," not in known]
