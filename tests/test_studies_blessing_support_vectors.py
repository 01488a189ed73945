"""Machines asked about one point: blind where nothing leaks, certain where it is planted, equal to direct training."""

import math

import torch

from leakage.data.gaussians import gaussian
from leakage.metrics.estimates import mean_interval
from leakage.runtime import stream
from leakage.trainers.svm import hard_margin, soft_margin
from reproduced.studies.blessing import support_vectors as module
from reproduced.studies.blessing.feature_models import FeatureModel, weak_features
from reproduced.studies.blessing.support_vectors import margin_outputs, privacy_and_error, split_gains


def test_nested_machines_are_those_trained_directly():
    model = weak_features(stream(0, "point"), dimension=60)
    found = margin_outputs(model, widths=[10, 25, 60], rows=20, trials=6, fresh=8, generator=stream(0, "sets"))
    sets = model.sets(6, rows=20, fresh=8, width=60, generator=stream(0, "sets"))
    for k, width in enumerate((10, 25, 60)):
        train = hard_margin if width >= 20 else soft_margin
        rows, point = sets.rows[..., :width], sets.point[..., None, :width]
        machine = train(rows @ rows.mT, sets.labels)
        torch.testing.assert_close(found.outsider[k], machine.distances(rows @ point.mT)[:, 0])
        wrong = machine.distances(rows @ sets.fresh[..., :width].mT) * sets.fresh_labels <= 0
        torch.testing.assert_close(found.errors[k], wrong.double().mean(-1))
        rows, labels = rows.clone(), sets.labels.clone()
        rows[:, 0], labels[:, 0] = point[:, 0], model.label
        torch.testing.assert_close(found.member[k], train(rows @ rows.mT, labels).distances(rows @ point.mT)[:, 0])


def test_a_point_on_the_wrong_side_is_planted_and_found():
    # Its label contradicts its features, so only a machine that has seen it puts it on the right side.
    def draw(trials, count, generator):
        labels = torch.where(torch.rand((trials, count), generator=generator) < 0.5, 1.0, -1.0).double()
        return labels.unsqueeze(-1) * 0.5 + gaussian((trials, count, 80), generator=generator), labels

    model = FeatureModel(torch.full((80,), -0.5, dtype=torch.float64), 1.0, 0.0, draw)
    found = margin_outputs(model, widths=[80], rows=30, trials=60, generator=stream(0, "planted"))
    gains = split_gains(member=found.member[0], outsider=found.outsider[0])
    assert float(gains.mean()) > 0.95
    assert float(found.member.min()) > 0 > float(found.outsider.max())


def test_a_point_nobody_was_trained_on_gains_nothing():
    scores = gaussian((2, 4000), generator=stream(0, "blind"))
    gains = split_gains(member=scores[0], outsider=scores[1])
    # Each gain is at most 1 in size; the halves share their thresholds' draws, which only makes the mean smaller.
    assert abs(float(gains.mean())) < 4 * math.sqrt(0.5 / 4000)


def test_known_laws_give_their_advantage():
    scores = gaussian((2, 20_000), generator=stream(0, "known"))
    gains = split_gains(member=scores[0] + 1, outsider=scores[1])
    # 2 Φ(1/2) - 1 for a shift of 1; the tuned threshold costs less than 0.005 at this size.
    assert abs(float(gains.mean()) - math.erf(0.5 / math.sqrt(2))) < 4 * math.sqrt(0.5 / 20_000) + 0.005


def test_more_features_leak_more_and_err_less():
    curve = privacy_and_error("weak features", widths=[60, 600], rows=50, trials=100, generator=stream(0, "curve"))
    assert mean_interval(curve.gains[1] - curve.gains[0]).low > 0
    assert mean_interval(curve.errors[1] - curve.errors[0]).high < 0
    assert curve.null.shape == (2, 50)
    # The paper's histograms show more than is there: where nothing leaks, this much.
    assert bool((curve.histogram_null > 0.1).all())
    assert bool((curve.histogram >= 0).all() & (curve.histogram <= 1).all())


def test_batches_change_only_the_draws(monkeypatch):
    monkeypatch.setattr(module, "_BATCH", {"cpu": 40 * 50 * 3})
    model = weak_features(stream(0, "point"), dimension=50)
    found = margin_outputs(model, widths=[50], rows=20, trials=7, generator=stream(0, "batches"))
    assert found.member.shape == (1, 7)
    assert len(found.member.unique()) == 7
