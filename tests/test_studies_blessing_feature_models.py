"""The four laws of features: their moments, labels and fixed points."""

import pytest
import torch

from leakage.runtime import stream
from reproduced.studies.blessing.feature_models import (
    FEATURE_MODELS,
    digit_pixels,
    random_relu,
    separable_gaussians,
    weak_features,
)


def drawn(model, *, trials=50, rows=20, fresh=20, width=60, name="sets"):
    return model.sets(trials, rows=rows, fresh=fresh, width=width, generator=stream(0, name))


@pytest.mark.parametrize("name", FEATURE_MODELS)
def test_every_law_has_one_point_and_labels_of_both_signs(name):
    model = FEATURE_MODELS[name](stream(0, name))
    sets = drawn(model)
    assert sets.rows.shape == (50, 20, 60)
    assert sets.fresh.shape == (50, 20, 60)
    assert sets.point.shape == (50, 60)
    assert model.label in (-1.0, 1.0)
    assert set(sets.labels.unique().tolist()) == set(sets.fresh_labels.unique().tolist()) == {-1.0, 1.0}
    again = drawn(FEATURE_MODELS[name](stream(0, name)))
    torch.testing.assert_close(sets.rows, again.rows)
    torch.testing.assert_close(sets.point, again.point)


def test_weak_features_share_a_signal_and_a_fifth_of_the_labels_is_flipped():
    sets = drawn(weak_features(stream(0, "weak")), trials=400)
    first, second = sets.rows[..., 0], sets.rows[..., 1]
    # Covariance 1 of two features, variance 2 of each; 8000 rows.
    assert float((first * second).mean()) == pytest.approx(1.0, abs=0.1)
    assert float(first.square().mean()) == pytest.approx(2.0, abs=0.15)
    mean = sets.rows.mean(-1)  # the signal up to a deviation of 1/sqrt(60)
    agree = float((mean.sign() == sets.labels).double().mean())
    assert 0.72 < agree < 0.80  # 0.8 less what the noise of the mean hides
    assert float((sets.fresh.mean(-1).sign() == sets.fresh_labels).double().mean()) > 0.94


def test_separable_gaussians_have_the_label_in_the_informative_features_only():
    model = separable_gaussians(stream(0, "separable"), informative=30)
    sets = drawn(model, trials=400)
    means = (sets.fresh * sets.fresh_labels.unsqueeze(-1)).mean((0, 1))
    torch.testing.assert_close(means[:30], torch.ones(30).double(), rtol=0, atol=0.06)  # 8000 rows: 5 deviations
    torch.testing.assert_close(means[30:], torch.zeros(30).double(), rtol=0, atol=0.06)
    flipped = (sets.rows[..., :30].mean(-1).sign() != sets.labels).double().mean()
    assert float(flipped) == pytest.approx(0.1, abs=0.02)
    assert float(model.point[:30].mean()) == pytest.approx(1.0, abs=1.0)


def test_random_relu_features_are_nested_projections_of_one_point():
    model = random_relu(stream(0, "relu"))
    sets = drawn(model, trials=200)
    assert float(sets.rows.min()) >= 0.0
    assert float((sets.rows > 0).double().mean()) == pytest.approx(0.5, abs=0.02)
    # E max(w·z, 0)² = |z|² / 2D for a unit vector w in D dimensions.
    expected = float(model.point.square().sum()) / (2 * 200)
    assert float(sets.point.square().mean()) == pytest.approx(expected, rel=0.1)
    assert not torch.allclose(sets.point[0], sets.point[1])


def test_digit_rows_are_balanced_different_and_never_the_point():
    model = digit_pixels(stream(0, "digits"))
    found, labels = model.draw(10, 60, stream(0, "rows"))
    assert (labels[:, :30] > 0).sum(-1).tolist() == [15] * 10
    for rows in found:
        assert len(rows.unique(dim=0)) == 60
        assert float((rows - model.point).abs().amax(-1).min()) > 0
