"""Random-feature regression: the right rows are trained on, and the labels enter as in a fit of the definition."""

import pytest
import torch
from scipy import stats

from leakage.draws import gaussian
from leakage.precision import DTYPE
from reproduced.papers.min_norm import random_features
from reproduced.papers.min_norm.random_features import (
    LabelWeights,
    label_noise_law,
    label_weights,
    random_feature_advantage,
    teacher_variances,
)
from reproduced.runtime import stream

P_VALUE = 1e-3  # the seeds are fixed: a right law fails once in a thousand choices of seed, and then always
POOL, ROWS, QUERY = 14, 6, 3


def inputs(dimension=9):
    return gaussian((POOL, dimension), generator=stream(0, f"inputs {dimension}"))


def train(*, points=None, seed=0, **changes):
    options = dict(rows=ROWS, widths=[12, 40], designs=200, member=False) | changes
    points = inputs() if points is None else points
    return label_weights(points, QUERY, generator=stream(seed, "random features"), **options)


def test_a_member_is_the_first_training_row_and_an_outsider_is_none():
    member, outsider = train(member=True).rows, train().rows
    assert bool((member[:, 0] == QUERY).all())
    assert bool((member[:, 1:] != QUERY).all())
    assert bool((outsider != QUERY).all())


@pytest.mark.parametrize("member", [False, True])
def test_rows_are_drawn_without_replacement_and_all_alike(member):
    rows = train(member=member, designs=4000, widths=[1]).rows
    assert all(len(set(row)) == ROWS for row in rows.tolist())
    counts = torch.bincount(rows.flatten(), minlength=POOL).double()
    others = counts[torch.arange(POOL) != QUERY]
    expected = 4000 * (ROWS - member) / (POOL - 1)
    # Without replacement the counts spread less than χ² assumes, by the share of the pool that is not drawn.
    share = 1 - (ROWS - member) / (POOL - 1)
    statistic = float(((others - expected) ** 2 / expected).sum()) / share
    assert stats.chi2(POOL - 2).sf(statistic * (POOL - 2) / (POOL - 1)) > P_VALUE


def test_a_member_beyond_interpolation_gets_exactly_its_own_label():
    weights = train(member=True, widths=[30, 100]).weights
    own = torch.zeros(ROWS, dtype=DTYPE)
    own[0] = 1
    # Rounding times the worst condition number of a few hundred 6 × 6 Gram matrices.
    torch.testing.assert_close(weights, own.expand_as(weights), rtol=0, atol=1e-11)


def test_a_member_below_interpolation_gets_a_row_of_a_projection():
    """The weights are a row of the hat matrix H: H = H², so that the squared norm is the own weight, in (0, 1)."""
    weights = train(member=True, widths=[2, 4]).weights
    torch.testing.assert_close(weights.square().sum(-1), weights[..., 0], rtol=1e-10, atol=1e-11)
    assert bool(((weights[..., 0] > -1e-12) & (weights[..., 0] < 1 + 1e-9)).all())
    assert float(weights[:, 1, 0].mean()) > float(weights[:, 0, 0].mean()) + 0.1


def brute_weights(points, *, width, member, generator):
    """The definition: directions in all dimensions, ReLU features, and the pseudo-inverse of each design."""
    others = torch.tensor([i for i in range(POOL) if i != QUERY])
    rows = torch.stack([others[torch.randperm(POOL - 1, generator=generator)[:ROWS]] for _ in range(3000)])
    if member:
        rows[:, 0] = QUERY
    directions = gaussian((3000, points.shape[1], width), generator=generator)
    features, asked = (points[rows] @ directions).clamp_min(0), (points[QUERY] @ directions).clamp_min(0)
    return (asked.unsqueeze(-2) @ torch.linalg.pinv(features)).squeeze(-2)


@pytest.mark.parametrize("dimension", [4, 9, 30])  # fewer and more dimensions than points: the latter are reduced
@pytest.mark.parametrize(("width", "member"), [(3, False), (3, True), (20, False)])
def test_weights_have_the_law_of_separate_fits(dimension, width, member):
    points, generator = inputs(dimension), stream(0, f"brute {dimension} {width}")
    ours = train(points=points, widths=[width], member=member, designs=4000).weights[:, 0]
    brute = brute_weights(points, width=width, member=member, generator=generator)
    for summary in (lambda w: w[:, 0], lambda w: w.square().sum(-1), lambda w: w.sum(-1)):
        assert stats.ks_2samp(summary(ours), summary(brute)).pvalue > P_VALUE


def test_features_shared_by_the_widths_are_drawn_anew_for_every_design():
    both = train(widths=[12, 40])
    assert both.weights.shape == (200, 2, ROWS)
    torch.testing.assert_close(both.weights[:, 1:], train(widths=[40]).weights)
    assert len(both.weights[:, 0, 0].unique()) == 200


def toy():
    """Two designs of two rows from a pool of three points in the plane, two widths."""
    weights = torch.tensor([[[1.0, 2.0], [0.5, 0.0]], [[-1.0, 1.0], [3.0, -2.0]]], dtype=DTYPE)
    return LabelWeights(weights, torch.tensor([[0, 2], [1, 0]])), torch.tensor(
        [[1.0, 0.0], [2.0, 1.0], [0.0, 4.0]]
    ).double()


def test_teacher_variances_are_those_of_a_linear_teacher():
    trained, points = toy()
    # ||X'w||²/2 + σ²||w||², by hand: X'w = (1, 8), (.5, 0) and (-1, -1), (4, 3).
    expected = torch.tensor([[65 / 2 + 0.25 * 5, 2 / 2 + 0.25 * 2], [0.25 / 2 + 0.25 * 0.25, 25 / 2 + 0.25 * 13]])
    torch.testing.assert_close(teacher_variances(trained, points, sigma=0.5), expected.double())


def test_the_law_under_label_noise_has_the_fitted_mean_and_the_noise_of_the_weights():
    trained, _ = toy()
    means, variances = label_noise_law(trained, torch.tensor([1.0, -1.0, 10.0]).double(), sigma=2.0)
    torch.testing.assert_close(means, torch.tensor([[21.0, 2.0], [0.5, -5.0]], dtype=DTYPE))
    torch.testing.assert_close(variances, torch.tensor([[20.0, 8.0], [1.0, 52.0]], dtype=DTYPE))


def planted(*, label=1.0, **changes):
    """Random-feature regression on Gaussian inputs and signs, the queried one with a label of its own."""
    generator = stream(0, "planted")
    inputs = gaussian((40, 6), generator=generator)
    labels = torch.sign(gaussian((40,), generator=generator))
    labels[5] = label
    options = dict(rows=20, widths=[16, 60, 300], designs=150, sigma=0.5, seed=0) | changes
    return random_feature_advantage(5, inputs=inputs, labels=labels, **options)


def test_an_outlying_label_gives_its_owner_away_once_the_model_interpolates():
    leak = planted(label=50.0).labels
    assert leak.shape == (3,)
    assert bool((leak[1:] > 0.99).all())


def test_nothing_leaks_when_members_are_trained_like_outsiders(monkeypatch):
    trained = random_features.label_weights
    monkeypatch.setattr(
        random_features, "label_weights", lambda *args, **options: trained(*args, **(options | dict(member=False)))
    )
    for advantages in planted(label=50.0, designs=400):
        # What two samples of 400 laws differ by on their own, measured over seeds: at most .05.
        assert bool(((advantages > 0) & (advantages < 0.08)).all())  # two samples, not one twice


def test_twice_the_same_input_shares_the_label():
    points = inputs().repeat(2, 1)
    found = label_weights(
        points, QUERY, rows=26, widths=[26, 80], designs=50, member=True, generator=stream(0, "twins")
    )
    twin = found.rows == QUERY + POOL
    seen = twin.any(1)
    assert bool(seen.any())
    assert found.weights[seen, 1, 0].tolist() == pytest.approx([0.5] * int(seen.sum()))
    assert found.weights[:, 1][twin].tolist() == pytest.approx([0.5] * int(seen.sum()))


def test_which_of_two_labels_is_positive_does_not_matter():
    labels = 1.0 - 2.0 * (torch.arange(POOL, dtype=DTYPE) % 3 == 0).double()
    options = dict(inputs=inputs(), rows=ROWS, widths=[12, 40], designs=50, sigma=0.5, seed=0)
    one, other = (random_feature_advantage(QUERY, labels=sign * labels, **options).labels for sign in (1, -1))
    torch.testing.assert_close(one, other, rtol=0, atol=1e-13)  # the laws are mirrored, the sums rounded
